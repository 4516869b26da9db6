//! ipvlan: interfaces that share a parent and its Ethernet address, told apart by IP address.

use netlink_packet_route::link::{InfoKind, IpVlanFlags, IpVlanMode};

use super::{Held, Segment};
use crate::LabError;
use crate::netlink::NewInterface;

/// Layer at which ipvlan decides which child a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// In the container, by Ethernet address first, with ARP and broadcasts.
    L2,
    /// On the "host", by its routes, without ARP and broadcasts.
    L3,
    /// As L3, but received frames also pass the host's netfilter.
    L3s,
}

/// Treatment of a frame from one child to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flag {
    /// The frame is passed on.
    Bridge,
    /// The frame is dropped.
    Private,
    /// The frame is sent out of the parent: a router there may send it back.
    Vepa,
}

pub(super) fn wire(segment: &Segment<'_>, mode: Mode, flag: Flag) -> Result<Held, LabError> {
    let mode = match mode {
        Mode::L2 => IpVlanMode::L2,
        Mode::L3 => IpVlanMode::L3,
        Mode::L3s => IpVlanMode::L3S,
    };
    let flags = match flag {
        Flag::Bridge => IpVlanFlags::empty(),
        Flag::Private => IpVlanFlags::Private,
        Flag::Vepa => IpVlanFlags::Vepa,
    };
    let (parent, outside) = segment.create_parent()?;
    let netlink = segment.host().netlink;
    for end in segment.ends() {
        let child = NewInterface { mac: None, ..segment.interface_at(end) };
        let created = netlink.create_ipvlan(child, parent, mode, flags);
        created.map_err(segment.making("ipvlan", "CONFIG_IPVLAN"))?;
        // Frames that the host's routes send out of the parent are sent without ARP.
        netlink.add_neighbour(parent, end.ip, outside).map_err(segment.doing("neighbour"))?;
    }
    Ok(None)
}

/// Fails if the kernel has no ipvlan. Called before an engine is asked for ipvlan on `parent`.
pub(super) fn check(segment: &Segment<'_>, parent: &str) -> Result<(), LabError> {
    const NAME: &str = "ipvlan";
    let netlink = segment.host().netlink;
    let parent = netlink.interface(parent).map_err(segment.doing("parent"))?.index;
    let created = netlink.create_plain(NAME, InfoKind::IpVlan, Some(parent));
    created.map_err(segment.making("ipvlan", "CONFIG_IPVLAN"))?;
    let index = netlink.interface(NAME).map_err(segment.doing("interface"))?.index;
    netlink.delete(index).map_err(segment.doing("interface"))
}
