//! VLAN tags: what a card takes off a frame, neither an XDP program nor an AF_XDP socket sees.

use std::sync::Arc;

use dray_netdev::Interface;

/// Tags are left in frames, until this is dropped.
///
/// A process that is killed leaves it so, which does no harm: the kernel takes tags off itself.
pub(super) struct VlanTags(Arc<Interface>);

impl VlanTags {
    /// Has the driver of `interface` leave tags where they are. `None` where it does so already, and
    /// where it cannot.
    pub(super) fn keep(interface: &Arc<Interface>) -> Option<Self> {
        let takes_off = interface.takes_vlan_tags_off().unwrap_or(false);
        (takes_off && interface.take_vlan_tags_off(false).is_ok()).then(|| Self(interface.clone()))
    }
}

impl Drop for VlanTags {
    fn drop(&mut self) {
        // The interface may be gone.
        let _ = self.0.take_vlan_tags_off(true);
    }
}
