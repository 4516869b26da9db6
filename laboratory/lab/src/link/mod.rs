//! Links between pairs of containers.
//!
//! Pairs that are linked in one call share one segment: one bridge, one switch, one parent. A kind
//! of link is a constant in `kind.rs` and a file here that wires it.

pub(crate) mod address;
mod bridge;
pub(crate) mod card;
mod engine;
pub(crate) mod function;
mod ipvlan;
pub(crate) mod kind;
mod macvlan;
mod memory;
mod netkit;
mod ovs;
mod parent;
mod sriov;
mod tap;
mod unix;
mod veth;
mod vxlan;
mod xdp;

pub use function::Functions;
pub use kind::{Carries, LinkKind};

use std::any::Any;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use dray_wire::{Flow, MacAddr};

use rustix::io::Errno;

use crate::doctor::modules::Modules;
use crate::netlink::{Interface, Netlink, NewInterface};
use crate::{ContainerId, InterfaceCounters, Lab, LabError, NetworkNamespace};
pub(crate) use address::PREFIX_LEN;
use address::Place;
use kind::Wire;

/// Object that a program at the end of a link opens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attachment {
    /// A network interface.
    Interface(String),
    /// A TAP interface, bridged to the link's interface.
    Tap(String),
    /// A vhost-user socket, to open as the driver, which connects.
    Driver(PathBuf),
    /// A vhost-user socket, to open as the device, which listens.
    Device(PathBuf),
    /// A memif socket, to open as the client, which connects.
    Memif(PathBuf),
    /// Two Unix datagram sockets.
    Datagrams {
        /// Socket that the program at this end binds.
        here: PathBuf,
        /// Socket at the other end.
        there: PathBuf,
    },
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
    place: Place,
}

/// A link between two containers.
#[derive(Clone, Debug)]
pub struct Link {
    /// The ends, in the order in which they were requested.
    pub ends: [End; 2],
    /// The "host" interface that the ends share and by which frames leave, if there is one.
    parent: Option<String>,
}

/// Options of a link.
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
    /// CPU of the link's switch, if it has one.
    pub switch_cpu: usize,
}

/// Objects other than interfaces that a segment needs until its lab is dropped.
type Held = Option<Box<dyn Any>>;

/// A host that containers are connected to: the lab's "host", or one beside it.
#[derive(Clone, Copy)]
struct Host<'a> {
    namespace: &'a NetworkNamespace,
    netlink: &'a Netlink,
}

/// The interfaces of one call of [`Lab::link`], to be connected with each other.
struct Segment<'a> {
    lab: &'a Lab,
    kind: LinkKind,
    /// Number of the segment's first link.
    number: u32,
    links: &'a [Link],
    mtu: u32,
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
            Attachment::Interface(_) | Attachment::Tap(_) | Attachment::Datagrams { .. } => None,
            Attachment::Driver(path) | Attachment::Device(path) | Attachment::Memif(path) => {
                Some(path)
            }
        }
    }

    fn name(&self) -> &str {
        self.interface().expect("the kernel's links have interfaces")
    }
}

impl Link {
    fn new(
        containers: [ContainerId; 2],
        attachments: [Attachment; 2],
        places: [Place; 2],
        addressed: bool,
    ) -> Self {
        let mut sides = containers.into_iter().zip(attachments).zip(places);
        let mut end = |port| {
            let ((container, attachment), place) = sides.next().expect("two sides");
            let mac = place.mac();
            let station = if addressed { mac } else { place.station() };
            End { container, attachment, mac, station, ip: place.ip(), port, place }
        };
        Self { ends: [end(0), end(1)], parent: None }
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

impl Segment<'_> {
    /// Ends of all links: first and second end of the first link, and so on.
    fn ends(&self) -> impl Iterator<Item = &End> {
        self.links.iter().flat_map(|link| &link.ends)
    }

    /// The lab's "host".
    fn host(&self) -> Host<'_> {
        let host = self.lab.host();
        Host { namespace: host.namespace(), netlink: host.netlink() }
    }

    /// Description of the interface to create for an end.
    fn interface_at<'a>(&'a self, end: &'a End) -> NewInterface<'a> {
        let namespace = self.lab[end.container].namespace();
        NewInterface { namespace, name: end.name(), mac: Some(end.mac), mtu: self.mtu }
    }

    /// For `map_err` when creating an interface of the kernel module `module` (config option
    /// `option`): if the kernel lacks the module, the error states how to get it.
    fn making(&self, module: &str, option: &str) -> impl FnOnce(io::Error) -> LabError {
        move |error| match Errno::from_io_error(&error) {
            Some(Errno::OPNOTSUPP) => LabError::NotInKernel {
                what: module.to_owned(),
                remedy: Modules::of_running_kernel().remedy(module, option),
            },
            _ => self.doing(module)(error),
        }
    }

    /// For `map_err`: names the operation that failed and its link.
    fn doing(&self, what: &str) -> impl FnOnce(io::Error) -> LabError + use<> {
        LabError::doing(format!("{} link {}: {what}", self.kind, self.number))
    }

    /// Sets up the interfaces of all ends and waits until they carry frames.
    fn set_up(&self) -> Result<(), LabError> {
        for end in self.ends() {
            let netlink = self.lab[end.container].netlink();
            let index = netlink.interface(end.name()).map_err(self.doing("interface"))?.index;
            netlink.set_up(index).map_err(self.doing("set up"))?;
        }
        self.ends().try_for_each(|end| {
            self.wait_until_running(self.lab[end.container].netlink(), end.name())
        })
    }

    /// Gives both interfaces of a link an address, and each the other's addresses.
    fn set_addresses(&self, link: &Link) -> Result<(), LabError> {
        for end in &link.ends {
            let netlink = self.lab[end.container].netlink();
            let index = netlink.interface(end.name()).map_err(self.doing("interface"))?.index;
            let address = netlink.add_address(index, end.ip, address::PREFIX_LEN);
            address.map_err(self.doing("address"))?;
        }
        self.introduce(link)
    }

    /// Gives each interface of a link a neighbour entry with the other's addresses.
    fn introduce(&self, link: &Link) -> Result<(), LabError> {
        let [a, b] = &link.ends;
        for (end, peer) in [(a, b), (b, a)] {
            let netlink = self.lab[end.container].netlink();
            let index = netlink.interface(end.name()).map_err(self.doing("interface"))?.index;
            netlink.add_neighbour(index, peer.ip, peer.mac).map_err(self.doing("neighbour"))?;
        }
        Ok(())
    }

    /// Waits until an interface carries frames. After it is set up it drops everything, uncounted,
    /// until the kernel has noticed that its counterpart is up too.
    fn wait_until_running(&self, netlink: &Netlink, name: &str) -> Result<(), LabError> {
        let deadline = Instant::now() + Duration::from_secs(5);
        while !netlink.interface(name).map_err(self.doing(name))?.is_running {
            if Instant::now() > deadline {
                let source = io::Error::from(io::ErrorKind::TimedOut);
                return Err(self.doing(&format!("waiting for {name} to carry frames"))(source));
            }
            self.lab.cancel().check()?;
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Lab {
    /// Joins containers in pairs that share one segment. Returns a link for each pair, in order.
    pub fn link(
        &mut self,
        kind: LinkKind,
        pairs: &[[ContainerId; 2]],
        options: LinkOptions,
    ) -> Result<Vec<Link>, LabError> {
        let began = Instant::now();
        if kind.has_program() && self.switch().is_some() {
            return Err(LabError::SecondSwitch { kind: kind.name });
        }
        let mut links =
            match kind.wire {
                Wire::Direct => memory::direct(self, pairs),
                Wire::Unix => unix::sockets(self, pairs),
                Wire::Switch(switch, wiring, protocol) => {
                    memory::switch(self, (switch, wiring, protocol), pairs, options)
                }
                Wire::Engine(..) => engine::find(self, kind, pairs, options),
                Wire::Veth => self.link_interfaces(kind, pairs, options, veth::wire),
                Wire::Bridge => self.link_interfaces(kind, pairs, options, bridge::wire),
                Wire::Macvlan(mode) => self
                    .link_interfaces(kind, pairs, options, |segment| macvlan::wire(segment, mode)),
                Wire::Macvtap => self.link_interfaces(kind, pairs, options, tap::wire_macvtap),
                Wire::Ipvlan(mode, flags) => {
                    let wire = |segment: &Segment<'_>| ipvlan::wire(segment, mode, flags);
                    self.link_interfaces(kind, pairs, options, wire)
                }
                Wire::Ovs(datapath) => ovs::link(self, (kind, datapath), pairs, options),
                Wire::Sriov => sriov::link(self, kind, pairs, options),
                Wire::Vxlan => self.link_interfaces(kind, pairs, options, vxlan::wire),
                Wire::Netkit(mode) => self
                    .link_interfaces(kind, pairs, options, |segment| netkit::wire(segment, mode)),
                Wire::Xdp(wiring) => self.link_interfaces(kind, pairs, options, |segment| {
                    xdp::wire(segment, wiring, options.has_programs)
                }),
            }?;
        let ends = links.iter_mut().flat_map(|link| &mut link.ends);
        ends.enumerate().for_each(|(port, end)| end.port = port);
        self.linking += began.elapsed();
        Ok(links)
    }

    /// Joins containers by interfaces, which `wire` creates and connects with each other.
    fn link_interfaces(
        &mut self,
        kind: LinkKind,
        pairs: &[[ContainerId; 2]],
        LinkOptions { mtu, addressed, has_machines, .. }: LinkOptions,
        wire: impl FnOnce(&Segment<'_>) -> Result<Held, LabError>,
    ) -> Result<Vec<Link>, LabError> {
        let addressed = addressed || kind.carries == Carries::OwnIp;
        let link = |&containers: &[ContainerId; 2]| {
            let interfaces = containers.map(|id| Attachment::Interface(self.next_interface(id)));
            Link::new(containers, interfaces, self.next_places(), addressed)
        };
        let mut links: Vec<_> = pairs.iter().map(link).collect();
        let Some(first) = links.first() else { return Ok(links) };
        let number = first.ends[0].place.link();
        let segment = Segment { lab: self, kind, number, links: &links, mtu };
        let held = wire(&segment)?;
        for link in &mut links {
            link.parent = kind.isolates.then(|| parent::name(number));
            for end in &mut link.ends {
                // Some kinds give their interfaces other Ethernet addresses.
                end.mac = self.interface(end)?.mac;
                if addressed || kind.carries == Carries::OwnMac {
                    end.station = end.mac;
                }
            }
        }
        let segment = Segment { lab: self, kind, number, links: &links, mtu };
        segment.set_up()?;
        if addressed {
            links.iter().try_for_each(|link| segment.set_addresses(link))?;
        }
        if has_machines && !kind.takes_only_machines() {
            let pairs = links.iter().flat_map(|Link { ends: [a, b], .. }| [(a, b), (b, a)]);
            let taps = pairs.map(|(end, peer)| segment.create_tap(end, peer));
            let taps = taps.collect::<Result<Vec<_>, _>>()?;
            let ends = links.iter_mut().flat_map(|link| &mut link.ends);
            ends.zip(taps).for_each(|(end, tap)| end.attachment = Attachment::Tap(tap));
        }
        self.hold(held);
        Ok(links)
    }

    /// The kernel's counters of an end's interface, from the point of view of the program at the
    /// end.
    pub fn counters(&self, end: &End) -> Result<InterfaceCounters, LabError> {
        let counters = self.interface(end)?.counters;
        Ok(match end.attachment {
            // A TAP interface receives what the program writes, and sends what the program reads,
            // except frames that found the queue full.
            Attachment::Tap(_) => InterfaceCounters {
                rx_packets: counters.tx_packets + counters.tx_dropped,
                tx_packets: counters.rx_packets,
                tx_dropped: 0,
            },
            _ => counters,
        })
    }

    /// The kernel's counters of the interface by which frames leave the "host", if the link
    /// [isolates](LinkKind::isolates) its ends.
    pub fn parent_counters(&self, link: &Link) -> Result<Option<InterfaceCounters>, LabError> {
        let Some(parent) = &link.parent else { return Ok(None) };
        let doing = LabError::doing(format!("parent {parent}"));
        Ok(Some(self.host().netlink().interface(parent).map_err(doing)?.counters))
    }

    fn interface(&self, end: &End) -> Result<Interface, LabError> {
        let container = &self[end.container];
        let doing = LabError::doing(format!("{} {}", container.name(), end.name()));
        container.netlink().interface(end.name()).map_err(doing)
    }
}
