//! `raw:INTERFACE`: a packet socket (packet(7)) that sends and receives whole frames. A local
//! kernel leaves checksums and segmentation to the reader of such a socket, and says so in the
//! virtio-net header in front of each frame. The port finishes frames, unless its user handles
//! offloads.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use dray_wire::ethernet::{ETHERNET_LEN, FRAME_MAX};
use dray_wire::offload::Offloads;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use dray_netdev::privilege::{Capability, NET_RAW};

use crate::session::link::Link;
use crate::session::snapshot::{PortSnapshot, Resumption};
use crate::session::status::{LinkState, LinkStatus};
use crate::socket::{
    Restore, SocketOptions, SocketReceive, SocketTransmit, enlarge_buffers, open_ring, set_option,
};
use crate::uri::failed::Failed;
use crate::uri::failed::refused;
use crate::uri::interface;
use crate::uri::query::{Query, UriError, write_query};
use crate::uri::scheme::{Claim, Scheme, Socket};
use crate::{PATIENCE, Port, Wait};

mod calls;

/// Name of a packet socket port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawUri {
    /// The network interface.
    pub interface: String,
    /// Batch size and how to wait.
    pub options: SocketOptions,
    /// Receive only frames with this Ethertype. Without one, every frame is received; that costs a
    /// clone of each frame, because the kernel's own protocols get it as well. With one, frames
    /// have lost their VLAN tags.
    pub ethertype: Option<u16>,
    /// True to request frames addressed to others (promiscuous mode).
    pub promisc: bool,
    /// Number of sockets, 1 to 16, among which the kernel divides arriving frames by a hash of
    /// their flow.
    pub queues: u16,
    /// True to pass frames by packet rings, memory that kernel and port both map.
    pub ring: bool,
    /// True to leave segments together and checksums partial for a user that handles offloads.
    pub offload: bool,
}

impl RawUri {
    /// Returns true if received frames have their VLAN tags. The kernel strips a tag before it
    /// looks for sockets that want frames of one type, and does not report it to them afterwards.
    pub fn keeps_tags(&self) -> bool {
        self.ethertype.is_none()
    }

    /// Creates one socket, and returns it with the length of the longest frame that it sends. If
    /// there are several, they become members of the same `group`.
    fn socket(&self, group: &mut Option<u16>) -> Result<(OwnedFd, usize), Failed> {
        let fail = |what| move |errno: rustix::io::Errno| (what, errno.into());
        // Protocol 0: nothing is received before the socket is bound to its interface.
        let socket = rustix::net::socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(fail("packet socket"))?;
        let interface = dray_netdev::Interface::find(&self.interface)
            .map_err(|error| ("interface index", error))?;
        let (index, mtu) = (interface.index(), interface.mtu().map_err(|error| ("MTU", error))?);
        enlarge_buffers(socket.as_fd()).map_err(|error| ("SO_RCVBUF", error))?;
        for direction in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            sockopt::set_socket_timeout(&socket, direction, Some(PATIENCE))
                .map_err(fail("SO_RCVTIMEO"))?;
        }
        set_option(
            socket.as_fd(),
            libc::SOL_PACKET,
            calls::PACKET_IGNORE_OUTGOING,
            1 as libc::c_int,
        )
        .map_err(|error| ("PACKET_IGNORE_OUTGOING (Linux 4.20)", error))?;
        if self.promisc {
            calls::set_promiscuous(socket.as_fd(), index).map_err(|error| ("promisc", error))?;
        }
        if self.keeps_tags() {
            set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_AUXDATA, 1 as libc::c_int)
                .map_err(|error| ("PACKET_AUXDATA", error))?;
        }
        let protocol = self.ethertype.unwrap_or(libc::ETH_P_ALL as u16);
        if self.queues > 1 {
            // Only a receiving socket can be a member; until it is, it would get copies of the
            // members' frames.
            calls::deafen(socket.as_fd(), true).map_err(|error| ("SO_ATTACH_FILTER", error))?;
        }
        calls::bind(socket.as_fd(), index, protocol).map_err(|error| ("bind", error))?;
        if self.queues > 1 {
            let number = calls::join(socket.as_fd(), *group);
            *group = Some(number.map_err(|error| ("PACKET_FANOUT (Linux 4.12)", error))?);
            calls::deafen(socket.as_fd(), false).map_err(|error| ("SO_DETACH_FILTER", error))?;
        }
        Ok((socket, FRAME_MAX.min(mtu + ETHERNET_LEN)))
    }

    /// Opens the sockets and binds them to the interface.
    fn open_sockets(&self, offloads: bool) -> Result<Port, Failed> {
        let mut group = None;
        let sockets = (0..self.queues).map(|_| self.socket(&mut group));
        self.port(sockets.collect::<Result<_, _>>()?, offloads)
    }

    /// Returns the port of sockets, one for each queue, each with the longest frame that it sends.
    fn port(&self, sockets: Vec<(OwnedFd, usize)>, offloads: bool) -> Result<Port, Failed> {
        // The interface may have got another name since another process opened the sockets.
        let interface = dray_netdev::Interface::find(&self.interface).ok();
        let link = interface.map(|interface| Arc::new(RawLink { interface }) as Arc<dyn Link>);
        let mut port = Port { rx: Vec::new(), tx: Vec::new(), link };
        for (socket, frame_max) in sockets {
            let left = calls::leave_offloads(socket.as_fd());
            let left = left.map_err(|error| ("PACKET_VNET_HDR", error))?;
            // A slot of a ring has room for a frame, not for segments.
            let taken = if offloads && !self.ring { left } else { Offloads::NONE };
            let socket = Arc::new(socket);
            let restore = if self.keeps_tags() { Restore::Tags } else { Restore::Nothing };
            let rx = SocketReceive::new(socket.clone(), self.options, restore);
            let tx = SocketTransmit::new(socket.clone(), self.options, false, frame_max);
            let mut rx = rx.with_offloads(left, !offloads);
            let mut tx = tx.with_offloads(taken);
            if self.ring {
                let rings = open_ring(socket.as_fd(), frame_max);
                let (receive, transmit) = rings.map_err(|error| ("packet ring", error))?;
                (rx, tx) = (rx.with_ring(receive), tx.with_ring(transmit));
            }
            port.rx.push(Box::new(rx));
            port.tx.push(Box::new(tx));
        }
        Ok(port)
    }
}

/// Link of an interface.
struct RawLink {
    interface: dray_netdev::Interface,
}

impl Link for RawLink {
    fn status(&self) -> LinkStatus {
        LinkStatus { state: LinkState::Running, ..LinkStatus::default() }
    }

    fn is_down(&self) -> bool {
        self.interface.is_down()
    }
}

impl Scheme for RawUri {
    fn parse(body: &str, query: &mut Query<'_>) -> Result<Self, UriError> {
        let interface = interface::parse(body, query, "raw")?;
        let options = SocketOptions::parse(query)?;
        let ethertype = query.take("ethertype", "0x0001 to 0xffff, 0x0800 for IPv4", |text| {
            let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 4)?;
            u16::from_str_radix(digits, 16).ok().filter(|n| *n != 0)
        })?;
        let promisc = query.flag("promisc", false)?;
        let queues = query.queues()?;
        let ring = query.flag("ring", false)?;
        let offload = query.flag("offload", true)?;
        Ok(Self { interface, options, ethertype, promisc, queues, ring, offload })
    }

    fn open(&self, _: Option<Socket>) -> Result<Port, Failed> {
        self.open_sockets(false)
    }

    fn open_offloading(&self, _: Option<Socket>) -> Result<Port, Failed> {
        self.open_sockets(self.offload)
    }

    fn resume(
        &self,
        snapshot: PortSnapshot,
        offloads: bool,
    ) -> Result<(Port, Option<Resumption>), Failed> {
        if self.ring {
            return Err(refused("a port with packet rings cannot be handed over".to_owned()));
        }
        let (sockets, frame_max) = snapshot.into_devices();
        let is_right = |socket| sockopt::socket_domain(socket) == Ok(AddressFamily::PACKET);
        if sockets.len() != usize::from(self.queues) || !sockets.iter().all(is_right) {
            let what = format!("give {} packet sockets, one for each queue", self.queues);
            return Err(refused(what));
        }
        if !sockets.iter().all(|socket| calls::is_bound(socket.as_fd())) {
            return Err(refused("its interface has gone".to_owned()));
        }
        let sockets = sockets.into_iter().map(|socket| (socket, frame_max)).collect();
        Ok((self.port(sockets, offloads && self.offload)?, None))
    }

    fn capabilities(&self, _: &str) -> &'static [Capability] {
        &[NET_RAW]
    }

    fn wait(&self) -> Wait {
        self.options.wait
    }

    fn loses_tags(&self) -> bool {
        !self.keeps_tags()
    }

    fn claim(&self) -> Option<Claim<'_>> {
        Some(Claim::Interface(&self.interface))
    }
}

impl fmt::Display for RawUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "raw:{}", self.interface)?;
        let mut pairs = self.options.pairs();
        if let Some(ethertype) = self.ethertype {
            pairs.push(("ethertype", format!("{ethertype:#06x}")));
        }
        if self.promisc {
            pairs.push(("promisc", "1".to_owned()));
        }
        if self.queues != 1 {
            pairs.push(("queues", self.queues.to_string()));
        }
        if self.ring {
            pairs.push(("ring", "1".to_owned()));
        }
        if !self.offload {
            pairs.push(("offload", "0".to_owned()));
        }
        write_query(f, pairs)
    }
}
