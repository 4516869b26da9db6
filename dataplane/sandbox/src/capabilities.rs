//! Capabilities of the calling thread.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Takes all capabilities but `kept` from those that the process can ever gain, if it may.
pub(crate) fn bound(kept: CapabilitySet) -> io::Result<()> {
    if capabilities(None)?.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().difference(kept).iter() {
            match remove_capability_from_bounding_set(capability) {
                // A capability that this kernel does not know.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    Ok(())
}

/// Drops all capabilities but `kept`, and the ability to gain any by executing a program that has
/// them.
pub(crate) fn keep(kept: CapabilitySet) -> io::Result<()> {
    clear_ambient_capability_set()?;
    let permitted = capabilities(None)?.permitted & kept;
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: permitted, permitted, inheritable })?;
    Ok(set_no_new_privs(true)?)
}

/// Makes all permitted capabilities effective.
pub(crate) fn raise() -> io::Result<()> {
    let have = capabilities(None)?;
    Ok(set_capabilities(None, CapabilitySets { effective: have.permitted, ..have })?)
}
