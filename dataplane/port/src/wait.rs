//! How ports wait for frames.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::clock;
use crate::uri::query::{Query, UriError};

/// How long a waiting call sleeps before it returns, so that its caller can check whether to stop.
pub const PATIENCE: Duration = Duration::from_millis(10);

/// How [`Receive::receive`](crate::Receive::receive) waits for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Sleep in the kernel until a frame arrives.
    Block,
    /// Return at once; after a call that found the queue nearly empty, make no system call for this
    /// long. Each look at an empty queue takes the socket's cache lines from the CPU that is about
    /// to fill it, which slows the sender: by a fifth where it was measured. Ports without a socket
    /// do not pause, because polling a ring costs the peer nothing.
    Poll {
        /// The pause, in microseconds.
        pause_us: u32,
    },
}

impl Wait {
    pub(crate) const PAUSE_US: u32 = 20;
    /// Polling with the default pause.
    pub const POLL: Self = Self::Poll { pause_us: Self::PAUSE_US };

    /// Takes the key `wait`, whose value is `block` or `poll` (without a pause).
    pub(crate) fn parse(query: &mut Query<'_>) -> Result<Self, UriError> {
        let wait = query.take("wait", "block or poll", |text| match text {
            "block" => Some(Self::Block),
            "poll" => Some(Self::Poll { pause_us: 0 }),
            _ => None,
        })?;
        Ok(wait.unwrap_or(Self::Block))
    }

    /// Returns the key and value for a URI, if they differ from the default.
    pub(crate) fn pair(self) -> Option<(&'static str, String)> {
        (self != Self::Block).then(|| ("wait", "poll".to_owned()))
    }
}

/// Pause between system calls of a port that polls ([`Wait::Poll`]).
#[derive(Default)]
pub(crate) struct PollPause {
    /// Tick at which the pause ends.
    until: u64,
}

impl PollPause {
    /// Returns true if the port must not make a system call yet.
    pub(crate) fn is_active(&self, wait: Wait) -> bool {
        matches!(wait, Wait::Poll { pause_us: 1.. }) && clock::ticks() < self.until
    }

    /// Starts the pause, after a call that found the queue nearly empty.
    pub(crate) fn start(&mut self, wait: Wait) {
        if let Wait::Poll { pause_us: pause_us @ 1.. } = wait {
            let pause = u64::from(pause_us) * clock::ticks_per_second() / 1_000_000;
            self.until = clock::ticks() + pause;
        }
    }
}

/// Sleeps until one of `fds` is readable, for at most [`PATIENCE`].
pub(crate) fn sleep_on(fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    sleep_for(fds, PATIENCE)
}

/// Sleeps until one of `fds` is readable, for at most `time`, less than a second.
pub(crate) fn sleep_for(fds: &[BorrowedFd<'_>], time: Duration) -> io::Result<()> {
    let mut fds: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
    match poll(&mut fds, Some(&time)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
