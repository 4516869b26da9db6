//! Ports: what frames are received from and transmitted to.
//!
//! A port is two independent halves, so that a forwarder can hold frames lent by one half while it
//! transmits through another:
//!
//! * [`Receive`] *lends* frames where they lie; they go back when the batch is dropped.
//! * [`Transmit`] *copies* frames to the port's peer.
//!
//! Nothing in between owns a frame, so a frame is copied once on its way. Every transport is a
//! folder here, and every port is named by a URI ([`PortUri`]).

pub mod clock;
pub mod null;
mod query;
pub mod raw;
mod socket;
pub mod udp;
mod uri;

use std::io;
use std::os::fd::BorrowedFd;

use arrayvec::ArrayVec;

pub use query::UriError;
pub use socket::{PATIENCE, SocketOptions, Wait};
pub use uri::PortUri;

/// The most frames that one call receives or transmits.
pub const BATCH_MAX: usize = 256;

/// Frames lent by a [`Receive`], each from its destination MAC to the end of its payload.
pub type Batch<'a> = ArrayVec<&'a [u8], BATCH_MAX>;

/// The receiving half of a port.
pub trait Receive: Send {
    /// Fills the empty `batch` with frames that have arrived, in order; leaves it empty where there
    /// are none (a port that waits does so for at most [`PATIENCE`], so that its user can
    /// see that it should stop).
    fn receive<'a>(&'a mut self, batch: &mut Batch<'a>) -> io::Result<()>;

    /// How many frames were lost at this port because they were not received in time, or were
    /// longer than any frame may be.
    fn dropped(&self) -> io::Result<u64>;

    /// What becomes readable when a frame arrives, where the port has such a thing.
    fn event(&self) -> Option<BorrowedFd<'_>>;

    /// Sets how [`receive`](Receive::receive) waits: a loop over several ports must not let one of
    /// them block.
    fn set_wait(&mut self, wait: Wait);
}

/// The transmitting half of a port.
pub trait Transmit: Send {
    /// Copies `frames` to the peer, in order, and returns how many it took. Fewer than all means
    /// that the port is full at present; the others are still the caller's.
    fn transmit(&mut self, frames: &[&[u8]]) -> io::Result<usize>;

    /// The longest frame that this port transmits, in bytes.
    fn frame_max(&self) -> usize;

    /// Whether the port can transmit `frame` at all. A frame from elsewhere may be too long for it,
    /// or of a kind that it does not carry.
    fn accepts(&self, frame: &[u8]) -> bool {
        frame.len() <= self.frame_max()
    }
}

/// Both halves of an open port.
pub struct Port {
    /// The receiving half.
    pub rx: Box<dyn Receive>,
    /// The transmitting half.
    pub tx: Box<dyn Transmit>,
}

/// A port could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("port {uri}: {what}: {error}{hint}")]
pub struct OpenError {
    uri: String,
    what: &'static str,
    error: io::Error,
    hint: &'static str,
}

impl OpenError {
    pub(crate) fn new(uri: &impl ToString, what: &'static str, error: io::Error) -> Self {
        let hint = match error.raw_os_error() {
            Some(libc::EPERM) => "; this needs CAP_NET_RAW, so run it as root",
            Some(libc::ENODEV) => "; `ip link` lists the interfaces of this namespace",
            Some(libc::EADDRNOTAVAIL) => "; the local address must be one of this namespace's own",
            _ => "",
        };
        Self { uri: uri.to_string(), what, error, hint }
    }

    /// Whether what lacked was a privilege.
    pub fn is_permission_denied(&self) -> bool {
        self.error.kind() == io::ErrorKind::PermissionDenied
    }
}

/// Sleeps until one of `ports` may have a frame, at most [`PATIENCE`].
pub fn wait_any<'a>(ports: impl Iterator<Item = &'a dyn Receive>) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    let events: Vec<BorrowedFd<'a>> = ports.filter_map(Receive::event).collect();
    let mut fds: Vec<_> = events.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let patience = rustix::time::Timespec { tv_sec: 0, tv_nsec: PATIENCE.subsec_nanos().into() };
    match poll(&mut fds, Some(&patience)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
