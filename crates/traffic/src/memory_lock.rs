//! Memory that stays where it is: a role that has to wait for a page of its own loses frames meanwhile.

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Locks all memory of this process, present and future, each page from its first use on. Nothing is
/// changed where a limit forbids that; the lab finds out from the kernel.
///
/// A lock under a limit is worse than none: once it is reached, memory cannot be had at all.
pub(crate) fn lock() {
    let unlimited = Rlimit { current: None, maximum: None };
    let may = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK))
        || setrlimit(Resource::Memlock, unlimited).is_ok()
        || getrlimit(Resource::Memlock).current.is_none();
    if may {
        // A kernel before 4.4 knows no locking on first use; it is left unlocked there.
        let _ = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT);
    }
}
