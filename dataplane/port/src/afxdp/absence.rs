//! Handling of an interface that was removed, or whose driver resets.

use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::socket::Socket;

/// Maximum time for which a driver may reset.
const RESET_MAX: Duration = Duration::from_secs(10);

/// How one half of a port handles `ENXIO`: the kernel returns it once the interface was removed,
/// and zero-copy drivers return it while they reset, as when a program is attached or the link goes
/// down or up.
#[derive(Default)]
pub(super) struct Absence {
    since: Option<Instant>,
}

impl Absence {
    /// Records a call without an error.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.since = None;
    }

    /// Checks the error of a call: a reset of the driver is no error, unless it takes too long.
    #[cold]
    pub(super) fn check(&mut self, socket: &Socket, error: io::Error) -> io::Result<()> {
        if Errno::from_io_error(&error) != Some(Errno::NXIO) {
            return Err(error);
        }
        let name = socket.interface().name();
        if socket.is_gone() {
            let what = format!("the interface {name} was removed");
            return Err(io::Error::new(io::ErrorKind::NotFound, what));
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() < RESET_MAX {
            return Ok(());
        }
        let seconds = RESET_MAX.as_secs();
        let what = format!("the driver of {name} has not been ready for {seconds} s ({error})");
        Err(io::Error::new(io::ErrorKind::TimedOut, what))
    }
}
