//! `netmap:PORT`: rings and buffers of netmap's kernel module, mapped: those of an interface, of a
//! port of a VALE switch, or of a pipe.

mod calls;
mod layout;
mod receive;
mod region;
mod registration;
mod ring;
mod transmit;
mod uri;

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dray_netdev::Interface;
use dray_wire::ethernet::{ETHERNET_LEN, FRAME_MAX};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::Port;
use crate::session::link::Link;
use crate::session::status::{LinkState, LinkStatus};
use crate::uri::failed::Failed;
use calls::Pages;
use layout::{EXCLUSIVE, NO_PORT, NO_TX_POLL, ONE_HOST_PAIR, ONE_PAIR, RX_ONLY, Register, TX_ONLY};
use receive::NetmapReceive;
use region::Region;
use registration::{Gone, Registration};
use ring::Ring;
use transmit::NetmapTransmit;

pub use uri::{Kind, NetmapUri};

impl NetmapUri {
    /// Registers each ring pair with a descriptor of its own.
    fn open_rings(&self) -> Result<Port, Failed> {
        let gone = Arc::new(Gone { body: self.body(), is_gone: AtomicBool::new(false) });
        let memory = |error| ("memory region", error);
        let mut port = Port { rx: Vec::new(), tx: Vec::new(), link: None };
        let (first, register) = self.register(0, 0)?;
        let frame_max = self.frame_max()?;
        // Host rings follow those of the interface.
        let (tx, rx) = match self.kind {
            Kind::Host => (
                register.tx_rings..register.tx_rings + register.host_tx_rings,
                register.rx_rings..register.rx_rings + register.host_rx_rings,
            ),
            _ => (0..register.tx_rings, 0..register.rx_rings),
        };
        let first_ring = usize::from(tx.start);
        let (mut tx, mut rx) = (tx.map(usize::from), rx.map(usize::from));
        let mut next = Some((first, register.clone()));
        let mut number = 0;
        while let Some((device, register)) = next.take() {
            let registration = Arc::new(Registration { device, gone: gone.clone() });
            let interface_at = register.interface_at as usize;
            let map = || self.map(&register);
            let region = Region::get(register.memory, interface_at, first_ring, map);
            let region = region.map_err(memory)?;
            if port.link.is_none() {
                let features = self.features(&register, &region);
                port.link = Some(Arc::new(Opened { features, gone: gone.clone() }));
            }
            if let Some(index) = rx.next() {
                let ring = Ring::open(&region, interface_at, index, true).map_err(memory)?;
                let half = NetmapReceive::new(registration.clone(), ring, self.wait);
                port.rx.push(Box::new(half));
            }
            if let Some(index) = tx.next() {
                let ring = Ring::open(&region, interface_at, index, false).map_err(memory)?;
                let half = NetmapTransmit::new(registration, ring, self.kind, frame_max);
                port.tx.push(Box::new(half));
            }
            number += 1;
            // There may be more rings of one direction than of the other.
            let only = match (tx.len(), rx.len()) {
                (0, 0) => break,
                (0, _) => RX_ONLY,
                (_, 0) => TX_ONLY,
                _ => 0,
            };
            next = Some(self.register(number, only)?);
        }
        Ok(port)
    }

    /// Registers the ring pair `number`, or `only` its ring of one direction.
    fn register(&self, number: u16, only: u64) -> Result<(OwnedFd, Register), Failed> {
        let device = calls::open_device().map_err(|error| (calls::DEVICE, error))?;
        let mut request = Register {
            memory: self.memory.unwrap_or(0),
            ring: number,
            mode: if self.kind == Kind::Host { ONE_HOST_PAIR } else { ONE_PAIR },
            flags: EXCLUSIVE | NO_TX_POLL | only,
            ..Register::default()
        };
        // The other end of a pipe may use offsets even if this one does not.
        let is_pipe = self.kind == Kind::Pipe;
        let offset = (self.offset > 0 || is_pipe).then_some(self.offset);
        if is_pipe {
            // netmap may give the two ends different parents if both are opened at once.
            let lock = flock(&device, FlockOperation::LockExclusive);
            lock.map_err(|errno| (calls::DEVICE, errno.into()))?;
        }
        calls::register(device.as_fd(), &self.name, offset, &mut request)
            .map_err(|error| self.explain(error))?;
        if is_pipe {
            let unlock = flock(&device, FlockOperation::Unlock);
            unlock.map_err(|errno| (calls::DEVICE, errno.into()))?;
        }
        if let Some(memory) = self.memory.filter(|memory| *memory != request.memory) {
            let what = format!(
                "memory={memory}: the port's region is {0}; set memory={0}, or leave it out",
                request.memory
            );
            return Err(("register", io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        Ok((device, request))
    }

    /// Maps the region of a registered port. The pages belong to a descriptor of their own, so that
    /// they do not keep the port.
    fn map(&self, register: &Register) -> io::Result<Pages> {
        let device = calls::open_device()?;
        let mut request =
            Register { memory: register.memory, mode: NO_PORT, ..Register::default() };
        calls::register(device.as_fd(), &self.name, None, &mut request)?;
        Pages::map(&device, register.region_len as usize)
    }

    /// Returns the length of the longest frame in bytes.
    fn frame_max(&self) -> Result<usize, Failed> {
        if matches!(self.kind, Kind::Vale | Kind::Pipe) {
            return Ok(FRAME_MAX);
        }
        let interface = Interface::find(&self.name).map_err(|error| ("interface index", error))?;
        let mtu = interface.mtu().map_err(|error| ("MTU", error))?;
        Ok(FRAME_MAX.min(mtu + ETHERNET_LEN))
    }

    /// Explains an error of the registration.
    fn explain(&self, error: io::Error) -> Failed {
        let Some(errno) = Errno::from_io_error(&error) else { return ("register", error) };
        let memory = self.memory.unwrap_or(1);
        let what = match errno {
            Errno::BUSY => "another program uses this port, or a VALE switch has it".to_owned(),
            Errno::NXIO => "no such interface: `ip link` lists those of this namespace".to_owned(),
            Errno::OPNOTSUPP if self.offset > 0 => {
                format!("offset={}: this port has no offsets; leave it out", self.offset)
            }
            Errno::OPNOTSUPP => "the interface's driver does not support netmap, and the module's \
                                 parameter admode=1 forbids others; admode=0 allows them"
                .to_owned(),
            Errno::INVAL if self.memory.is_some() => format!(
                "memory={memory}: no such region; 1 is the one of all interfaces, and each open \
                 port prints its own"
            ),
            Errno::INVAL => {
                "netmap has no such port: interfaces need an MTU that fits its buffers \
                             (module parameter buf_size) and must not belong to a VALE switch"
                    .to_owned()
            }
            Errno::NOMEM if self.kind == Kind::Vale => {
                "netmap has no memory or no VALE switch left: \
                 close ports, or load the module with a larger buf_num, ring_num or max_bridges"
                    .to_owned()
            }
            Errno::NOMEM => "netmap has no memory left: close ports, or load the module with a \
                             larger buf_num and ring_num"
                .to_owned(),
            _ => return ("register", error),
        };
        ("register", io::Error::new(error.kind(), what))
    }

    /// Returns the properties of the port, for people.
    fn features(&self, register: &Register, region: &Region) -> Vec<String> {
        let mut features = vec![
            self.kind.words().to_owned(),
            format!("memory region {}", register.memory),
            format!("buffers of {} bytes", region.buffer_len()),
        ];
        features.extend((self.offset > 0).then(|| format!("offset {} bytes", self.offset)));
        features
    }
}

/// Link of an open port: its properties, and whether netmap still has it.
struct Opened {
    features: Vec<String>,
    gone: Arc<Gone>,
}

impl Link for Opened {
    fn status(&self) -> LinkStatus {
        let mut status = LinkStatus { features: self.features.clone(), ..LinkStatus::default() };
        if self.gone.is_gone.load(Ordering::Relaxed) {
            status.ended("the netmap port was removed");
        } else {
            status.state = LinkState::Running;
        }
        status
    }
}
