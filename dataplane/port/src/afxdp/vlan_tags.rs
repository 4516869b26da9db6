//! VLAN tags: if a network card strips a tag, it is lost for XDP programs and AF_XDP sockets.

use std::sync::Arc;

use dray_netdev::Interface;
use dray_socket::borrows_files;

/// Disables the stripping of tags until it is dropped. A killed process leaves stripping disabled,
/// which is harmless: the kernel strips tags itself.
pub(super) struct VlanTags(Arc<Interface>);

impl VlanTags {
    /// Makes the driver of `interface` leave tags in frames. Returns `None` if it already does, or
    /// cannot.
    pub(super) fn disable_stripping(interface: &Arc<Interface>) -> Option<Self> {
        let strips = interface.takes_vlan_tags_off().unwrap_or(false);
        (strips && interface.take_vlan_tags_off(false).is_ok()).then(|| Self(interface.clone()))
    }

    /// Continues for another process, which has disabled the stripping.
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
