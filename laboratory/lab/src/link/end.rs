//! Links, their ends and their options, whatever the kind.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use dray_wire::{Flow, MacAddr};

use super::address::EndId;
use crate::ContainerId;

/// Object that a program at the end of a link opens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attachment {
    /// A network interface.
    Interface(String),
    /// A TAP interface, bridged to the link's interface.
    Tap(String),
    /// A vhost-user socket that the program connects to, as the driver.
    Driver(PathBuf),
    /// A vhost-user socket at which the program listens, as the device.
    Device(PathBuf),
    /// A memif socket that the program connects to, as the client.
    Memif(PathBuf),
    /// Two Unix datagram sockets.
    Datagrams {
        /// Socket that the program at this end binds.
        here: PathBuf,
        /// Socket at the other end.
        there: PathBuf,
    },
    /// A netmap port of the "host"'s network namespace; [`netmap_uri`](super::netmap_uri) returns
    /// how to open it.
    Netmap(String),
    /// Bus address of a PCI function that the driver `vfio-pci` has.
    Function(String),
}

/// A link's end in one container.
#[derive(Clone, Debug)]
pub struct End {
    /// The container.
    pub container: ContainerId,
    /// Object that the program in the container opens.
    pub attachment: Attachment,
    /// Ethernet address of the end.
    pub mac: MacAddr,
    /// Destination address of frames sent to this end: [`mac`](Self::mac) if the link was made
    /// [`addressed`](LinkOptions::addressed), otherwise the address of a station behind the
    /// interface.
    pub station: MacAddr,
    /// IPv4 address of the end, if the link was made [`addressed`](LinkOptions::addressed).
    pub ip: Ipv4Addr,
    /// Port number of the end in its segment: the first link's ends are at 0 and 1, the next one's
    /// at 2 and 3, and so on.
    pub port: usize,
    pub(super) id: EndId,
}

/// A link between two containers.
#[derive(Clone, Debug)]
pub struct Link {
    /// The ends, in the order in which they were requested.
    pub ends: [End; 2],
    /// The "host" interface that the ends share and by which frames leave, if there is one.
    pub(super) parent: Option<String>,
}

/// Options of a link; [`of_mtu`](Self::of_mtu) has the usual ones.
#[derive(Clone, Copy, Debug)]
pub struct LinkOptions {
    /// The MTU of its interfaces, in bytes.
    pub mtu: u32,
    /// True to give the ends IPv4 addresses, and each end the other's addresses.
    ///
    /// Otherwise frames go to a station for which the program behind the interface stands in, as a
    /// network function does. The kernel also passes every frame to its own IP layer. That drops a
    /// frame for another station at once; for a frame to its own address it would look up a route
    /// in vain, at a third of the whole cost of a frame.
    pub addressed: bool,
    /// True if the programs at the ends attach XDP programs of their own, in the driver.
    pub has_programs: bool,
    /// True if the programs at the ends take the places of virtual machines: each has a TAP
    /// interface, bridged to the link's interface unless that is one itself.
    pub has_machines: bool,
    /// True if drivers in user space have the virtual functions at the ends, which get no
    /// interface.
    pub has_drivers: bool,
    /// Number of virtual functions that the lab's links need of the link's card. The card's first
    /// link creates them all, since their number cannot change while one is in use.
    pub functions: usize,
    /// CPU of the link's switch, if it has one.
    pub switch_cpu: usize,
    /// Bits per second of the cable between two hosts; `None` for as many as the machine passes.
    pub cable_bps: Option<u64>,
    /// True if our own switch sleeps while it is idle, and leaves its CPU to others.
    pub switch_sleeps: bool,
}

impl LinkOptions {
    /// Options of a link with this MTU in bytes, and nothing else.
    pub fn of_mtu(mtu: u32) -> Self {
        Self {
            mtu,
            addressed: false,
            has_programs: false,
            has_machines: false,
            has_drivers: false,
            functions: 0,
            switch_cpu: 0,
            cable_bps: None,
            switch_sleeps: false,
        }
    }
}

impl End {
    /// Name of the end's interface; `None` if it has none.
    pub fn interface(&self) -> Option<&str> {
        match &self.attachment {
            Attachment::Interface(name) | Attachment::Tap(name) => Some(name),
            _ => None,
        }
    }

    /// Path of the vhost-user or memif socket; `None` if the end has none.
    pub fn socket(&self) -> Option<&Path> {
        match &self.attachment {
            Attachment::Interface(_)
            | Attachment::Tap(_)
            | Attachment::Datagrams { .. }
            | Attachment::Netmap(_)
            | Attachment::Function(_) => None,
            Attachment::Driver(path) | Attachment::Device(path) | Attachment::Memif(path) => {
                Some(path)
            }
        }
    }

    /// Name of the end's netmap port; `None` if it has none.
    pub fn netmap(&self) -> Option<&str> {
        match &self.attachment {
            Attachment::Netmap(name) => Some(name),
            _ => None,
        }
    }

    pub(super) fn name(&self) -> &str {
        self.interface().expect("the kernel's links have interfaces")
    }
}

impl Link {
    pub(super) fn new(
        containers: [ContainerId; 2],
        attachments: [Attachment; 2],
        ids: [EndId; 2],
        addressed: bool,
    ) -> Self {
        let mut sides = containers.into_iter().zip(attachments).zip(ids);
        let mut end = |port| {
            let ((container, attachment), id) = sides.next().expect("two sides");
            let mac = id.mac();
            let station = if addressed { mac } else { id.station() };
            End { container, attachment, mac, station, ip: id.ip(), port, id }
        };
        Self { ends: [end(0), end(1)], parent: None }
    }

    /// Returns the same link with its ends in the other order.
    pub fn reversed(&self) -> Self {
        let [a, b] = self.ends.clone();
        Self { ends: [b, a], parent: self.parent.clone() }
    }

    /// Addresses in frames from the first end to the second.
    pub fn flow(&self) -> Flow {
        let [from, to] = &self.ends;
        Flow {
            src_mac: from.station,
            dst_mac: to.station,
            src_ip: from.ip,
            dst_ip: to.ip,
            ..Flow::default()
        }
    }
}
