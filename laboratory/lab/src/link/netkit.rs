//! netkit pairs: like veth pairs, but made for BPF programs, which decide where a frame goes.

use netlink_packet_route::link::{InfoData, InfoKind, InfoNetkit, NetkitMode};

use super::segment::{KeepAlive, Segment};
use crate::LabError;
use crate::netlink::NewInterface;

/// Makes a pair for each link, with one end in each container. Without a BPF program a pair passes
/// all frames.
pub(super) fn wire(segment: &Segment<'_>, mode: NetkitMode) -> Result<KeepAlive, LabError> {
    for link in segment.links {
        let [a, b] =
            link.ends.each_ref().map(|end| NewInterface { mac: None, ..segment.interface_at(end) });
        let netlink = segment.lab[link.ends[0].container].netlink();
        let data = InfoData::Netkit(vec![InfoNetkit::Mode(mode), InfoNetkit::Peer(b.describe())]);
        let created = netlink.create(a, InfoKind::Netkit, data, None);
        created.map_err(segment.making("netkit", "CONFIG_NETKIT (6.7 or later)"))?;
        if mode == NetkitMode::L2 {
            for end in &link.ends {
                let netlink = segment.lab[end.container].netlink();
                let index = netlink.interface(end.name()).map_err(segment.doing("netkit"))?.index;
                netlink.set_mac(index, end.mac).map_err(segment.doing("netkit address"))?;
            }
        }
    }
    Ok(None)
}
