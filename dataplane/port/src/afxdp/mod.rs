//! `afxdp:INTERFACE`: AF_XDP sockets, which take frames from an interface before the kernel's
//! network stack sees them (Documentation/networking/af_xdp.rst).

mod absence;
mod deferral;
mod program;
mod receive;
mod ring;
mod socket;
mod transmit;
mod umem;
mod uri;
mod vlan_tags;

use std::io;
use std::sync::{Arc, Weak};

use dray_netdev::Interface;
use dray_wire::ethernet::{ETHERNET_LEN, FRAME_MAX, TAG_LEN};

use crate::Port;
use crate::link::{Link, LinkState, LinkStatus};
use crate::scheme::Failed;
use program::Program;
use receive::AfxdpReceive;
use socket::{Rings, Socket};
use transmit::AfxdpTransmit;
use umem::{Joined, Umem};

pub use uri::{AfxdpUri, CopyMode};

impl AfxdpUri {
    /// Attaches the program and opens a socket for each queue.
    fn open_queues(&self) -> Result<Port, Failed> {
        let fail = |what| move |error: io::Error| (what, error);
        let interface = Interface::find(&self.interface).map_err(fail("interface index"))?;
        let interface = Arc::new(interface);
        let mtu = interface.mtu().map_err(fail("MTU"))?;
        if let Some(queues) = interface.queues()
            && self.queue + self.queues > queues
        {
            let what = format!("queues {} to {}", self.queue, self.queue + self.queues - 1);
            let what = format!("{what}: the interface has {queues} queues, numbered from 0");
            return Err(("queue", io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        let frame_max = FRAME_MAX.min(mtu + ETHERNET_LEN);
        // The kernel reserves the beginning of each chunk that it receives into for XDP programs.
        const HEADROOM: usize = 256;
        let parts = frame_max + TAG_LEN > self.chunk as usize - HEADROOM;

        let umem =
            Umem::get(self.umem.as_deref(), self.queues, self.chunk).map_err(fail("UMEM"))?;
        let program = program::get(interface, self).map_err(fail("XDP program"))?;
        let mut port = Port { rx: Vec::new(), tx: Vec::new(), link: None };
        let (mut sockets, mut features) = (Vec::new(), Vec::new());
        for queue in self.queue..self.queue + self.queues {
            let Joined { socket, rings, to_receive, to_transmit } = umem.add(|seat, other| {
                let (socket, rings) =
                    Socket::new(self, seat, program.clone(), other.is_none(), parts)?;
                socket.bind(self, queue, other)?;
                Ok((Arc::new(socket), rings))
            })?;
            let Rings { rx, fill, tx, completion } = rings;
            let receive = AfxdpReceive::new(socket.clone(), rx, fill, to_receive, self.wait);
            program.give(queue, &socket).map_err(fail("XDP program"))?;
            let copies = if socket.is_zero_copy().map_err(fail("XDP_OPTIONS"))? {
                "zero copy"
            } else {
                "copy"
            };
            features = self.features(&program, copies);
            port.rx.push(Box::new(receive));
            sockets.push(Arc::downgrade(&socket));
            let transmit = AfxdpTransmit::new(socket, tx, completion, to_transmit, frame_max);
            port.tx.push(Box::new(transmit));
        }
        port.link = Some(Arc::new(Opened { features, sockets }));
        Ok(port)
    }

    /// Returns the properties of the port, for people.
    fn features(&self, program: &Program, copies: &str) -> Vec<String> {
        let mut features = vec![format!("xdp {}", program.mode()), copies.to_owned()];
        features.extend(self.wakeup.then(|| "need wakeup".to_owned()));
        features.extend(self.busy_poll.map(|time| format!("busy polling for {time} us")));
        features.extend(self.defer.map(|time| format!("interrupts deferred by {time} us")));
        if program.interface().takes_vlan_tags_off().unwrap_or(false) {
            features.push("VLAN tags taken off".to_owned());
        }
        features
    }
}

/// Link of an open port: the properties that the kernel granted, and the sockets.
struct Opened {
    features: Vec<String>,
    sockets: Vec<Weak<Socket>>,
}

impl Link for Opened {
    fn status(&self) -> LinkStatus {
        let mut sockets = self.sockets.iter().filter_map(Weak::upgrade);
        let mut status = LinkStatus { features: self.features.clone(), ..LinkStatus::default() };
        if sockets.any(|socket| socket.is_gone()) {
            status.ended("the interface was removed");
        } else {
            status.state = LinkState::Running;
        }
        status
    }
}
