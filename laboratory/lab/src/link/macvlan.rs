//! macvlan: interfaces that share a parent, each with its own Ethernet address.

use netlink_packet_route::link::{InfoData, InfoKind, InfoMacVlan, MacVlanMode};

use super::end::End;
use super::segment::{Host, KeepAlive, Segment};
use crate::LabError;

pub(super) fn wire(segment: &Segment<'_>, mode: MacVlanMode) -> Result<KeepAlive, LabError> {
    if mode == MacVlanMode::Passthrough {
        return passthru(segment);
    }
    let (parent, _) = segment.create_parent()?;
    let host = segment.host();
    segment.ends().try_for_each(|end| create(segment, host, end, parent, mode))?;
    Ok(None)
}

/// Makes interfaces in VEPA mode, and a bridge in the place of the external switch.
pub(super) fn wire_hairpin(segment: &Segment<'_>) -> Result<KeepAlive, LabError> {
    let (parent, outside) = segment.create_parent()?;
    let host = segment.host();
    let bridge = segment.create_bridge(host)?;
    host.netlink.set_master(outside.index, bridge).map_err(segment.doing("external switch"))?;
    let hairpin = host.netlink.set_hairpin(outside.index);
    hairpin.map_err(segment.doing("hairpin mode of the external switch"))?;
    for end in segment.ends() {
        create(segment, host, end, parent, MacVlanMode::Vepa)?;
        let entry = host.netlink.add_forwarding(outside.index, end.mac);
        entry.map_err(segment.doing("forwarding"))?;
    }
    Ok(None)
}

/// Makes a veth pair on the "host" for each link: each end is the parent of one child, which takes
/// its address.
fn passthru(segment: &Segment<'_>) -> Result<KeepAlive, LabError> {
    for link in segment.links {
        let [a, b] = &link.ends;
        let parents = segment.create_host_pair(a.id.link(), [a.mac, b.mac])?;
        for (end, parent) in link.ends.iter().zip(parents) {
            create(segment, segment.host(), end, parent, MacVlanMode::Passthrough)?;
        }
    }
    Ok(None)
}

/// Creates the interface of an end on `parent`, an interface of `host`.
pub(super) fn create(
    segment: &Segment<'_>,
    host: Host<'_>,
    end: &End,
    parent: u32,
    mode: MacVlanMode,
) -> Result<(), LabError> {
    let child = segment.interface_at(end);
    let data = InfoData::MacVlan(vec![InfoMacVlan::Mode(mode)]);
    let created = host.netlink.create(child, InfoKind::MacVlan, data, Some(parent));
    created.map_err(segment.making("macvlan", "CONFIG_MACVLAN"))
}
