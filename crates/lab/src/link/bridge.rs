//! A Linux bridge on the "host", and a veth pair from it to each container.

use super::{Held, Segment};
use crate::LabError;

pub(super) fn wire(segment: &Segment<'_>) -> Result<Held, LabError> {
    let netlink = segment.lab.host().netlink();
    let name = format!("br{}", segment.number);
    netlink.create_bridge(&name).map_err(segment.doing("bridge"))?;
    let bridge = netlink.interface(&name).map_err(segment.doing("bridge"))?.index;
    for (port, end) in segment.create_ports()?.into_iter().zip(segment.ends()) {
        netlink.set_master(port, bridge).map_err(segment.doing("bridge port"))?;
        netlink.add_forwarding(port, end.station).map_err(segment.doing("forwarding"))?;
    }
    netlink.set_up(bridge).map_err(segment.doing("bridge"))?;
    segment.set_up_ports()?;
    Ok(None)
}
