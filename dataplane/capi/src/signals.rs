//! Signals while a port is opened: its threads are created then, and inherit the mask.

use std::mem::MaybeUninit;
use std::ptr;

/// Signals that the CPU raises on the thread that caused them. Blocked, they would end the process.
const OWN: [libc::c_int; 5] =
    [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];

/// Blocks all other signals on this thread until it is dropped. Threads that are created meanwhile
/// leave the program's signals to the program's threads, and no peer can end the process by
/// SIGPIPE.
pub(crate) struct Blocked(libc::sigset_t);

impl Blocked {
    pub(crate) fn new() -> Self {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: `sigfillset` initializes `all`, and `pthread_sigmask` with valid arguments, which
        // these are, `before`.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            let mut all = all.assume_init();
            for signal in OWN {
                libc::sigdelset(&raw mut all, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the mask is the one that `new` read.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}
