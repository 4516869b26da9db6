//! ipvlan: interfaces that share a parent and its Ethernet address, told apart by IP address.

use netlink_packet_route::link::{InfoData, InfoIpVlan, InfoKind, IpVlanFlags, IpVlanMode};

use super::end::End;
use super::segment::{Host, KeepAlive, Segment};
use crate::LabError;
use crate::netlink::NewInterface;

pub(super) fn wire(
    segment: &Segment<'_>,
    mode: IpVlanMode,
    flags: IpVlanFlags,
) -> Result<KeepAlive, LabError> {
    let (parent, outside) = segment.create_parent()?;
    let host = segment.host();
    for end in segment.ends() {
        create(segment, host, end, parent, (mode, flags))?;
        // Frames that the host's routes send out of the parent are sent without ARP.
        let neighbour = host.netlink.add_neighbour(parent, end.ip, outside.mac);
        neighbour.map_err(segment.doing("neighbour"))?;
    }
    Ok(None)
}

/// Creates the interface of an end on `parent`, an interface of `host`.
pub(super) fn create(
    segment: &Segment<'_>,
    host: Host<'_>,
    end: &End,
    parent: u32,
    (mode, flags): (IpVlanMode, IpVlanFlags),
) -> Result<(), LabError> {
    let child = NewInterface { mac: None, ..segment.interface_at(end) };
    let data = InfoData::IpVlan(vec![InfoIpVlan::Mode(mode), InfoIpVlan::Flags(flags)]);
    let created = host.netlink.create(child, InfoKind::IpVlan, data, Some(parent));
    created.map_err(segment.making("ipvlan", "CONFIG_IPVLAN"))
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
