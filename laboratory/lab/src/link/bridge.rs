//! A Linux bridge on the "host", with a veth pair to each container.

use super::end::End;
use super::segment::{Host, KeepAlive, Segment};
use crate::LabError;

pub(super) fn wire(segment: &Segment<'_>) -> Result<KeepAlive, LabError> {
    let host = segment.host();
    let bridge = segment.create_bridge(host)?;
    segment.ends().try_for_each(|end| segment.create_bridge_port(host, bridge, end))?;
    segment.set_up()?;
    segment.ends().try_for_each(|end| segment.wait_for_port(host, end))?;
    Ok(None)
}

/// Name of a segment's bridge on its host.
pub(super) fn name(segment: u32) -> String {
    format!("br{segment}")
}

impl Segment<'_> {
    /// Creates a bridge on `host`; returns its index.
    pub(super) fn create_bridge(&self, host: Host<'_>) -> Result<u32, LabError> {
        let name = name(self.number);
        host.netlink.create_bridge(&name).map_err(self.doing("bridge"))?;
        let bridge = host.netlink.interface(&name).map_err(self.doing("bridge"))?.index;
        host.netlink.set_up(bridge).map_err(self.doing("bridge"))?;
        Ok(bridge)
    }

    /// Connects the ends on one side to a bridge of their host, with forwarding entries: the ends
    /// on the other side are behind the port `uplink`.
    pub(super) fn create_bridge_ports(
        &self,
        host: Host<'_>,
        side: usize,
        bridge: u32,
        uplink: u32,
    ) -> Result<(), LabError> {
        for link in self.links {
            self.create_bridge_port(host, bridge, &link.ends[side])?;
            let other = host.netlink.add_forwarding(uplink, link.ends[1 - side].station);
            other.map_err(self.doing("forwarding"))?;
        }
        Ok(())
    }

    /// Connects an end to a bridge, with a forwarding entry for its station.
    pub(super) fn create_bridge_port(
        &self,
        host: Host<'_>,
        bridge: u32,
        end: &End,
    ) -> Result<(), LabError> {
        let port = self.create_port(host, end)?;
        host.netlink.set_master(port, bridge).map_err(self.doing("bridge port"))?;
        host.netlink.add_forwarding(port, end.station).map_err(self.doing("forwarding"))
    }
}
