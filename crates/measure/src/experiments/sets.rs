//! Sets of links and techniques that several experiments measure.

use dray_lab::LinkKind;

use crate::{Endpoint, Technique};

/// The kernel's links.
pub(super) const KERNEL: &[LinkKind] = &[LinkKind::VETH, LinkKind::BRIDGE];

/// Links between containers of one host that share a segment, as `claassen2016` compares them.
pub(super) const LOCAL: &[LinkKind] =
    &[LinkKind::BRIDGE, LinkKind::MACVLAN_BRIDGE, LinkKind::IPVLAN_L3];

/// Links to containers of another host.
pub(super) const SWITCHED: &[LinkKind] = &[LinkKind::VXLAN];

/// The switches in user space, ours first, each in the way that is its own.
pub(super) fn switches() -> Vec<LinkKind> {
    [&[LinkKind::PATCH, LinkKind::LEARNING][..], &LinkKind::PEERS].concat()
}

/// Our endpoints, joined in every way that shares memory.
pub(super) fn shared_memory() -> Vec<Technique> {
    let links = [vec![LinkKind::DIRECT], switches()].concat();
    Technique::by_link(&links, &Endpoint::USUAL_MEMORY)
}
