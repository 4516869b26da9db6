//! Kinds of links.

use std::fmt;

use dray_bpf::Mode;
use netlink_packet_route::link::{IpVlanFlags, IpVlanMode, MacVlanMode, NetkitMode};

use super::wire::{Filter, Tunnel, Uplink, Wire};
use crate::Runtime;
use crate::peer::{Datapath, Protocol, SwitchKind, Wiring};
use crate::runtime::network::Driver;

/// A kind of link. A constant has all of its properties; the file named after its wire creates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkKind {
    /// Name on the command line and in results.
    pub name: &'static str,
    /// Description in a few words.
    pub about: &'static str,
    /// True if addresses must be learned before frames find their way.
    pub learns: bool,
    /// Destinations whose frames it carries.
    pub carries: Carries,
    /// Places where XDP programs of AF_XDP sockets at its ends can run.
    pub xdp: &'static [Mode],
    /// True if it isolates containers of one host: a frame from one to another leaves the host or
    /// is dropped.
    pub isolates: bool,
    pub(super) wire: Wire,
}

/// Destinations whose frames a link carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// Any station behind its interfaces.
    Any,
    /// Only its interfaces, by their Ethernet addresses.
    OwnMac,
    /// Only its interfaces, by their IP addresses: they share one Ethernet address.
    OwnIp,
}

/// Object that a program opens at an end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndKind {
    /// Network interface.
    Interface,
    /// Device of a TAP or macvtap interface, as virtual machines open it.
    Machine,
    /// Memory shared by this protocol.
    Memory(Protocol),
    /// Unix datagram socket, without any network.
    UnixSocket,
    /// Port of netmap's kernel module, in the network of no container.
    Netmap,
    /// PCI function of a network card, for a driver in user space.
    Function,
}

/// A veth accepts redirected frames only if an XDP program is attached in its driver, which holds
/// one program.
const IN_THE_DRIVER: &[Mode] = &[Mode::Native];

impl LinkKind {
    /// A veth pair with one end in each container.
    pub const VETH: Self = Self { about: "a veth pair", ..Self::of("veth", Wire::Veth) };

    /// A Linux bridge on the "host", with a veth pair to each container.
    pub const BRIDGE: Self = Self {
        about: "a Linux bridge, and a veth pair to each container",
        ..Self::of("bridge", Wire::Bridge)
    };

    /// A Linux bridge whose frames pass rules, written by different programs.
    pub const FILTERED: [Self; 2] = [
        Self {
            about: "a bridge whose frames pass Docker's rules and connection tracking",
            ..Self::of("bridge-iptables", Wire::FilteredBridge(Filter::Iptables))
        },
        Self {
            about: "the same rules, written by nft",
            ..Self::of("bridge-nftables", Wire::FilteredBridge(Filter::Nftables))
        },
    ];

    /// macvlan in bridge mode.
    pub const MACVLAN_BRIDGE: Self = Self {
        about: "interfaces on one parent, which forwards frames between them",
        ..Self::macvlan("macvlan/bridge", MacVlanMode::Bridge)
    };

    /// macvlan in passthru mode.
    pub const MACVLAN_PASSTHRU: Self = Self {
        about: "a parent for each container, and a wire between the parents",
        ..Self::macvlan("macvlan/passthru", MacVlanMode::Passthrough)
    };

    /// macvlan in private mode.
    pub const MACVLAN_PRIVATE: Self = Self {
        about: "interfaces on one parent, which isolates them",
        ..Self::macvlan("macvlan/private", MacVlanMode::Private)
    };

    /// macvlan in VEPA mode.
    pub const MACVLAN_VEPA: Self = Self {
        about: "interfaces on one parent, which sends all frames to the external switch",
        ..Self::macvlan("macvlan/vepa", MacVlanMode::Vepa)
    };

    /// macvlan in VEPA mode, with an external switch that sends frames back (802.1Qbg).
    pub const MACVLAN_HAIRPIN: Self = Self {
        about: "as macvlan/vepa, and an external switch that sends frames back",
        isolates: false,
        ..Self::of_macvlan("macvlan/hairpin", Wire::MacvlanHairpin)
    };

    /// macvtap in bridge mode.
    pub const MACVTAP: Self = Self {
        about: "macvlan/bridge for virtual machines, through a character device",
        carries: Carries::OwnMac,
        xdp: &[],
        ..Self::of("macvtap", Wire::Macvtap)
    };

    /// ipvlan in each mode with each flag.
    pub const IPVLAN: [Self; 9] = {
        use IpVlanMode::{L2, L3, L3S};
        /// A frame from one child to another is passed on.
        const BRIDGE: IpVlanFlags = IpVlanFlags::empty();
        const PASSES: &str = "interfaces with one MAC address, told apart by IP address";
        const PRIVATE: &str = "the same, isolated";
        const VEPA: &str = "the same, all frames sent to the external network";
        [
            Self::ipvlan("ipvlan/l2", PASSES, L2, BRIDGE),
            Self::ipvlan("ipvlan/l2-private", PRIVATE, L2, IpVlanFlags::Private),
            Self::ipvlan("ipvlan/l2-vepa", VEPA, L2, IpVlanFlags::Vepa),
            Self::ipvlan("ipvlan/l3", "the same, routed by the host", L3, BRIDGE),
            Self::ipvlan("ipvlan/l3-private", PRIVATE, L3, IpVlanFlags::Private),
            Self::ipvlan("ipvlan/l3-vepa", VEPA, L3, IpVlanFlags::Vepa),
            Self::ipvlan("ipvlan/l3s", "routed, through the host's netfilter", L3S, BRIDGE),
            Self::ipvlan("ipvlan/l3s-private", PRIVATE, L3S, IpVlanFlags::Private),
            Self::ipvlan("ipvlan/l3s-vepa", VEPA, L3S, IpVlanFlags::Vepa),
        ]
    };

    /// Virtual functions of one network card.
    pub const SRIOV: Self = Self {
        about: "virtual functions of one network card, which --parent names",
        carries: Carries::OwnMac,
        ..Self::of("sriov", Wire::Sriov)
    };

    /// ipvlan in L3 mode with interfaces that reach each other.
    pub const IPVLAN_L3: Self = Self::IPVLAN[3];

    /// Containers on two hosts whose network cards are joined by a cable, without a tunnel.
    pub const HOSTS: [Self; 4] = {
        const MAC: Carries = Carries::OwnMac;
        const IP: Carries = Carries::OwnIp;
        const GENERIC: &[Mode] = &[Mode::Generic];
        [
            Self {
                about: "two hosts with a bridge each, joined by a cable",
                ..Self::of("hosts/bridge", Wire::Hosts(Uplink::Bridge))
            },
            Self {
                about: "macvlan interfaces on the cards of two hosts",
                carries: MAC,
                xdp: GENERIC,
                ..Self::of("hosts/macvlan", Wire::Hosts(Uplink::Macvlan))
            },
            Self {
                about: "ipvlan interfaces on the cards of two hosts",
                carries: IP,
                xdp: GENERIC,
                ..Self::of("hosts/ipvlan-l2", Wire::Hosts(Uplink::Ipvlan(IpVlanMode::L2)))
            },
            Self {
                about: "the same, routed by the hosts",
                carries: IP,
                // No mode of XDP, as with ipvlan in L3 mode on one host.
                xdp: &[],
                ..Self::of("hosts/ipvlan-l3", Wire::Hosts(Uplink::Ipvlan(IpVlanMode::L3)))
            },
        ]
    };

    /// Two hosts with a bridge each, joined by a cable.
    pub const HOSTS_BRIDGE: Self = Self::HOSTS[0];

    /// A VXLAN tunnel between two hosts, each with a bridge to its containers.
    pub const VXLAN: Self = Self::TUNNELS[0];

    /// Tunnels of the kernel between two hosts.
    pub const TUNNELS: [Self; 5] = [
        Self::tunnel("vxlan", "two hosts with a bridge each, joined by VXLAN", Tunnel::Vxlan),
        Self::tunnel("geneve", "two hosts with a bridge each, joined by Geneve", Tunnel::Geneve),
        Self::tunnel("gre", "two hosts that route IP packets through GRE", Tunnel::Gre),
        Self::tunnel("ipip", "two hosts that route IP packets in IP packets", Tunnel::Ipip),
        Self::tunnel("wireguard", "two hosts that route through WireGuard", Tunnel::Wireguard),
    ];

    /// A netkit pair of Ethernet interfaces.
    pub const NETKIT_L2: Self = Self {
        about: "a netkit pair",
        xdp: &[Mode::Generic],
        ..Self::of("netkit/l2", Wire::Netkit(NetkitMode::L2))
    };

    /// A netkit pair of interfaces without Ethernet addresses.
    pub const NETKIT_L3: Self = Self {
        about: "a netkit pair without MAC addresses",
        xdp: &[Mode::Generic],
        ..Self::of("netkit/l3", Wire::Netkit(NetkitMode::L3))
    };

    /// An XDP program on the "host" that passes frames between veth pairs to two containers.
    pub const XDP_PAIRS: Self = Self {
        about: "an XDP program that forwards frames between two veth pairs",
        xdp: IN_THE_DRIVER,
        ..Self::of("xdp/pairs", Wire::Xdp(Wiring::Pairs))
    };

    /// An XDP program that passes frames among all containers, by addresses that it learns.
    pub const XDP_LEARNING: Self = Self {
        about: "an XDP program that learns addresses, and a veth pair to each container",
        learns: true,
        xdp: IN_THE_DRIVER,
        ..Self::of("xdp/learning", Wire::Xdp(Wiring::Learning))
    };

    /// Open vSwitch with the kernel's datapath.
    pub const OVS_KERNEL: Self = Self {
        about: "Open vSwitch in the kernel, and a veth pair to each container",
        ..Self::of("ovs/kernel", Wire::Ovs(Datapath::Kernel))
    };

    /// Open vSwitch with its user-space datapath, on packet sockets.
    pub const OVS_USERSPACE: Self = Self {
        about: "Open vSwitch in user space, packet sockets on a veth pair to each container",
        ..Self::of("ovs/userspace", Wire::Ovs(Datapath::Userspace))
    };

    /// Open vSwitch with its user-space datapath, on AF_XDP sockets.
    pub const OVS_AFXDP: Self = Self {
        about: "the same, AF_XDP sockets in place of packet sockets",
        ..Self::of("ovs/afxdp", Wire::Ovs(Datapath::Afxdp))
    };

    /// Open vSwitch on two hosts, joined by a VXLAN tunnel of its datapath.
    pub const OVS_VXLAN: [Self; 2] = [
        Self {
            about: "Open vSwitch in the kernels of two hosts, joined by its VXLAN",
            ..Self::of("ovs-vxlan/kernel", Wire::OvsVxlan(Datapath::Kernel))
        },
        Self {
            about: "Open vSwitch in user space on two hosts, joined by its VXLAN",
            ..Self::of("ovs-vxlan/userspace", Wire::OvsVxlan(Datapath::Userspace))
        },
    ];

    /// Memory that the first end shares with the second.
    pub const DIRECT: Self = Self {
        about: "memory that one end shares with the other",
        xdp: &[],
        ..Self::of("direct", Wire::Direct)
    };

    /// Unix sockets in a directory that the containers share, without any network.
    pub const UNIX: Self =
        Self { about: "Unix sockets, without a network", ..Self::of("unix", Wire::Unix) };

    /// Our switch, with ports in pairs.
    pub const PATCH: Self = Self {
        about: "our switch, ports in pairs",
        ..Self::switch_of("switch/patch", SwitchKind::Dray, Wiring::Pairs)
    };

    /// Our switch, learning addresses.
    pub const LEARNING: Self = Self {
        about: "our switch, learning addresses",
        ..Self::switch_of("switch/learning", SwitchKind::Dray, Wiring::Learning)
    };

    /// Our switch, with ports in pairs, and a TAP interface in each container.
    pub const TAP_PATCH: Self = Self {
        about: "our switch, ports in pairs, a TAP interface in each container",
        xdp: &[],
        ..Self::of("switch-tap/patch", Wire::SwitchTap(Wiring::Pairs))
    };

    /// Our switch, learning addresses, and a TAP interface in each container.
    pub const TAP_LEARNING: Self = Self {
        about: "our switch, learning addresses, a TAP interface in each container",
        learns: true,
        xdp: &[],
        ..Self::of("switch-tap/learning", Wire::SwitchTap(Wiring::Learning))
    };

    /// Our switch, and containers attached as pods of kind `tap`, whose frames bypass it.
    pub const POD: Self = Self {
        about: "our switch, bypassed by containers that its CNI plugin attaches",
        learns: true,
        carries: Carries::OwnMac,
        xdp: &[],
        ..Self::of("switch-pod", Wire::SwitchPod)
    };

    /// Our switch between plain sockets.
    pub const SWITCH_SOCKETS: [Self; 3] = [Self::POD, Self::TAP_LEARNING, Self::TAP_PATCH];

    /// Our switch on two hosts, joined by its VXLAN ports.
    pub const VXLAN_PATCH: Self = Self {
        about: "our switch on two hosts, joined by its VXLAN ports",
        xdp: &[],
        ..Self::of("switch-vxlan/patch", Wire::SwitchVxlan)
    };

    /// DPDK's testpmd as a switch, with ports in pairs.
    pub const TESTPMD: Self = Self {
        about: "DPDK's testpmd, ports in pairs",
        ..Self::switch_of("testpmd/pairs", SwitchKind::Testpmd, Wiring::Pairs)
    };

    /// Open vSwitch with its user-space datapath on DPDK, with ports in pairs.
    pub const OVS_DPDK_PAIRS: Self = Self {
        about: "Open vSwitch with DPDK, ports in pairs",
        ..Self::switch_of("ovs-dpdk/pairs", SwitchKind::OvsDpdk, Wiring::Pairs)
    };

    /// Open vSwitch with its user-space datapath on DPDK, learning addresses.
    pub const OVS_DPDK_LEARNING: Self = Self {
        about: "Open vSwitch with DPDK, learning addresses",
        ..Self::switch_of("ovs-dpdk/learning", SwitchKind::OvsDpdk, Wiring::Learning)
    };

    /// FD.io's Vector Packet Processor, learning addresses.
    pub const VPP: Self = Self {
        about: "FD.io's VPP, learning addresses",
        ..Self::switch_of("vpp/learning", SwitchKind::Vpp, Wiring::Learning)
    };

    /// FD.io's Vector Packet Processor over memif, learning addresses.
    pub const VPP_MEMIF: Self = Self {
        about: "FD.io's VPP by memif, learning addresses",
        learns: true,
        xdp: &[],
        ..Self::of("vpp/memif", Wire::Switch(SwitchKind::Vpp, Wiring::Learning, Protocol::Memif))
    };

    /// Snabb, with ports in pairs.
    pub const SNABB: Self = Self {
        about: "Snabb, ports in pairs",
        ..Self::switch_of("snabb/pairs", SwitchKind::Snabb, Wiring::Pairs)
    };

    /// Ports of a VALE switch, which netmap's kernel module makes.
    pub const VALE: Self = Self {
        about: "netmap's VALE switch, a port for each container",
        learns: true,
        xdp: &[],
        ..Self::of("vale", Wire::Netmap(Wiring::Learning))
    };

    /// A pipe of netmap's kernel module.
    pub const NETMAP_PIPE: Self = Self {
        about: "a netmap pipe, one end in each container",
        xdp: &[],
        ..Self::of("netmap-pipe", Wire::Netmap(Wiring::Pairs))
    };

    /// Links of netmap, which is not part of Linux.
    pub const NETMAP: [Self; 2] = [Self::VALE, Self::NETMAP_PIPE];

    /// Every kind except netmap's, our switch between plain sockets or hosts, and third-party
    /// switches that share memory.
    pub const ALL: [Self; 42] = {
        let [iptables, nftables] = Self::FILTERED;
        let [hosts_bridge, hosts_macvlan, hosts_ipvlan_l2, hosts_ipvlan_l3] = Self::HOSTS;
        let [ovs_vxlan_kernel, ovs_vxlan_userspace] = Self::OVS_VXLAN;
        let [vxlan, geneve, gre, ipip, wireguard] = Self::TUNNELS;
        let [l2, l2_private, l2_vepa, l3, l3_private, l3_vepa, l3s, l3s_private, l3s_vepa] =
            Self::IPVLAN;
        [
            Self::VETH,
            Self::BRIDGE,
            iptables,
            nftables,
            Self::MACVLAN_BRIDGE,
            Self::MACVLAN_PASSTHRU,
            Self::MACVLAN_PRIVATE,
            Self::MACVLAN_VEPA,
            Self::MACVLAN_HAIRPIN,
            Self::MACVTAP,
            l2,
            l2_private,
            l2_vepa,
            l3,
            l3_private,
            l3_vepa,
            l3s,
            l3s_private,
            l3s_vepa,
            Self::SRIOV,
            hosts_bridge,
            hosts_macvlan,
            hosts_ipvlan_l2,
            hosts_ipvlan_l3,
            vxlan,
            geneve,
            gre,
            ipip,
            wireguard,
            Self::NETKIT_L2,
            Self::NETKIT_L3,
            Self::XDP_PAIRS,
            Self::XDP_LEARNING,
            Self::OVS_KERNEL,
            Self::OVS_USERSPACE,
            Self::OVS_AFXDP,
            ovs_vxlan_kernel,
            ovs_vxlan_userspace,
            Self::UNIX,
            Self::DIRECT,
            Self::PATCH,
            Self::LEARNING,
        ]
    };

    /// Third-party switches that share memory.
    pub const PEERS: [Self; 6] = [
        Self::TESTPMD,
        Self::OVS_DPDK_PAIRS,
        Self::OVS_DPDK_LEARNING,
        Self::VPP,
        Self::VPP_MEMIF,
        Self::SNABB,
    ];

    /// Networks that container engines make themselves.
    pub const OF_ENGINES: [Self; 11] = {
        use Driver::{Bridge, FilteredBridge, IpvlanL2, IpvlanL3, Macvlan};
        use Runtime::{Docker, Lxc, Podman};
        [
            Self::of_engine("docker/bridge", "Docker's bridge network", Docker, Bridge),
            Self::of_engine(
                "docker/bridge-iptables",
                "the same, with its rules",
                Docker,
                FilteredBridge,
            ),
            Self::of_engine("docker/macvlan", "Docker's macvlan network", Docker, Macvlan),
            Self::of_engine("docker/ipvlan-l2", "Docker's ipvlan network", Docker, IpvlanL2),
            Self::of_engine("docker/ipvlan-l3", "the same in L3 mode", Docker, IpvlanL3),
            Self::of_engine("podman/bridge", "Podman's bridge network", Podman, Bridge),
            Self::of_engine("podman/macvlan", "Podman's macvlan network", Podman, Macvlan),
            Self::of_engine("podman/ipvlan-l2", "Podman's ipvlan network", Podman, IpvlanL2),
            Self::of_engine("lxc/bridge", "LXC's veth interfaces at a bridge", Lxc, Bridge),
            Self::of_engine("lxc/macvlan", "LXC's macvlan interfaces", Lxc, Macvlan),
            Self::of_engine("lxc/ipvlan-l3", "LXC's ipvlan interfaces", Lxc, IpvlanL3),
        ]
    };

    /// Every kind.
    pub fn every() -> Vec<Self> {
        [
            &Self::ALL[..],
            &Self::SWITCH_SOCKETS,
            &[Self::VXLAN_PATCH],
            &Self::NETMAP,
            &Self::PEERS,
            &Self::OF_ENGINES,
        ]
        .concat()
    }

    /// Returns true if `word` is the kind's name or its first part, which several kinds may share.
    pub fn is_called(self, word: &str) -> bool {
        self.name == word || self.name.split('/').next() == Some(word)
    }

    /// Default properties of a kind; a constant overrides those that differ.
    const fn of(name: &'static str, wire: Wire) -> Self {
        Self {
            name,
            about: "",
            learns: false,
            carries: Carries::Any,
            xdp: &[Mode::Native, Mode::Generic],
            isolates: false,
            wire,
        }
    }

    const fn macvlan(name: &'static str, mode: MacVlanMode) -> Self {
        Self {
            isolates: matches!(mode, MacVlanMode::Private | MacVlanMode::Vepa),
            ..Self::of_macvlan(name, Wire::Macvlan(mode))
        }
    }

    const fn of_macvlan(name: &'static str, wire: Wire) -> Self {
        Self { carries: Carries::OwnMac, xdp: &[Mode::Generic], ..Self::of(name, wire) }
    }

    const fn tunnel(name: &'static str, about: &'static str, tunnel: Tunnel) -> Self {
        let carries = if tunnel.carries_frames() { Carries::Any } else { Carries::OwnIp };
        Self { about, carries, ..Self::of(name, Wire::Tunnel(tunnel)) }
    }

    const fn ipvlan(
        name: &'static str,
        about: &'static str,
        mode: IpVlanMode,
        flags: IpVlanFlags,
    ) -> Self {
        Self {
            about,
            carries: Carries::OwnIp,
            // AF_XDP sockets do not tell the kernel a frame's protocol, by which it routes in L3
            // modes.
            xdp: if matches!(mode, IpVlanMode::L2) { &[Mode::Generic] } else { &[] },
            isolates: !flags.is_empty(),
            ..Self::of(name, Wire::Ipvlan(mode, flags))
        }
    }

    const fn of_engine(
        name: &'static str,
        about: &'static str,
        runtime: Runtime,
        driver: Driver,
    ) -> Self {
        let (carries, xdp): (_, &[Mode]) = match driver {
            Driver::Bridge | Driver::FilteredBridge => {
                (Carries::OwnMac, &[Mode::Native, Mode::Generic])
            }
            Driver::Macvlan => (Carries::OwnMac, &[Mode::Generic]),
            Driver::IpvlanL2 => (Carries::OwnIp, &[Mode::Generic]),
            // No mode of XDP, as with ipvlan in L3 mode.
            Driver::IpvlanL3 => (Carries::OwnIp, &[]),
        };
        Self { about, carries, xdp, ..Self::of(name, Wire::Engine(runtime, driver)) }
    }

    const fn switch_of(name: &'static str, switch: SwitchKind, wiring: Wiring) -> Self {
        let learns = matches!(wiring, Wiring::Learning);
        let wire = Wire::Switch(switch, wiring, Protocol::VhostUser);
        Self { learns, xdp: &[], ..Self::of(name, wire) }
    }

    /// Returns what programs open at the ends.
    pub fn end(self) -> EndKind {
        match self.wire {
            Wire::Macvtap => EndKind::Machine,
            Wire::Direct | Wire::SwitchVxlan => EndKind::Memory(Protocol::VhostUser),
            Wire::Switch(_, _, protocol) => EndKind::Memory(protocol),
            Wire::Unix => EndKind::UnixSocket,
            Wire::Netmap(_) => EndKind::Netmap,
            _ => EndKind::Interface,
        }
    }

    /// Returns true if programs that open `end` can be at the ends. A virtual machine can also be
    /// attached to some links with interfaces, and a driver in user space takes the place of a
    /// virtual function's interface.
    pub fn takes(self, end: EndKind) -> bool {
        use Wire::{Bridge, Hosts, Ovs, OvsVxlan, Sriov, Tunnel, Veth, Xdp};
        match end {
            EndKind::Function => self.wire == Sriov,
            EndKind::Machine if self.carries == Carries::Any => {
                let kinds = matches!(self.wire, Veth | Bridge | Hosts(_) | Tunnel(_) | Xdp(_));
                kinds || matches!(self.wire, Ovs(_) | OvsVxlan(_))
            }
            _ => end == self.end(),
        }
    }

    /// Returns true if the ends share memory, without the kernel between them.
    pub fn shares_memory(self) -> bool {
        matches!(self.end(), EndKind::Memory(_))
    }

    /// Returns true if the ends are interfaces.
    pub fn has_interfaces(self) -> bool {
        matches!(self.end(), EndKind::Interface | EndKind::Machine)
    }

    /// Returns true if more than two ends can share one segment and all reach each other, unless
    /// the kind [isolates](Self::isolates) them.
    pub fn joins_many(self) -> bool {
        match self.wire {
            Wire::Bridge
            | Wire::FilteredBridge(_)
            | Wire::Ipvlan(..)
            | Wire::MacvlanHairpin
            | Wire::Ovs(_)
            | Wire::OvsVxlan(_) => true,
            // Routes lead to the other end of each link.
            Wire::Hosts(_) | Wire::Tunnel(_) => !self.is_routed(),
            Wire::Macvtap | Wire::Sriov | Wire::SwitchPod | Wire::Engine(..) => true,
            Wire::Macvlan(mode) => mode != MacVlanMode::Passthrough,
            Wire::Xdp(wiring)
            | Wire::Switch(_, wiring, _)
            | Wire::SwitchTap(wiring)
            | Wire::Netmap(wiring) => wiring == Wiring::Learning,
            Wire::Veth | Wire::Netkit(_) | Wire::Direct | Wire::Unix | Wire::SwitchVxlan => false,
        }
    }

    /// Returns true if nothing lies between the two ends.
    pub fn is_direct(self) -> bool {
        let pipe = Wire::Netmap(Wiring::Pairs);
        matches!(self.wire, Wire::Veth | Wire::Netkit(_) | Wire::Direct | Wire::Unix)
            || self.wire == pipe
    }

    /// Runtime whose engine makes the link itself, if any; it joins only containers of that
    /// runtime.
    pub fn runtime(self) -> Option<Runtime> {
        self.engine().map(|(runtime, _)| runtime)
    }

    /// Runtime and driver of a network made by an engine.
    pub(crate) fn engine(self) -> Option<(Runtime, Driver)> {
        match self.wire {
            Wire::Engine(runtime, driver) => Some((runtime, driver)),
            _ => None,
        }
    }

    /// Returns true if the ends of each link are on two hosts.
    pub fn is_between_hosts(self) -> bool {
        matches!(
            self.wire,
            Wire::Hosts(_) | Wire::Tunnel(_) | Wire::SwitchVxlan | Wire::OvsVxlan(_)
        )
    }

    /// Returns true if hosts route packets to addresses that the link gives to its ends.
    pub fn is_routed(self) -> bool {
        match self.wire {
            Wire::Hosts(uplink) => uplink.is_routed(),
            Wire::Tunnel(tunnel) => !tunnel.carries_frames(),
            _ => false,
        }
    }

    /// Returns true if the link needs a network card of the machine, which the user has to name.
    pub fn needs_card(self) -> bool {
        self.wire == Wire::Sriov
    }

    /// Returns true if the link needs a running switch program; a lab has at most one.
    pub fn has_program(self) -> bool {
        matches!(
            self.wire,
            Wire::Switch(..)
                | Wire::SwitchTap(_)
                | Wire::SwitchPod
                | Wire::SwitchVxlan
                | Wire::Ovs(_)
                | Wire::OvsVxlan(_)
        )
    }

    /// Returns true if one switch can have several segments of the link.
    pub fn has_segments(self) -> bool {
        matches!(self.wire, Wire::Switch(..))
    }

    /// Returns true if the kernel forwards most frames instead of the link's switch.
    pub fn is_bypassed(self) -> bool {
        self.wire == Wire::SwitchPod
    }

    /// The link's switch in user space, if any, which needs a CPU.
    pub fn switch(self) -> Option<SwitchKind> {
        match self.wire {
            Wire::Switch(switch, ..) => Some(switch),
            Wire::SwitchTap(_) | Wire::SwitchPod | Wire::SwitchVxlan => Some(SwitchKind::Dray),
            Wire::Ovs(datapath) | Wire::OvsVxlan(datapath) if datapath != Datapath::Kernel => {
                Some(SwitchKind::Ovs)
            }
            _ => None,
        }
    }
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_kinds_have_distinct_names_and_descriptions() {
        let kinds = LinkKind::every();
        for (number, kind) in kinds.iter().enumerate() {
            assert!(!kind.about.is_empty(), "{kind}");
            assert_eq!(kinds.iter().position(|other| other.name == kind.name), Some(number));
        }
    }
}
