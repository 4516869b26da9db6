//! Signals an eventfd that is shared with a peer, without ever waiting for the peer.
//!
//! A plain write adds to the counter, and waits if the counter is full. `O_NONBLOCK` prevents that,
//! but the flag belongs to the open file, which the peer has too: the peer can clear the flag and
//! fill the counter at any time, even between a check here and the write. The thread that writes
//! then, a worker of the switch, is stopped for as long as the peer likes.
//!
//! The kernel's internal way to signal an eventfd never waits: a full counter stays full. User
//! space reaches it by asynchronous I/O (io_submit(2)), which signals an eventfd of the caller's
//! choice when an operation completes. The operation used here is to wait until an eventfd of our
//! own is readable. It always is, so the operation completes before the one system call returns.
//! That call takes 450 ns where the write takes 200 ns, once for each wake-up of a sleeping peer.
//!
//! Where asynchronous I/O is not available (the machine's `fs.aio-max-nr` is exhausted, a kernel
//! without it, or a system call filter), a signal is a write, and an alarm ends that write if a
//! peer makes it wait.

use std::cell::OnceCell;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, Once, OnceLock};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::lock::lock;

/// `IOCB_CMD_POLL` and `IOCB_FLAG_RESFD` of `linux/aio_abi.h`.
const COMMAND_POLL: u16 = 5;
const FLAG_RESFD: u32 = 1;
/// Number of completions that the kernel keeps for us.
const RING: u32 = 256;
/// Number of signals after which the completions are discarded.
const REAP: u32 = RING / 4;

/// `struct iocb`. Two of its fields are swapped on big-endian machines; both are zero here.
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

/// The context for asynchronous I/O, shared by the workers of all ports of the process.
struct Context {
    id: libc::c_ulong,
    /// An eventfd that is always readable.
    readable: OwnedFd,
    submitted: AtomicU32,
}

impl Context {
    fn new() -> io::Result<Self> {
        let readable = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut id: libc::c_ulong = 0;
        // SAFETY: the kernel writes the context's id to `id`, which is zero as required.
        match unsafe { libc::syscall(libc::SYS_io_setup, RING, &raw mut id) } {
            0 => Ok(Self { id, readable, submitted: AtomicU32::new(0) }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns true if the kernel accepted the request.
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

    /// Discards completed operations.
    #[cold]
    fn reap(&self) {
        let mut completions = [Completion::default(); RING as usize];
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes up to RING completions, for which there is room, and reads the
        // timeout.
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

/// The context of the process, once it was created.
static CONTEXT: OnceLock<Context> = OnceLock::new();

/// Creates the context, unless it exists. `fs.aio-max-nr` is one limit for the whole machine, so
/// any user can exhaust it at any time, and release it again: each port tries anew.
pub(crate) fn prepare() {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = lock(&ONE_AT_A_TIME);
    if CONTEXT.get().is_none()
        && let Ok(context) = Context::new()
    {
        let _ = CONTEXT.set(context);
    }
}

/// How a signal was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Signal {
    Sent,
    /// The peer made the write wait for [`PATIENCE`].
    Delayed,
    /// Not sent: neither asynchronous I/O nor a timer is available.
    Unsent,
}

/// Adds one to the counter of `event`, an eventfd, unless it is full. Waits for the peer for at
/// most [`PATIENCE`], and never if asynchronous I/O is available.
#[inline]
pub(crate) fn signal(event: BorrowedFd<'_>) -> Signal {
    let Some(context) = CONTEXT.get() else { return write_in_time(event) };
    if context.signal(event) {
        return Signal::Sent;
    }
    // All completion slots are in use: other threads have signalled meanwhile.
    context.reap();
    match context.signal(event) {
        true => Signal::Sent,
        false => write_in_time(event),
    }
}

/// Maximum time that one write may wait. It is longer than the kernel's tick (usually 4 ms), so
/// that the alarm is rarely the next timer of its CPU: programming the hardware timer of a virtual
/// CPU takes ten times as long as the write.
pub(crate) const PATIENCE: Duration = Duration::from_millis(5);

/// [`signal`] without asynchronous I/O.
#[cold]
pub(crate) fn write_in_time(event: BorrowedFd<'_>) -> Signal {
    let mut fds = [PollFd::from_borrowed_fd(event, PollFlags::OUT)];
    if !matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1)) {
        // The counter is full: the peer has been signalled.
        return Signal::Sent;
    }
    // A peer may fill the counter just now.
    let write = || rustix::io::write(event, &1u64.to_ne_bytes());
    match Alarm::around(write) {
        Ok(Err(Errno::INTR)) => Signal::Delayed,
        Ok(_) => Signal::Sent,
        Err(_) => Signal::Unsent,
    }
}

/// A timer that interrupts system calls of the thread that created it.
struct Alarm(libc::timer_t);

impl Alarm {
    /// Signal of the alarm; the program uses it for nothing else.
    const SIGNAL: libc::c_int = libc::SIGURG;

    /// Makes a system call, which is interrupted if it waits for [`PATIENCE`].
    fn around<T>(call: impl FnOnce() -> T) -> io::Result<T> {
        thread_local! {
            static ALARM: OnceCell<Alarm> = const { OnceCell::new() };
        }
        ALARM.with(|cell| {
            if cell.get().is_none() {
                let _ = cell.set(Self::new()?);
            }
            let alarm = cell.get().expect("set above");
            // The alarm repeats until it interrupts the call, so it does not matter if it first
            // fires before the call begins.
            alarm.set(PATIENCE)?;
            let result = call();
            alarm.set(Duration::ZERO)?;
            Ok(result)
        })
    }

    fn new() -> io::Result<Self> {
        extern "C" fn on_signal(_: libc::c_int) {}
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            // SAFETY: an all-zero sigaction is valid. The handler does nothing; without SA_RESTART
            // it ends the system call that it interrupts.
            unsafe {
                let mut action: libc::sigaction = mem::zeroed();
                action.sa_sigaction = on_signal as *const () as usize;
                libc::sigaction(Self::SIGNAL, &raw const action, ptr::null_mut());
            }
        });
        let mut timer: libc::timer_t = ptr::null_mut();
        // SAFETY: an all-zero sigevent is valid; the kernel reads it and writes `timer`.
        let created = unsafe {
            let mut event: libc::sigevent = mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = Self::SIGNAL;
            event.sigev_notify_thread_id = libc::gettid();
            libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer)
        };
        match created {
            0 => Ok(Self(timer)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Fires every `period` from now on; never, if it is zero.
    fn set(&self, period: Duration) -> io::Result<()> {
        let period = libc::timespec { tv_sec: 0, tv_nsec: period.subsec_nanos().into() };
        let times = libc::itimerspec { it_interval: period, it_value: period };
        // SAFETY: the timer exists until `self` is dropped; the kernel reads `times`.
        match unsafe { libc::timer_settime(self.0, 0, &raw const times, ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: `new` created the timer, and it is deleted once.
        unsafe { libc::timer_delete(self.0) };
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
    fn every_signal_increments_its_eventfd() {
        let events = [(); 2].map(|()| eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        std::thread::scope(|scope| {
            prepare();
            for event in &events {
                for _ in 0..2 {
                    scope.spawn(|| {
                        (0..5 * RING).for_each(|_| assert_eq!(signal(event.as_fd()), Signal::Sent));
                    });
                }
            }
        });
        for event in &events {
            assert_eq!(counter(event), u64::from(2 * 5 * RING));
        }
    }

    /// The flag that prevents waiting is not set: a process that shares the file can clear it.
    #[test]
    fn full_eventfd_does_not_block_signals() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let (done, wait) = mpsc::channel();
        let copy = event.try_clone().unwrap();
        prepare();
        std::thread::spawn(move || {
            (0..1000).for_each(|_| assert_eq!(signal(copy.as_fd()), Signal::Sent));
            done.send(()).unwrap();
        });
        wait.recv_timeout(Duration::from_secs(10)).expect("signalling does not wait");
    }

    /// `poll` reports room, and then a peer fills the counter.
    #[test]
    fn alarm_interrupts_blocked_write() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let (done, wait) = mpsc::channel();
        std::thread::spawn(move || {
            let result = Alarm::around(|| {
                // Long enough for the alarm to fire before the write.
                std::thread::sleep(3 * PATIENCE);
                rustix::io::write(&event, &1u64.to_ne_bytes())
            });
            done.send(result.unwrap()).unwrap();
        });
        let result = wait.recv_timeout(Duration::from_secs(10)).expect("the write ends");
        assert_eq!(result, Err(rustix::io::Errno::INTR));
    }

    #[test]
    fn write_in_time_increments_eventfd() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        (0..3).for_each(|_| assert_eq!(write_in_time(event.as_fd()), Signal::Sent));
        assert_eq!(counter(&event), 3);
    }
}
