//! Attachments for virtual machines: TAP interfaces, bridged to those of a link, and macvtap.

use std::fs::File;
use std::os::fd::AsFd;

use dray_netdev::{attach_tap, keep_tap};
use netlink_packet_route::link::{InfoData, InfoKind, InfoMacVtap, MacVlanMode};

use super::end::End;
use super::segment::{KeepAlive, Segment};
use crate::LabError;

/// Makes macvtap interfaces in bridge mode: macvlan whose frames go to a character device.
pub(super) fn wire_macvtap(segment: &Segment<'_>) -> Result<KeepAlive, LabError> {
    let (parent, _) = segment.create_parent()?;
    segment.ends().try_for_each(|end| {
        let child = segment.interface_at(end);
        let data = InfoData::MacVtap(vec![InfoMacVtap::Mode(MacVlanMode::Bridge)]);
        let created = segment.host().netlink.create(child, InfoKind::MacVtap, data, Some(parent));
        created.map_err(segment.making("macvtap", "CONFIG_MACVTAP"))
    })?;
    Ok(None)
}

impl Segment<'_> {
    /// Bridges the interface of `end`, in its container, to a TAP interface, as KubeVirt does for
    /// virtual machines in pods, with forwarding entries for both stations. Returns the name of the
    /// TAP interface.
    pub(super) fn create_tap(&self, end: &End, peer: &End) -> Result<String, LabError> {
        let container = &self.lab[end.container];
        let netlink = container.netlink();
        let (tap, bridge) = (format!("tap-{}", end.name()), format!("br-{}", end.name()));
        let device = container.namespace().enter(|| {
            let device = File::options().read(true).write(true).open("/dev/net/tun")?;
            attach_tap(device.as_fd(), &tap, Default::default())?;
            keep_tap(device.as_fd())?;
            Ok(device)
        });
        // Kept open until the interface is set up: otherwise it has no carrier and drops the first
        // frames.
        let _device = device.map_err(self.doing(&format!("TAP interface {tap}")))?;
        netlink.create_bridge(&bridge).map_err(self.doing("bridge in a container"))?;
        let index = |name: &str| {
            let interface = netlink.interface(name).map_err(self.doing(name));
            interface.map(|interface| interface.index)
        };
        let bridge = index(&bridge)?;
        netlink.set_up(bridge).map_err(self.doing("bridge in a container"))?;
        for (port, station) in [(tap.as_str(), end.station), (end.name(), peer.station)] {
            let port = index(port)?;
            netlink.set_mtu(port, self.mtu).map_err(self.doing("MTU"))?;
            netlink.set_master(port, bridge).map_err(self.doing("bridge port"))?;
            netlink.set_up(port).map_err(self.doing("set up"))?;
            netlink.add_forwarding(port, station).map_err(self.doing("forwarding"))?;
        }
        Ok(tap)
    }
}
