//! Signalling an eventfd that a peer holds as well, without ever waiting for it.
//!
//! A plain write adds to the counter, and waits where the counter is full. `O_NONBLOCK` forbids the
//! waiting, but it belongs to the open file, which the peer has too: it can clear the flag and fill
//! the counter at any time, between a check of ours and the write as well, and whoever writes then,
//! a worker of the switch, stands still until the peer pleases.
//!
//! The kernel's own way to signal an eventfd never waits: a counter that is full stays full. From
//! outside it is reached by asynchronous I/O (io_submit(2)), which signals an eventfd of the caller's
//! choice when an operation is complete. The operation here is to wait until an eventfd of our own
//! is readable. It always is, so it is complete before the one system call returns. That call takes
//! 450 ns where the write takes 200, once for each time that a peer which sleeps is woken.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;

/// `IOCB_CMD_POLL` and `IOCB_FLAG_RESFD` of `linux/aio_abi.h`.
const COMMAND_POLL: u16 = 5;
const FLAG_RESFD: u32 = 1;
/// Completions that the kernel keeps for us.
const RING: u32 = 256;
/// After so many signals the completions are thrown away.
const REAP: u32 = RING / 4;

/// `struct iocb`. Two of its fields change places on big-endian machines; both are zero here.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key_and_flags: [u32; 2],
    command: u16,
    priority: i16,
    file: u32,
    events: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

const _: () = assert!(size_of::<Request>() == 64);

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Completion([u64; 4]);

/// One for the process: workers of all ports share it.
struct Context {
    id: libc::c_ulong,
    /// Always readable.
    readable: OwnedFd,
    submitted: AtomicU32,
}

impl Context {
    fn new() -> std::io::Result<Self> {
        let readable = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut id: libc::c_ulong = 0;
        // SAFETY: the kernel writes the identity to `id`, which is zero as it must be.
        match unsafe { libc::syscall(libc::SYS_io_setup, RING, &raw mut id) } {
            0 => Ok(Self { id, readable, submitted: AtomicU32::new(0) }),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    /// Whether the kernel took it.
    fn signal(&self, event: BorrowedFd<'_>) -> bool {
        let mut request = Request {
            command: COMMAND_POLL,
            file: self.readable.as_raw_fd() as u32,
            events: libc::POLLIN as u64,
            flags: FLAG_RESFD,
            eventfd: event.as_raw_fd() as u32,
            ..Request::default()
        };
        let mut requests = [&raw mut request];
        // SAFETY: the kernel reads one pointer and the request that it points to, and is done with
        // both when the call returns.
        let taken =
            unsafe { libc::syscall(libc::SYS_io_submit, self.id, 1, requests.as_mut_ptr()) };
        if self.submitted.fetch_add(1, Ordering::Relaxed) % REAP == REAP - 1 {
            self.reap();
        }
        taken == 1
    }

    /// Throws away what is complete.
    #[cold]
    fn reap(&self) {
        let mut completions = [Completion::default(); RING as usize];
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes up to RING completions, for which there is room, and reads the
        // time.
        unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.id,
                0,
                RING,
                completions.as_mut_ptr(),
                ptr::from_ref(&at_once),
            )
        };
    }
}

/// Adds one to the counter of `event`, an eventfd, unless it is full. Never waits.
///
/// Without asynchronous I/O, which a kernel can be built without, the counter is looked at before it
/// is written to; a peer that is quick enough can make the caller wait then.
pub(crate) fn signal(event: BorrowedFd<'_>) {
    static CONTEXT: OnceLock<Option<Context>> = OnceLock::new();
    if let Some(context) = CONTEXT.get_or_init(|| Context::new().ok()) {
        if context.signal(event) {
            return;
        }
        // All completions are taken: other threads have signalled meanwhile.
        context.reap();
        if context.signal(event) {
            return;
        }
    }
    let mut fds = [PollFd::from_borrowed_fd(event, PollFlags::OUT)];
    if matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1)) {
        let _ = rustix::io::write(event, &1u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::sync::mpsc;
    use std::time::Duration;

    fn counter(event: &impl AsFd) -> u64 {
        let mut value = [0; 8];
        rustix::io::read(event, &mut value).unwrap();
        u64::from_ne_bytes(value)
    }

    #[test]
    fn every_signal_counts() {
        let events = [(); 2].map(|()| eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        std::thread::scope(|scope| {
            for event in &events {
                for _ in 0..2 {
                    scope.spawn(|| (0..5 * RING).for_each(|_| signal(event.as_fd())));
                }
            }
        });
        for event in &events {
            assert_eq!(counter(event), u64::from(2 * 5 * RING));
        }
    }

    /// The flag that would forbid waiting is not set: who shares the file can clear it.
    #[test]
    fn a_full_counter_holds_nobody_up() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let (done, wait) = mpsc::channel();
        let copy = event.try_clone().unwrap();
        std::thread::spawn(move || {
            (0..1000).for_each(|_| signal(copy.as_fd()));
            done.send(()).unwrap();
        });
        wait.recv_timeout(Duration::from_secs(10)).expect("signalling does not wait");
    }
}
