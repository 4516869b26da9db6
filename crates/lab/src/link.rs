//! Links: how containers are wired.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use dray_wire::{Flow, MacAddr};
use dray_xdp::{Mode, Pass, Redirect};

use crate::ethtool;
use crate::netlink::{Interface, VethEnd};
use crate::peer::{SwitchKind, Wiring};
use crate::{ContainerId, InterfaceCounters, Lab, LabError};

/// A kind of link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkKind {
    /// A veth pair with one end in each container.
    Veth,
    /// A Linux bridge on the "host", and a veth pair from it to each container.
    Bridge,
    /// An XDP program on the "host", which passes frames on among veth pairs to the containers.
    Xdp(Wiring),
    /// Memory that the first end shares with the second.
    Direct,
    /// A switch in user space, with which both ends share memory.
    Switch(SwitchKind, Wiring),
}

impl LinkKind {
    /// Our switch, ports in pairs.
    pub const PATCH: Self = Self::Switch(SwitchKind::Dray, Wiring::Pairs);
    /// Our switch, learning addresses.
    pub const LEARNING: Self = Self::Switch(SwitchKind::Dray, Wiring::Learning);

    /// Every kind, but for other people's switches.
    pub const ALL: [Self; 7] = [
        Self::Veth,
        Self::Bridge,
        Self::Xdp(Wiring::Pairs),
        Self::Xdp(Wiring::Learning),
        Self::Direct,
        Self::PATCH,
        Self::LEARNING,
    ];

    /// Other people's switches.
    pub const PEERS: [Self; 5] = [
        Self::Switch(SwitchKind::Testpmd, Wiring::Pairs),
        Self::Switch(SwitchKind::OvsDpdk, Wiring::Pairs),
        Self::Switch(SwitchKind::OvsDpdk, Wiring::Learning),
        Self::Switch(SwitchKind::Vpp, Wiring::Learning),
        Self::Switch(SwitchKind::Snabb, Wiring::Pairs),
    ];

    /// The word for it on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Veth => "veth",
            Self::Bridge => "bridge",
            Self::Xdp(Wiring::Pairs) => "xdp/pairs",
            Self::Xdp(Wiring::Learning) => "xdp/learning",
            Self::Direct => "direct",
            Self::Switch(SwitchKind::Dray, Wiring::Pairs) => "switch/patch",
            Self::Switch(SwitchKind::Dray, Wiring::Learning) => "switch/learning",
            Self::Switch(SwitchKind::Testpmd, Wiring::Pairs) => "testpmd/pairs",
            Self::Switch(SwitchKind::Testpmd, Wiring::Learning) => "testpmd/learning",
            Self::Switch(SwitchKind::OvsDpdk, Wiring::Pairs) => "ovs-dpdk/pairs",
            Self::Switch(SwitchKind::OvsDpdk, Wiring::Learning) => "ovs-dpdk/learning",
            Self::Switch(SwitchKind::Vpp, Wiring::Pairs) => "vpp/pairs",
            Self::Switch(SwitchKind::Vpp, Wiring::Learning) => "vpp/learning",
            Self::Switch(SwitchKind::Snabb, Wiring::Pairs) => "snabb/pairs",
            Self::Switch(SwitchKind::Snabb, Wiring::Learning) => "snabb/learning",
        }
    }

    /// Whether its ends share memory, without the kernel between them.
    pub fn shares_memory(self) -> bool {
        matches!(self, Self::Direct | Self::Switch(..))
    }

    /// Whether it is wired by a switch in user space, which polls.
    pub fn has_switch(self) -> bool {
        matches!(self, Self::Switch(..))
    }

    /// Whether somebody has to learn who is where before frames find their way.
    pub fn learns(self) -> bool {
        matches!(self, Self::Xdp(Wiring::Learning) | Self::Switch(_, Wiring::Learning))
    }

    /// Its switch and what that does, where it has one.
    pub fn switch(self) -> Option<(SwitchKind, Wiring)> {
        match self {
            Self::Switch(kind, wiring) => Some((kind, wiring)),
            _ => None,
        }
    }
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a program at the end of a link opens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attachment {
    /// A network interface.
    Interface(String),
    /// A vhost-user socket, as the driver, who connects.
    Driver(PathBuf),
    /// A vhost-user socket, as the device, who listens.
    Device(PathBuf),
}

/// A link's end in one container.
#[derive(Clone, Debug)]
pub struct End {
    /// The container.
    pub container: ContainerId,
    /// What the program there opens.
    pub attachment: Attachment,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// The destination of frames sent here: [`mac`](Self::mac) where the link was made
    /// [`addressed`](LinkOptions::addressed), otherwise a station's behind the interface.
    pub station: MacAddr,
    /// Its IPv4 address, where the link was made [`addressed`](LinkOptions::addressed).
    pub ip: Ipv4Addr,
}

/// Two containers, joined.
#[derive(Clone, Debug)]
pub struct Link {
    /// The ends, in the order in which they were asked for.
    pub ends: [End; 2],
}

/// What an XDP link consists of besides interfaces.
pub(crate) struct XdpLink {
    _redirect: Redirect,
    _passes: Vec<Pass>,
}

/// What a link shall be like.
#[derive(Clone, Copy, Debug)]
pub struct LinkOptions {
    /// The MTU of its interfaces, in bytes.
    pub mtu: u32,
    /// Give the ends IPv4 addresses and tell each the other's.
    ///
    /// Without, frames go to a station that the program behind the interface stands for, as a
    /// network function does. The kernel gives every frame to its own IP layer as well, which drops
    /// at once what is for another station; for one of its own it would look up a route in vain,
    /// at a third of the whole cost of a frame.
    pub addressed: bool,
    /// The CPU of its switch, where it has one.
    pub switch_cpu: usize,
}

impl End {
    fn name(&self) -> &str {
        self.interface().expect("the kernel's links have interfaces")
    }

    /// The interface's name, where it is one.
    pub fn interface(&self) -> Option<&str> {
        match &self.attachment {
            Attachment::Interface(name) => Some(name),
            _ => None,
        }
    }

    /// The vhost-user socket, where it is one.
    pub fn socket(&self) -> Option<&Path> {
        match &self.attachment {
            Attachment::Interface(_) => None,
            Attachment::Driver(path) | Attachment::Device(path) => Some(path),
        }
    }
}

impl Link {
    /// The addresses in frames from the first end to the second.
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

impl Lab {
    /// Joins two containers.
    pub fn link(
        &mut self,
        kind: LinkKind,
        from: ContainerId,
        to: ContainerId,
        options: LinkOptions,
    ) -> Result<Link, LabError> {
        let number = self.next_link();
        if kind.shares_memory() {
            return self.link_memory(kind, number, [from, to], options);
        }
        let new_end = |lab: &mut Self, container, side| {
            lab.new_end(container, number, side, options.addressed)
        };
        let ends = [new_end(self, from, 1), new_end(self, to, 2)];
        let doing = |what: &str| LabError::doing(format!("{kind} link {number}: {what}"));
        let (host, [a, b]) = (self.host(), [&ends[0], &ends[1]]);
        let mut xdp = None;
        match kind {
            LinkKind::Veth => {
                let netlink = self[a.container].netlink();
                netlink
                    .create_veth(self.veth_end(a), self.veth_end(b), options.mtu)
                    .map_err(doing("veth pair"))?;
            }
            LinkKind::Bridge => {
                let netlink = host.netlink();
                let bridge = format!("br{number}");
                netlink.create_bridge(&bridge).map_err(doing("bridge"))?;
                let bridge = netlink.interface(&bridge).map_err(doing("bridge"))?.index;
                let ports = self.create_ports(number, [a, b], options)?;
                for (port, end) in ports.into_iter().zip([a, b]) {
                    netlink.set_master(port, bridge).map_err(doing("bridge port"))?;
                    netlink.add_forwarding(port, end.station).map_err(doing("forwarding"))?;
                }
                netlink.set_up(bridge).map_err(doing("bridge"))?;
            }
            LinkKind::Xdp(wiring) => {
                let ports = self.create_ports(number, [a, b], options)?;
                xdp = Some(self.redirect(wiring, ports, [a, b]).map_err(doing("XDP program"))?);
            }
            LinkKind::Direct | LinkKind::Switch(..) => unreachable!("they share memory"),
        }
        for (end, peer) in [(a, b), (b, a)] {
            let netlink = self[end.container].netlink();
            let index = netlink.interface(end.name()).map_err(doing("interface"))?.index;
            netlink.set_up(index).map_err(doing("set up"))?;
            if options.addressed {
                netlink.add_address(index, end.ip, PREFIX_LEN).map_err(doing("address"))?;
                netlink.add_neighbour(index, peer.ip, peer.mac).map_err(doing("neighbour"))?;
            }
        }
        // An interface that is set up drops everything, uncounted, until the kernel has noticed that
        // its other end is up too.
        let deadline = Instant::now() + Duration::from_secs(5);
        for end in [a, b] {
            while !self.interface(end)?.is_running {
                if Instant::now() > deadline {
                    let source = io::Error::from(io::ErrorKind::TimedOut);
                    return Err(doing("to carry frames")(source));
                }
                self.cancel().check()?;
                thread::sleep(Duration::from_millis(1));
            }
        }
        self.hold(xdp);
        Ok(Link { ends })
    }

    /// Makes a veth pair to each end; the indices of those on the "host".
    fn create_ports(
        &self,
        number: u32,
        ends: [&End; 2],
        options: LinkOptions,
    ) -> Result<[u32; 2], LabError> {
        let (host, mut ports) = (self.host(), [0; 2]);
        for ((side, end), index) in (1..).zip(ends).zip(&mut ports) {
            let name = format!("v{number}.{side}");
            let doing = |what| LabError::doing(format!("link {number}: {what} {name}"));
            let port =
                VethEnd { namespace: host.namespace(), name: &name, mac: port_mac(number, side) };
            let netlink = host.netlink();
            netlink
                .create_veth(port, self.veth_end(end), options.mtu)
                .map_err(doing("veth pair"))?;
            *index = netlink.interface(&name).map_err(doing("interface"))?.index;
            netlink.set_up(*index).map_err(doing("set up"))?;
        }
        Ok(ports)
    }

    /// Has an XDP program pass on frames among `ports` of the "host", which lead to `ends`.
    fn redirect(&self, wiring: Wiring, ports: [u32; 2], ends: [&End; 2]) -> io::Result<XdpLink> {
        const MODES: [Mode; 2] = [Mode::Native, Mode::Generic];
        const AGE: Duration = Duration::from_secs(300);
        let redirect = self.host().namespace().enter(|| {
            let redirect = match wiring {
                Wiring::Pairs => Redirect::pair(ports, &MODES),
                Wiring::Learning => Redirect::learning(&ports, &MODES, AGE),
            };
            redirect.map_err(io::Error::other)
        })?;
        let mut passes = Vec::new();
        for end in ends {
            let index = self[end.container].netlink().interface(end.name())?.index;
            passes.push(self[end.container].namespace().enter(|| {
                // A sum that is left to hardware, which a veth has not, is lost on the way.
                ethtool::compute_checksums(end.name())?;
                Pass::attach(index).map_err(io::Error::other)
            })?);
        }
        Ok(XdpLink { _redirect: redirect, _passes: passes })
    }

    /// Joins two containers by memory that they share with each other or with a switch.
    fn link_memory(
        &mut self,
        kind: LinkKind,
        number: u32,
        containers: [ContainerId; 2],
        options: LinkOptions,
    ) -> Result<Link, LabError> {
        let dir = self.dir()?;
        let sockets = [1, 2].map(|side| dir.sockets().join(format!("link{number}.{side}")));
        let [a, b] = sockets.clone();
        let attachments = match kind.switch() {
            None => [Attachment::Driver(a.clone()), Attachment::Device(a)],
            Some((switch, wiring)) => {
                self.start_switch(switch, wiring, options.switch_cpu, &sockets)?;
                [Attachment::Driver(a), Attachment::Driver(b)]
            }
        };
        let mut sides = (1..).zip(attachments.into_iter().zip(containers));
        let mut end = || {
            let (side, (attachment, container)) = sides.next().expect("two sides");
            End {
                container,
                attachment,
                mac: mac(number, side),
                station: station(number, side),
                ip: ip(number, side),
            }
        };
        Ok(Link { ends: [end(), end()] })
    }

    /// The kernel's counters of an end's interface.
    pub fn counters(&self, end: &End) -> Result<InterfaceCounters, LabError> {
        Ok(self.interface(end)?.counters)
    }

    fn interface(&self, end: &End) -> Result<Interface, LabError> {
        let container = &self[end.container];
        let doing = LabError::doing(format!("{} {}", container.name(), end.name()));
        container.netlink().interface(end.name()).map_err(doing)
    }

    fn new_end(&mut self, container: ContainerId, link: u32, side: u32, addressed: bool) -> End {
        let interface = format!("eth{}", self[container].interfaces);
        self[container].interfaces += 1;
        let mac = mac(link, side);
        End {
            container,
            attachment: Attachment::Interface(interface),
            mac,
            station: if addressed { mac } else { station(link, side) },
            ip: ip(link, side),
        }
    }

    fn veth_end<'a>(&'a self, end: &'a End) -> VethEnd<'a> {
        VethEnd { namespace: self[end.container].namespace(), name: end.name(), mac: end.mac }
    }
}

/// Each link is a network of two hosts out of 198.18.0.0/15, which is set aside for benchmarks
/// (RFC 2544).
const PREFIX_LEN: u8 = 30;
const FIRST_NETWORK: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
/// How many such networks there are.
pub(crate) const LINKS_MAX: u32 = 1 << (PREFIX_LEN - 15);

fn ip(link: u32, side: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST_NETWORK.to_bits() + link * 4 + side)
}

/// The address of a link's interface in a container; `side` is 1 or 2.
fn mac(link: u32, side: u32) -> MacAddr {
    MacAddr::local(u64::from(link << 8 | side))
}

/// The address of the station behind that interface.
fn station(link: u32, side: u32) -> MacAddr {
    mac(link, side | 0x40)
}

/// The address of the bridge port that leads to that interface.
fn port_mac(link: u32, side: u32) -> MacAddr {
    mac(link, side | 0x80)
}
