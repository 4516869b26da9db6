//! Surviving a peer that truncates a file which we have mapped.
//!
//! The next access to a page that is gone raises SIGBUS on the thread that made it. The handler
//! looks up the address among the guarded mappings; for one of them it puts zeroes in the place of
//! the whole mapping, marks it, and lets the thread go on as if nothing had happened. Who uses the
//! mapping looks at the mark ([`Mapping::is_lost`](crate::Mapping::is_lost)) between two batches and
//! parts with the peer. A SIGBUS anywhere else kills the process, as it would have without us.

use std::io;
use std::mem;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How many mappings can be guarded at a time.
pub const GUARDS_MAX: usize = 4096;

/// One guarded mapping. `len` is zero while the slot is free or being filled: it is stored last and
/// cleared first, so the handler never sees the start of one mapping with the length of another.
struct Slot {
    taken: AtomicBool,
    start: AtomicUsize,
    len: AtomicUsize,
    lost: AtomicBool,
}

static SLOTS: [Slot; GUARDS_MAX] = [const {
    Slot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; GUARDS_MAX];

/// Keeps one mapping guarded.
#[derive(Debug)]
pub(crate) struct Guard(usize);

impl Guard {
    /// Guards `len` mapped bytes from `start` on, both multiples of the page size.
    pub(crate) fn new(start: usize, len: usize) -> io::Result<Self> {
        install_handler()?;
        let free = SLOTS.iter().position(|slot| !slot.taken.swap(true, Ordering::Acquire));
        let index = free.ok_or_else(|| {
            io::Error::other(format!("more than {GUARDS_MAX} mappings of peers' memory"))
        })?;
        let slot = &SLOTS[index];
        slot.lost.store(false, Ordering::Relaxed);
        slot.start.store(start, Ordering::Relaxed);
        slot.len.store(len, Ordering::Release);
        Ok(Self(index))
    }

    pub(crate) fn is_lost(&self) -> bool {
        SLOTS[self.0].lost.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        SLOTS[self.0].len.store(0, Ordering::Release);
        SLOTS[self.0].taken.store(false, Ordering::Release);
    }
}

fn install_handler() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let result = INSTALLED.get_or_init(|| {
        // SAFETY: an all-zero sigaction is a valid value; the handler has the signature that
        // SA_SIGINFO asks for and makes only system calls and atomic accesses.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = on_sigbus as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            match libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)),
            }
        }
    });
    result.map_err(io::Error::from_raw_os_error)
}

extern "C" fn on_sigbus(
    _signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo_t, whose address is set for a SIGBUS.
    let address = unsafe { (*info).si_addr() } as usize;
    for slot in &SLOTS {
        let len = slot.len.load(Ordering::Acquire);
        let start = slot.start.load(Ordering::Relaxed);
        if address.wrapping_sub(start) < len && replace_by_zeroes(start, len) {
            slot.lost.store(true, Ordering::Relaxed);
            return;
        }
    }
    // Not ours: without a handler the same access faults again and ends the process.
    // SAFETY: setting the default action is always allowed, in a handler too.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}

/// Whether the mapping could be replaced.
fn replace_by_zeroes(start: usize, len: usize) -> bool {
    // SAFETY: the range is a live mapping of ours: its guard is dropped before it is unmapped, and
    // the thread that faulted is using it. Whoever else reads it meanwhile sees old bytes or zeroes,
    // and must expect any bytes anyway. errno belongs to the interrupted code and is kept.
    unsafe {
        let errno = *libc::__errno_location();
        let result = libc::mmap(
            start as *mut libc::c_void,
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        *libc::__errno_location() = errno;
        result != libc::MAP_FAILED
    }
}
