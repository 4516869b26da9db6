//! Event descriptors: how one side of a port wakes the other.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
///
/// Each event of a peer is in an epoll of its own, which is in the one that the data thread uses. To add
/// or remove a watcher the kernel locks the epoll, and then the event, which a peer can keep locked: it
/// signals one with many watchers. Only the control thread waits then.
#[derive(Debug)]
pub(crate) struct Wakes {
    epoll: OwnedFd,
    own: Event,
    /// For each event of a peer its descriptor, and the epoll that it is in. Only the control thread
    /// uses this list.
    watched: Mutex<Vec<(RawFd, OwnedFd)>>,
}

impl Wakes {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wakes = Self { epoll, own: Event::new()?, watched: Mutex::default() };
        watch(&wakes.epoll, wakes.own.as_fd())?;
        Ok(wakes)
    }

    fn watched(&self) -> MutexGuard<'_, Vec<(RawFd, OwnedFd)>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn watch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let inner = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&inner, fd)?;
        watch(&self.epoll, inner.as_fd())?;
        self.watched().push((fd.as_raw_fd(), inner));
        Ok(())
    }

    pub(crate) fn forget(&self, fd: BorrowedFd<'_>) {
        let mut watched = self.watched();
        // It may never have been watched.
        if let Some(at) = watched.iter().position(|(number, _)| *number == fd.as_raw_fd()) {
            let (_, inner) = watched.swap_remove(at);
            // Before it is closed, which takes as long as the peer likes.
            let _ = epoll::delete(&self.epoll, &inner);
        }
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
    fn a_sleeper_wakes_for_each_kick_until_it_is_forgotten() {
        let wakes = Wakes::new().unwrap();
        let kick = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let signal = || rustix::io::write(&kick, &1u64.to_ne_bytes()).unwrap();
        assert!(!wakes_now(&wakes));
        for _ in 0..2 {
            wakes.watch(kick.as_fd()).unwrap();
            wakes.clear();
            // Never read, it is readable for ever; only what is new counts.
            for _ in 0..3 {
                signal();
                assert!(wakes_now(&wakes));
                wakes.clear();
                assert!(!wakes_now(&wakes), "nothing is new");
            }
            wakes.wake();
            assert!(wakes_now(&wakes));
            wakes.clear();
            wakes.forget(kick.as_fd());
            signal();
            assert!(!wakes_now(&wakes), "nobody listens to it");
            wakes.forget(kick.as_fd());
        }
    }
}
