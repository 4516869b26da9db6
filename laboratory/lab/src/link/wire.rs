//! Mechanisms between the ends of links, as far as kinds of links tell them apart.

use std::net::IpAddr;

use netlink_packet_route::link::{
    InfoData, InfoGeneve, InfoGre, InfoIpTunnel, InfoKind, InfoVxlan, IpVlanFlags, IpVlanMode,
    MacVlanMode, NetkitMode,
};

use super::address::EndId;
use crate::Runtime;
use crate::peer::{Datapath, Protocol, SwitchKind, Wiring};
use crate::runtime::network::Driver;

/// Mechanism between the ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Veth,
    Bridge,
    FilteredBridge(Filter),
    Macvlan(MacVlanMode),
    MacvlanHairpin,
    Ipvlan(IpVlanMode, IpVlanFlags),
    Hosts(Uplink),
    Tunnel(Tunnel),
    Netkit(NetkitMode),
    Xdp(Wiring),
    Ovs(Datapath),
    OvsVxlan(Datapath),
    Macvtap,
    Sriov,
    Direct,
    Unix,
    Netmap(Wiring),
    Switch(SwitchKind, Wiring, Protocol),
    SwitchTap(Wiring),
    SwitchPod,
    SwitchVxlan,
    Engine(Runtime, Driver),
}

/// Way from a container to its host's card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Uplink {
    /// A bridge of which the card is a port.
    Bridge,
    /// A macvlan interface on the card.
    Macvlan,
    /// An ipvlan interface on the card.
    Ipvlan(IpVlanMode),
}

impl Uplink {
    /// Returns true if the hosts route.
    pub(super) fn is_routed(self) -> bool {
        match self {
            Self::Bridge | Self::Macvlan | Self::Ipvlan(IpVlanMode::L2) => false,
            Self::Ipvlan(_) => true,
        }
    }

    /// Item of `dray doctor` that shows whether the kernel has it.
    pub(super) fn item(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::Macvlan => "macvlan",
            Self::Ipvlan(_) => "ipvlan",
        }
    }
}

/// A kind of tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tunnel {
    Vxlan,
    Geneve,
    /// IP in GRE.
    Gre,
    /// IP in IP.
    Ipip,
    Wireguard,
}

/// UDP port assigned to VXLAN (RFC 7348); Linux uses another by default.
const VXLAN_PORT: u16 = 4789;
/// UDP port assigned to Geneve (RFC 8926).
const GENEVE_PORT: u16 = 6081;

impl Tunnel {
    /// Returns true if Ethernet frames pass it, not only IP packets.
    pub(super) const fn carries_frames(self) -> bool {
        matches!(self, Self::Vxlan | Self::Geneve)
    }

    /// Item of `dray doctor` that shows whether the kernel has it.
    pub(crate) const fn item(self) -> &'static str {
        match self {
            Self::Vxlan => "vxlan",
            Self::Geneve => "geneve",
            Self::Gre => "gre",
            Self::Ipip => "ipip",
            Self::Wireguard => "wireguard",
        }
    }

    /// Kernel module, and the option that builds it.
    pub(crate) const fn module(self) -> (&'static str, &'static str) {
        match self {
            Self::Vxlan => ("vxlan", "CONFIG_VXLAN"),
            Self::Geneve => ("geneve", "CONFIG_GENEVE"),
            Self::Gre => ("ip_gre", "CONFIG_NET_IPGRE"),
            Self::Ipip => ("ipip", "CONFIG_NET_IPIP"),
            Self::Wireguard => ("wireguard", "CONFIG_WIREGUARD"),
        }
    }

    /// Kind of the interface, and its settings for a tunnel from one end to another.
    pub(crate) fn settings(
        self,
        number: u32,
        card: u32,
        [here, there]: [EndId; 2],
    ) -> (InfoKind, Option<InfoData>) {
        let [local, remote] = [here.card_ip(), there.card_ip()];
        match self {
            Self::Vxlan => {
                let settings = vec![
                    InfoVxlan::Id(number),
                    InfoVxlan::Link(card),
                    InfoVxlan::Local(local),
                    InfoVxlan::Group(remote),
                    InfoVxlan::Port(VXLAN_PORT),
                ];
                (InfoKind::Vxlan, Some(InfoData::Vxlan(settings)))
            }
            Self::Geneve => {
                let settings = vec![
                    InfoGeneve::Id(number),
                    InfoGeneve::Remote(remote),
                    InfoGeneve::Port(GENEVE_PORT),
                ];
                (InfoKind::Geneve, Some(InfoData::Geneve(settings)))
            }
            Self::Gre => {
                let settings = vec![InfoGre::Local(local), InfoGre::Remote(remote)];
                (InfoKind::GreTun, Some(InfoData::GreTun(settings)))
            }
            Self::Ipip => {
                let [local, remote] = [IpAddr::V4(local), IpAddr::V4(remote)];
                let settings = vec![InfoIpTunnel::Local(local), InfoIpTunnel::Remote(remote)];
                (InfoKind::IpIp, Some(InfoData::IpTunnel(settings)))
            }
            Self::Wireguard => (InfoKind::Wireguard, None),
        }
    }
}

/// Program that writes the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    Iptables,
    Nftables,
}
