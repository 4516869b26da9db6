//! Locked memory: a role that has to wait for one of its own pages loses frames meanwhile.

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Locks all memory of this process, present and future, each page on its first use. Does nothing
/// if a limit forbids it; the lab then finds out from the kernel.
///
/// A lock under a limit is worse than none: once the limit is reached, allocations fail.
pub(crate) fn lock() {
    let unlimited = Rlimit { current: None, maximum: None };
    let may = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK))
        || setrlimit(Resource::Memlock, unlimited).is_ok()
        || getrlimit(Resource::Memlock).current.is_none();
    if may {
        // Kernels before 4.4 cannot lock on first use; memory stays unlocked there.
        let _ = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT);
    }
}
