//! netkit pairs: like veth pairs, but made for BPF programs, which decide where a frame goes.

use netlink_packet_route::link::NetkitMode;

use super::{Held, Segment};
use crate::LabError;
use crate::netlink::NewInterface;

/// Layer of the interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The interfaces have Ethernet addresses.
    L2,
    /// The interfaces have no Ethernet addresses and need no neighbour entries.
    L3,
}

/// Makes a pair for each link, with one end in each container. Without a BPF program a pair passes
/// all frames.
pub(super) fn wire(segment: &Segment<'_>, mode: Mode) -> Result<Held, LabError> {
    let layer = match mode {
        Mode::L2 => NetkitMode::L2,
        Mode::L3 => NetkitMode::L3,
    };
    for link in segment.links {
        let [a, b] =
            link.ends.each_ref().map(|end| NewInterface { mac: None, ..segment.interface_at(end) });
        let netlink = segment.lab[link.ends[0].container].netlink();
        let created = netlink.create_netkit(a, b, layer);
        created.map_err(segment.making("netkit", "CONFIG_NETKIT (6.7 or later)"))?;
        if mode == Mode::L2 {
            for end in &link.ends {
                let netlink = segment.lab[end.container].netlink();
                let index = netlink.interface(end.name()).map_err(segment.doing("netkit"))?.index;
                netlink.set_mac(index, end.mac).map_err(segment.doing("netkit address"))?;
            }
        }
    }
    Ok(None)
}
