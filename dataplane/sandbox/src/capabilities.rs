//! Capabilities of the calling thread.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Drops all capabilities but `kept`, and the ability to gain any by executing a program that has
/// them.
pub(crate) fn keep(kept: CapabilitySet) -> io::Result<()> {
    let have = capabilities(None)?;
    if have.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().difference(kept).iter() {
            match remove_capability_from_bounding_set(capability) {
                // A capability that this kernel does not know.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    clear_ambient_capability_set()?;
    let permitted = have.permitted & kept;
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: permitted, permitted, inheritable })?;
    Ok(set_no_new_privs(true)?)
}
