//! Sets of links and techniques that several experiments measure.

use dray_lab::LinkKind;

use crate::endpoint::Endpoint;
use crate::technique::Technique;

/// Links of the kernel.
pub(super) const KERNEL: &[LinkKind] = &[LinkKind::VETH, LinkKind::BRIDGE];

/// Links between containers on one host that share a segment, as `claassen2016` compares them.
pub(super) const LOCAL: &[LinkKind] =
    &[LinkKind::BRIDGE, LinkKind::MACVLAN_BRIDGE, LinkKind::IPVLAN_L3];

/// Links to containers on another host, as `claassen2016` compares them, and the overlay that it
/// leaves to others.
pub(super) const SWITCHED: &[LinkKind] = {
    let [bridge, macvlan, _, ipvlan_l3] = LinkKind::HOSTS;
    &[bridge, macvlan, ipvlan_l3, LinkKind::VXLAN]
};

/// User-space switches, ours first, each with its own way of forwarding.
pub(super) fn switches() -> Vec<LinkKind> {
    [&[LinkKind::PATCH, LinkKind::LEARNING][..], &LinkKind::PEERS].concat()
}

/// Techniques of netmap, which are measured only if they are named.
pub(super) fn netmap() -> Vec<Technique> {
    Technique::by_link(&LinkKind::NETMAP, &Endpoint::OF_NETMAP)
}

/// Techniques of virtual functions, which are measured only if they are named: they need a card.
pub(super) fn functions() -> Vec<Technique> {
    let endpoints = [
        Endpoint::RAW_MMSG,
        Endpoint::AFXDP,
        Endpoint::AFXDP_DEFERRED,
        Endpoint::DPDK_AFXDP,
        Endpoint::DPDK_FUNCTION,
    ];
    Technique::by_link(&[LinkKind::SRIOV], &endpoints)
}

/// DPDK through the kernel's vhost-net, which is measured only if it is named: few hosts have that.
pub(super) fn vhost_net() -> Vec<Technique> {
    Technique::by_link(KERNEL, &[Endpoint::TAP, Endpoint::DPDK_VHOST_NET])
}

/// Our endpoints over every link that shares memory.
pub(super) fn shared_memory() -> Vec<Technique> {
    let links = [vec![LinkKind::DIRECT], switches()].concat();
    Technique::by_link(&links, &Endpoint::USUAL_MEMORY)
}
