//! CPU time of the calling thread.

use std::mem;

/// Returns user and system time of the calling thread so far, in nanoseconds (getrusage(2)).
pub(crate) fn of_this_thread() -> (u64, u64) {
    // SAFETY: an all-zero rusage is a valid value.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes one rusage.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    debug_assert_eq!(result, 0, "getrusage knows RUSAGE_THREAD since Linux 2.6.26");
    let ns = |t: libc::timeval| {
        t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_usec.unsigned_abs() * 1_000
    };
    (ns(usage.ru_utime), ns(usage.ru_stime))
}
