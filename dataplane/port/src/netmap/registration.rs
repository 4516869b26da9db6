//! Descriptor of netmap that a ring pair is bound to.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use super::calls::{self, Direction};

/// A descriptor that is bound to one ring pair. Dropping it gives the rings back to netmap.
pub(super) struct Registration {
    pub(super) device: OwnedFd,
    pub(super) gone: Arc<Gone>,
}

/// Signals to a port's halves and its link that netmap has stopped the port's rings.
#[derive(Default)]
pub(super) struct Gone {
    pub(super) body: String,
    pub(super) is_gone: AtomicBool,
}

impl Registration {
    #[inline]
    pub(super) fn sync(&self, direction: Direction) -> io::Result<()> {
        calls::sync(self.device.as_fd(), direction).map_err(|error| self.explain(error))
    }

    #[cold]
    fn explain(&self, error: io::Error) -> io::Error {
        if Errno::from_io_error(&error) != Some(Errno::IO) {
            return error;
        }
        self.gone.is_gone.store(true, Ordering::Relaxed);
        let what = format!("the netmap port {} was removed", self.gone.body);
        io::Error::new(io::ErrorKind::NotFound, what)
    }
}

impl AsFd for Registration {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
