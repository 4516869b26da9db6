//! Event descriptors: how one side of a port wakes the other.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::time::Timespec;

use crate::aio;

/// An eventfd, ours or a peer's.
#[derive(Debug)]
pub(crate) struct Event {
    fd: OwnedFd,
    /// Whether a peer has it as well, and may do with it what it likes.
    shared: bool,
}

impl Event {
    /// One that nobody else has.
    pub(crate) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd, shared: false })
    }

    /// One to be passed to a peer.
    pub(crate) fn for_peer() -> io::Result<Self> {
        Ok(Self { shared: true, ..Self::new()? })
    }

    /// What a peer passed as an event. Anything but an eventfd could block who signals it, or never
    /// be quiet.
    pub(crate) fn from_peer(fd: OwnedFd) -> io::Result<Self> {
        use std::os::fd::AsRawFd;
        let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        if link.as_os_str() != "anon_inode:[eventfd]" {
            return Err(io::Error::other(format!("{} is no eventfd", link.display())));
        }
        Ok(Self { fd, shared: true })
    }

    /// Adds one. Where the counter is full the other side has been told often enough. Never waits,
    /// whatever a peer has done to it.
    pub(crate) fn signal(&self) {
        if self.shared {
            aio::signal(self.fd.as_fd());
        } else {
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Sets one that nobody else has back to zero.
    pub(crate) fn clear(&self) {
        debug_assert!(!self.shared, "reading it could wait");
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What a data thread sleeps on: our own event, and the events of a peer. The peer's are watched
/// edge-triggered and never read: a read could block, for who else reads them is not known.
#[derive(Debug)]
pub(crate) struct Wakes {
    epoll: OwnedFd,
    own: Event,
}

impl Wakes {
    pub(crate) fn new() -> io::Result<Self> {
        let wakes = Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, own: Event::new()? };
        wakes.watch(wakes.own.as_fd())?;
        Ok(wakes)
    }

    pub(crate) fn watch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let data = epoll::EventData::new_u64(0);
        Ok(epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?)
    }

    pub(crate) fn forget(&self, fd: BorrowedFd<'_>) {
        // It may never have been watched.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Wakes the sleeper.
    pub(crate) fn wake(&self) {
        self.own.signal();
    }

    /// Forgets what has happened so far.
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
