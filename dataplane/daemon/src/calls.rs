//! Descriptors that the supervisor passes by their numbers.

use std::env;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::getpid;

/// Number of the first one.
const FIRST: RawFd = 3;
/// Maximum number of descriptors: more than systemd keeps.
const MAX: RawFd = 1 << 20;

/// Takes the descriptors that the environment lists (sd_listen_fds(3)), with their names; at
/// the first call.
pub(crate) fn inherited() -> Vec<(String, OwnedFd)> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let variable = |name| env::var(name).ok();
    let is_own = variable("LISTEN_PID").is_some_and(|pid| pid == getpid().to_string());
    if !is_own || TAKEN.swap(true, Ordering::Relaxed) {
        return Vec::new();
    }
    let count = variable("LISTEN_FDS").and_then(|count| count.parse().ok()).unwrap_or(0);
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.split(':').map(str::to_owned).chain(std::iter::repeat(String::new()));
    let take = |number| {
        // SAFETY: it is only asked whether the descriptor is open.
        fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC).ok()?;
        // SAFETY: the process was started with the descriptor, for this program to take, and the
        // program takes it once.
        Some(unsafe { OwnedFd::from_raw_fd(number) })
    };
    let numbers = FIRST..FIRST + RawFd::clamp(count, 0, MAX);
    names.zip(numbers).filter_map(|(name, number)| Some((name, take(number)?))).collect()
}
