//! VLAN tags: if a card strips a tag, neither an XDP program nor an AF_XDP socket sees it.

use std::sync::Arc;

use dray_netdev::Interface;
use dray_socket::borrows_files;

/// Keeps tags in frames until it is dropped.
///
/// A process that is killed leaves the setting changed, which does no harm: the kernel then strips
/// tags itself.
pub(super) struct VlanTags(Arc<Interface>);

impl VlanTags {
    /// Makes the driver of `interface` leave tags in frames. Returns `None` if it already does so,
    /// or cannot.
    pub(super) fn keep(interface: &Arc<Interface>) -> Option<Self> {
        let takes_off = interface.takes_vlan_tags_off().unwrap_or(false);
        (takes_off && interface.take_vlan_tags_off(false).is_ok()).then(|| Self(interface.clone()))
    }

    /// Continues with what another process has changed.
    pub(super) fn resume(interface: &Arc<Interface>) -> Self {
        Self(interface.clone())
    }
}

impl Drop for VlanTags {
    fn drop(&mut self) {
        if !borrows_files() {
            // The interface may have been removed.
            let _ = self.0.take_vlan_tags_off(true);
        }
    }
}
