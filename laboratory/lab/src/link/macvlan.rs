//! macvlan: interfaces that share a parent, each with its own Ethernet address.

use netlink_packet_route::link::{InfoData, InfoKind, InfoMacVlan, MacVlanMode};

use super::end::End;
use super::segment::{KeepAlive, Segment};
use crate::LabError;

pub(super) fn wire(segment: &Segment<'_>, mode: MacVlanMode) -> Result<KeepAlive, LabError> {
    if mode == MacVlanMode::Passthrough {
        return passthru(segment);
    }
    let (parent, _) = segment.create_parent()?;
    segment.ends().try_for_each(|end| create(segment, end, parent, mode))?;
    Ok(None)
}

/// Makes a veth pair on the "host" for each link: each end is the parent of one child, which takes
/// its address.
fn passthru(segment: &Segment<'_>) -> Result<KeepAlive, LabError> {
    for link in segment.links {
        let [a, b] = &link.ends;
        let parents = segment.create_host_pair(a.id.link(), [a.mac, b.mac])?;
        for (end, parent) in link.ends.iter().zip(parents) {
            create(segment, end, parent, MacVlanMode::Passthrough)?;
        }
    }
    Ok(None)
}

fn create(
    segment: &Segment<'_>,
    end: &End,
    parent: u32,
    mode: MacVlanMode,
) -> Result<(), LabError> {
    let child = segment.interface_at(end);
    let data = InfoData::MacVlan(vec![InfoMacVlan::Mode(mode)]);
    let created = segment.host().netlink.create(child, InfoKind::MacVlan, data, Some(parent));
    created.map_err(segment.making("macvlan", "CONFIG_MACVLAN"))
}
