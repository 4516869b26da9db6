//! Network namespaces (network_namespaces(7)).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::thread;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// An open network namespace.
#[derive(Debug)]
pub struct NetworkNamespace(OwnedFd);

impl NetworkNamespace {
    /// Makes a new, empty network namespace that lives as long as this value.
    pub fn scratch() -> io::Result<Self> {
        on_a_thread(|| {
            // SAFETY: the flag changes no memory, and no other thread's namespace. This thread ends here.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET)? };
            Self::current()
        })
    }

    /// The calling thread's network namespace.
    pub fn current() -> io::Result<Self> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// Opens the network namespace whose file is `path`. Another file fails when it is entered.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(File::open(path)?.into()))
    }

    /// Runs `work` on a thread inside the namespace. A socket made there stays there.
    ///
    /// # Errors
    /// Those of `work`, and if it is no network namespace, or this process may not enter it.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        on_a_thread(|| {
            move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network))?;
            work()
        })
    }

    /// Duplicates the descriptor of the namespace.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Runs `work` on a thread of its own: the thread's namespace changes end with it.
pub fn on_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
