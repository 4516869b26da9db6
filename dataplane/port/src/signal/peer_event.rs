//! An event descriptor that is shared with a peer.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use dray_shm::name_of;
use rustix::event::{EventfdFlags, eventfd};

use crate::signal::control_wake::ControlWake;
use crate::signal::event::Shared;

/// An eventfd that is shared with a peer. The peer can make it blocking, fill or drain it, and
/// attach any number of watchers.
///
/// The port's control thread closes it, because closing one with many watchers takes long.
#[derive(Clone, Debug)]
pub(crate) struct PeerEvent {
    shared: Arc<Shared>,
    wake: Arc<ControlWake>,
}

impl PeerEvent {
    /// Creates an event to pass to a peer.
    pub(crate) fn for_peer(wake: &Arc<ControlWake>) -> io::Result<Self> {
        Ok(Self::of(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?, wake))
    }

    /// Wraps an event that a peer passed. Any other kind of descriptor is refused, because it could
    /// block the thread that signals it, or be readable all the time.
    pub(crate) fn from_peer(fd: OwnedFd, wake: &Arc<ControlWake>) -> io::Result<Self> {
        let name = name_of(&fd);
        if name != "anon_inode:[eventfd]" {
            return Err(io::Error::other(format!("{name} is not an eventfd")));
        }
        Ok(Self::of(fd, wake))
    }

    fn of(fd: OwnedFd, wake: &Arc<ControlWake>) -> Self {
        let shared = Arc::new(Shared::new(fd));
        wake.register(&shared);
        Self { shared, wake: wake.clone() }
    }

    /// Adds one to the counter, unless it is full: then the peer has been signalled. Never waits,
    /// whatever a peer has done to the event.
    #[inline]
    pub(crate) fn signal(&self) {
        self.wake.signal_peer(&self.shared);
    }
}

impl AsFd for PeerEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.as_fd()
    }
}
