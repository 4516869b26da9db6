//! Event descriptors: how one side of a port wakes the other.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dray_shm::name_of;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::time::Timespec;

use crate::attention::Attention;

/// An eventfd that nobody else has.
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Adds one. Where the counter is full the other side has been told often enough.
    pub(crate) fn signal(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Sets it back to zero.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An eventfd that a peer has as well, which may do with it what it likes: make it blocking, fill or
/// drain it, and hang any number of watchers on it.
///
/// It is closed by the port's control thread: to close one with many watchers takes long.
#[derive(Clone, Debug)]
pub(crate) struct PeerEvent {
    shared: Arc<Shared>,
    attention: Arc<Attention>,
}

/// The part of a peer's event that the control thread needs to signal it.
#[derive(Debug)]
pub(crate) struct Shared {
    fd: OwnedFd,
    /// Whether a data thread left a signal to the control thread.
    pub(crate) owed: AtomicBool,
}

impl PeerEvent {
    /// One to be passed to a peer.
    pub(crate) fn for_peer(attention: &Arc<Attention>) -> io::Result<Self> {
        Ok(Self::of(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?, attention))
    }

    /// What a peer passed as an event. Anything but an eventfd could block who signals it, or never
    /// be quiet.
    pub(crate) fn from_peer(fd: OwnedFd, attention: &Arc<Attention>) -> io::Result<Self> {
        let name = name_of(&fd);
        if name != "anon_inode:[eventfd]" {
            return Err(io::Error::other(format!("{name} is no eventfd")));
        }
        Ok(Self::of(fd, attention))
    }

    fn of(fd: OwnedFd, attention: &Arc<Attention>) -> Self {
        let shared = Arc::new(Shared { fd, owed: AtomicBool::new(false) });
        attention.register(&shared);
        Self { shared, attention: attention.clone() }
    }

    /// Adds one. Where the counter is full the other side has been told often enough. Never waits,
    /// whatever a peer has done to it.
    #[inline]
    pub(crate) fn signal(&self) {
        self.attention.signal_peer(&self.shared);
    }
}

impl AsFd for PeerEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.as_fd()
    }
}

impl AsFd for Shared {
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
