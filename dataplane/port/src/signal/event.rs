//! Event descriptors, by which one side of a port wakes the other.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::time::Timespec;

use crate::lock::lock;

/// An eventfd that is not shared with a peer.
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Adds one to the counter, unless it is full: then the other side has been signalled.
    pub(crate) fn signal(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Resets the counter to zero.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The part of a peer's event that the control thread needs to signal it.
#[derive(Debug)]
pub(crate) struct Shared {
    fd: OwnedFd,
    /// True if a data thread has delegated a signal to the control thread.
    pub(crate) pending: AtomicBool,
}

impl Shared {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self { fd, pending: AtomicBool::new(false) }
    }
}

impl AsFd for Shared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The events that a data thread sleeps on: the port's own event and those of a peer. A peer's
/// event is watched edge-triggered and never read: a read could block, since other processes may
/// read it too.
///
/// Each event of a peer is in an epoll of its own, nested in the one that the data thread uses. To
/// add or remove a watcher the kernel locks the epoll and then the event, and a peer can keep the
/// event locked by signalling it with many watchers attached. This way only the control thread
/// waits.
#[derive(Debug)]
pub(crate) struct Wakes {
    epoll: OwnedFd,
    own: Event,
    /// For each event of a peer, its descriptor and the epoll that contains it. Only the control
    /// thread uses this list.
    watched: Mutex<Vec<(RawFd, OwnedFd)>>,
}

impl Wakes {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wakes = Self { epoll, own: Event::new()?, watched: Mutex::default() };
        watch(&wakes.epoll, wakes.own.as_fd())?;
        Ok(wakes)
    }

    pub(crate) fn watch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let inner = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&inner, fd)?;
        watch(&self.epoll, inner.as_fd())?;
        lock(&self.watched).push((fd.as_raw_fd(), inner));
        Ok(())
    }

    pub(crate) fn unwatch(&self, fd: BorrowedFd<'_>) {
        let mut watched = lock(&self.watched);
        // The event may never have been watched.
        if let Some(at) = watched.iter().position(|(number, _)| *number == fd.as_raw_fd()) {
            let (_, inner) = watched.swap_remove(at);
            // Removed before it is closed: closing takes as long as the peer likes.
            let _ = epoll::delete(&self.epoll, &inner);
        }
    }

    /// Wakes the sleeping data thread.
    pub(crate) fn wake(&self) {
        self.own.signal();
    }

    /// Clears all wake-ups up to now.
    pub(crate) fn clear(&self) {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 4];
        let _ = epoll::wait(&self.epoll, &mut events[..], Some(&Timespec::default()));
    }
}

impl AsFd for Wakes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn watch(epoll: &OwnedFd, fd: BorrowedFd<'_>) -> io::Result<()> {
    let data = epoll::EventData::new_u64(0);
    Ok(epoll::add(epoll, fd, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn wakes_now(wakes: &Wakes) -> bool {
        let mut fds = [PollFd::new(wakes, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn each_kick_wakes_until_unwatched() {
        let wakes = Wakes::new().unwrap();
        let kick = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let signal = || rustix::io::write(&kick, &1u64.to_ne_bytes()).unwrap();
        assert!(!wakes_now(&wakes));
        for _ in 0..2 {
            wakes.watch(kick.as_fd()).unwrap();
            wakes.clear();
            // The event is never read, so it stays readable; only new signals count.
            for _ in 0..3 {
                signal();
                assert!(wakes_now(&wakes));
                wakes.clear();
                assert!(!wakes_now(&wakes), "nothing is new");
            }
            wakes.wake();
            assert!(wakes_now(&wakes));
            wakes.clear();
            wakes.unwatch(kick.as_fd());
            signal();
            assert!(!wakes_now(&wakes), "the kick is not watched");
            wakes.unwatch(kick.as_fd());
        }
    }
}
