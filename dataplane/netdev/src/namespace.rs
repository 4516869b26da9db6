//! Network namespaces (network_namespaces(7)).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
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
            // SAFETY: the flag changes no memory, and no other thread's namespace. This thread ends
            // here.
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

    /// Returns the namespace's cookie, which no other namespace has until the next boot; `None`
    /// before Linux 5.14.
    ///
    /// # Errors
    /// It is no network namespace, or this process may not enter it.
    pub fn cookie(&self) -> io::Result<Option<u64>> {
        self.enter(|| {
            // A socket of any kind belongs to the namespace.
            let socket = UnixDatagram::unbound()?;
            let mut cookie = 0u64;
            let mut len = size_of_val(&cookie) as libc::socklen_t;
            // SAFETY: the kernel writes at most `len` bytes to `cookie`, and `len` itself.
            let done = unsafe {
                libc::getsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_NETNS_COOKIE,
                    (&raw mut cookie).cast(),
                    &raw mut len,
                )
            };
            match done {
                0 => Ok(Some(cookie)),
                _ => match io::Error::last_os_error() {
                    error if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(None),
                    error => Err(error),
                },
            }
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
