//! Surviving a peer that truncates a file that we have mapped.
//!
//! The next access to a page that is gone raises SIGBUS on the thread that made it. The handler
//! looks up the address among the guarded mappings. If it belongs to one of them, the handler maps
//! zeroes over the whole mapping, marks it as lost, and lets the thread continue as if nothing had
//! happened. The user of the mapping checks the mark
//! ([`Mapping::is_lost`](crate::Mapping::is_lost)) between two batches and disconnects the peer. A
//! SIGBUS anywhere else kills the process, as it would without the handler; a SIGBUS that a process
//! sent is not an access, and is ignored.
//!
//! The zeroes come from a file of our own, all holes, of which each guard has a part. A shared
//! mapping of a file is not charged to any process until its pages are touched, so no memory limit
//! can make mapping it fail. Touching the pages can fail (no memory may be left, and with
//! `vm.overcommit_memory=2` no more may be committed): then each page that is touched is replaced
//! by the one page that was allocated for the guard when it was created.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};

/// Maximum number of mappings guarded at a time.
pub const GUARDS_MAX: usize = 16_384;

/// Maximum length of a guarded mapping, in bytes.
pub const GUARDED_MAX: u64 = 1 << 46;

/// Maximum number of bytes that all guarded mappings may take together: there are addresses for 128
/// TiB, and the rest of the process needs some.
pub const GUARDED_IN_ALL: u64 = 96 << 40;

/// Current limit on the bytes that they take together.
static LIMIT: AtomicU64 = AtomicU64::new(GUARDED_IN_ALL);

/// Sets how many bytes all guarded mappings of this process may take together, at most
/// [`GUARDED_IN_ALL`]. Existing mappings stay.
pub fn limit_guarded(bytes: u64) {
    LIMIT.store(bytes.min(GUARDED_IN_ALL), Ordering::Relaxed);
}

static GUARDED: AtomicU64 = AtomicU64::new(0);

/// Number of faults in one mapping after which pages are replaced one by one. Threads that fault at
/// the same time each replace the whole mapping.
const FAULTS_MAX: u32 = 64;

/// One guarded mapping.
struct Slot {
    taken: AtomicBool,
    /// Odd while nothing is guarded or `start` and `len` change. A handler that reads the same even
    /// number before and after reading them has read both from one mapping.
    version: AtomicUsize,
    start: AtomicUsize,
    len: AtomicUsize,
    /// Number of faults since the slot was taken.
    faults: AtomicU32,
}

static SLOTS: [Slot; GUARDS_MAX] = [const {
    Slot {
        taken: AtomicBool::new(false),
        version: AtomicUsize::new(1),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        faults: AtomicU32::new(0),
    }
}; GUARDS_MAX];

/// Number of slots that have ever been in use: those from here on never were.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Descriptor of the file of zeroes; open for as long as the process lives.
static ZEROES: AtomicI32 = AtomicI32::new(-1);

/// Length of a slot's part of the file, and the alignment of these parts: room for the preallocated
/// page, and behind it for the longest mapping.
const PART: u64 = 2 * GUARDED_MAX;

/// Bytes that a mapping of a peer's memory is about to take.
#[derive(Debug)]
pub(crate) struct Share(u64);

impl Share {
    /// # Errors
    /// If all peers together would take too many.
    pub(crate) fn of(len: u64) -> io::Result<Self> {
        let limit = LIMIT.load(Ordering::Relaxed);
        // The limit is checked before the length is added: a peer that asks for too much never
        // takes the room of others, not even for a moment.
        let add = |taken: u64| taken.checked_add(len).filter(|sum| *sum <= limit);
        match GUARDED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(Self(len)),
            Err(taken) => Err(io::Error::other(format!(
                "{len} bytes: peers already share {taken} of at most {limit} bytes"
            ))),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        GUARDED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Keeps one mapping guarded.
#[derive(Debug)]
pub(crate) struct Guard(usize);

impl Guard {
    /// Guards `len` mapped bytes from `start` on, both multiples of the page size.
    pub(crate) fn new(start: usize, len: usize) -> io::Result<Self> {
        let zeroes = install()?;
        if len as u64 > GUARDED_MAX {
            return Err(io::Error::other(format!(
                "mapping of {len} bytes: at most {GUARDED_MAX} bytes are allowed"
            )));
        }
        let free = SLOTS.iter().position(|slot| !slot.taken.swap(true, Ordering::Acquire));
        let index = free.ok_or_else(|| {
            io::Error::other(format!(
                "too many mappings of peers' memory: at most {GUARDS_MAX} are allowed"
            ))
        })?;
        USED.fetch_max(index + 1, Ordering::Release);
        let slot = &SLOTS[index];
        if let Err(errno) = fallocate(zeroes, FallocateFlags::KEEP_SIZE, part(index), page()) {
            slot.taken.store(false, Ordering::Release);
            return Err(errno.into());
        }
        slot.faults.store(0, Ordering::Relaxed);
        slot.start.store(start, Ordering::Relaxed);
        slot.len.store(len, Ordering::Relaxed);
        slot.version.fetch_add(1, Ordering::Release);
        Ok(Self(index))
    }

    pub(crate) fn is_lost(&self) -> bool {
        SLOTS[self.0].faults.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let slot = &SLOTS[self.0];
        slot.version.fetch_add(1, Ordering::Relaxed);
        // No later store to the slot becomes visible before that increment.
        fence(Ordering::Release);
        if self.is_lost()
            && let Ok(zeroes) = install()
        {
            // Nothing reads what was written there any more. The mapping still exists, and shows
            // zeroes again.
            let all = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(zeroes, all, part(self.0), PART);
        }
        slot.taken.store(false, Ordering::Release);
    }
}

/// Guarded mappings that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarded {
    /// Number of the mappings.
    pub mappings: usize,
    /// Bytes that they take.
    pub bytes: u64,
}

/// Returns what is guarded now.
pub fn guarded() -> Guarded {
    let used = USED.load(Ordering::Acquire).min(GUARDS_MAX);
    let taken = SLOTS[..used].iter().filter(|slot| slot.taken.load(Ordering::Acquire));
    Guarded { mappings: taken.count(), bytes: GUARDED.load(Ordering::Relaxed) }
}

fn part(index: usize) -> u64 {
    index as u64 * PART
}

fn page() -> u64 {
    rustix::param::page_size() as u64
}

/// Installs the handler of SIGBUS, which the first mapping of a peer's memory does otherwise: from
/// then on the process ignores a SIGBUS that another process sends.
pub fn survive_truncation() -> io::Result<()> {
    install().map(drop)
}

/// Creates the file of zeroes and installs the handler, once.
fn install() -> io::Result<&'static OwnedFd> {
    static INSTALLED: OnceLock<Result<OwnedFd, i32>> = OnceLock::new();
    let result = INSTALLED.get_or_init(|| {
        let file = || -> rustix::io::Result<OwnedFd> {
            let file = memfd_create("dray-zeroes", MemfdFlags::CLOEXEC)?;
            ftruncate(&file, part(GUARDS_MAX))?;
            ZEROES.store(file.as_raw_fd(), Ordering::Release);
            Ok(file)
        };
        let file = file().map_err(rustix::io::Errno::raw_os_error)?;
        // SAFETY: an all-zero sigaction is a valid value; the handler has the signature that
        // SA_SIGINFO requires and makes only system calls and atomic accesses.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = on_sigbus as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            match libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) {
                0 => Ok(file),
                _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)),
            }
        }
    });
    result.as_ref().map_err(|errno| io::Error::from_raw_os_error(*errno))
}

extern "C" fn on_sigbus(
    _signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    /// A memory page is broken that no thread is accessing.
    const BUS_MCEERR_AO: libc::c_int = 5;
    // SAFETY: the kernel passes a valid siginfo_t.
    let code = unsafe { (*info).si_code };
    // Positive if the kernel raised the signal; otherwise a process sent it by kill(2) or
    // sigqueue(3).
    if code <= 0 || code == BUS_MCEERR_AO {
        return;
    }
    // SAFETY: the address is set for a SIGBUS raised by the kernel.
    let address = unsafe { (*info).si_addr() } as usize;
    let used = USED.load(Ordering::Acquire).min(GUARDS_MAX);
    for (index, slot) in SLOTS[..used].iter().enumerate() {
        let version = slot.version.load(Ordering::Acquire);
        let (start, len) = (slot.start.load(Ordering::Relaxed), slot.len.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        // A slot that is changing does not belong to a mapping in use, and the faulting one is in
        // use.
        let stable = version % 2 == 0 && slot.version.load(Ordering::Relaxed) == version;
        if !stable || address.wrapping_sub(start) >= len {
            continue;
        }
        let faults = slot.faults.fetch_add(1, Ordering::Relaxed);
        let replaced = if faults < FAULTS_MAX {
            replace(start, len, part(index) + page())
        } else {
            let page = page() as usize;
            replace(address / page * page, page, part(index))
        };
        if replaced {
            return;
        }
        break;
    }
    // Not a guarded mapping: without a handler the same access faults again and ends the process.
    // SAFETY: setting the default action is always allowed, in a handler too.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}

/// Maps zeroes over `len` bytes from `start` on, those at `offset` of their file. Returns true on
/// success.
fn replace(start: usize, len: usize, offset: u64) -> bool {
    // SAFETY: the range is a live mapping of ours: its guard is dropped before it is unmapped, and
    // the thread that faulted is using it. Other threads that read it meanwhile see old bytes or
    // zeroes, and must expect any bytes anyway. errno belongs to the interrupted code and is
    // restored.
    unsafe {
        let errno = *libc::__errno_location();
        let result = libc::mmap(
            start as *mut libc::c_void,
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_FIXED | libc::MAP_SHARED | libc::MAP_NORESERVE,
            ZEROES.load(Ordering::Acquire),
            offset as libc::off_t,
        );
        *libc::__errno_location() = errno;
        result != libc::MAP_FAILED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mapping, MemoryFile};

    /// The situation in which no page of zeroes can be allocated: the mapping continues to fault
    /// after it was replaced.
    #[test]
    fn lost_pages_are_replaced_one_by_one() {
        const LEN: usize = 1 << 20;
        let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, LEN as u64).unwrap();
        let theirs = fd.try_clone().unwrap();
        let mapping = Mapping::new(&MemoryFile::from_peer(fd).unwrap(), 0, LEN as u64).unwrap();
        let start = mapping.start().as_ptr();
        let slot = SLOTS.iter().position(|slot| {
            slot.version.load(Ordering::Acquire) % 2 == 0
                && slot.start.load(Ordering::Relaxed) == start as usize
        });
        let slot = slot.expect("it is guarded");
        let blocks = || rustix::fs::fstat(install().unwrap()).unwrap().st_blocks;
        let before = blocks();
        SLOTS[slot].faults.store(FAULTS_MAX, Ordering::Relaxed);
        ftruncate(&theirs, 0).unwrap();
        for at in (0..LEN).step_by(4096) {
            // SAFETY: within the mapping.
            unsafe { start.add(at).write_volatile(7) };
        }
        assert!(mapping.is_lost());
        let faults = SLOTS[slot].faults.load(Ordering::Relaxed) - FAULTS_MAX;
        assert_eq!(faults as usize, LEN / 4096, "each page by itself");
        // Other tests may take a page each meanwhile.
        assert!(blocks() - before < 64 * 8, "no page was asked for");
    }
}
