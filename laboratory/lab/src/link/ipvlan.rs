//! ipvlan: interfaces that share a parent and its Ethernet address, told apart by IP address.

use netlink_packet_route::link::{InfoData, InfoIpVlan, InfoKind, IpVlanFlags, IpVlanMode};

use super::segment::{KeepAlive, Segment};
use crate::LabError;
use crate::netlink::NewInterface;

pub(super) fn wire(
    segment: &Segment<'_>,
    mode: IpVlanMode,
    flags: IpVlanFlags,
) -> Result<KeepAlive, LabError> {
    let (parent, outside) = segment.create_parent()?;
    let netlink = segment.host().netlink;
    for end in segment.ends() {
        let child = NewInterface { mac: None, ..segment.interface_at(end) };
        let data = InfoData::IpVlan(vec![InfoIpVlan::Mode(mode), InfoIpVlan::Flags(flags)]);
        let created = netlink.create(child, InfoKind::IpVlan, data, Some(parent));
        created.map_err(segment.making("ipvlan", "CONFIG_IPVLAN"))?;
        // Frames that the host's routes send out of the parent are sent without ARP.
        netlink.add_neighbour(parent, end.ip, outside).map_err(segment.doing("neighbour"))?;
    }
    Ok(None)
}

/// Fails if the kernel has no ipvlan. Called before an engine creates ipvlan interfaces on
/// `parent`.
pub(super) fn check(segment: &Segment<'_>, parent: &str) -> Result<(), LabError> {
    const NAME: &str = "ipvlan";
    let netlink = segment.host().netlink;
    let parent = netlink.interface(parent).map_err(segment.doing("parent"))?.index;
    let created = netlink.create_named(NAME, InfoKind::IpVlan, None, Some(parent));
    created.map_err(segment.making("ipvlan", "CONFIG_IPVLAN"))?;
    let index = netlink.interface(NAME).map_err(segment.doing("interface"))?.index;
    netlink.delete(index).map_err(segment.doing("interface"))
}
