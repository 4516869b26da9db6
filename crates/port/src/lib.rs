//! Ports: what frames are received from and transmitted to.
//!
//! A port is two independent halves, so that a forwarder can hold frames lent by one half while it
//! transmits through another:
//!
//! * [`Receive`] *lends* frames where they lie, for the length of a call.
//! * [`Transmit`] *copies* frames to the port's peer.
//!
//! Nothing in between owns a frame, so a frame is copied once on its way. Every transport is a
//! folder here, and every port is named by a URI ([`PortUri`]).

pub mod afxdp;
mod aio;
mod attention;
mod bytes;
pub mod clock;
mod connection;
mod either;
mod event;
mod frame;
mod fresh;
mod gathered;
pub mod impair;
mod interface;
pub mod limit;
mod link;
pub mod memif;
pub mod memory;
pub mod null;
mod pairs;
pub mod query;
pub mod raw;
mod slot;
mod socket;
pub mod tap;
pub mod udp;
mod unix;
pub mod unix_datagram;
mod uri;
pub mod vhost;
pub mod virtio;
mod wait;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use arrayvec::ArrayVec;

pub use bytes::{Bytes, BytesError};
pub use dray_shm::guard::{GUARDED_IN_ALL, limit_guarded};
pub use frame::{FRAME_LIMIT, Frame, HEAD_MAX, Scratch, ahead, prefetch, scratch};
pub use link::{Link, LinkState, LinkStatus};
pub use query::UriError;
pub use socket::SocketOptions;
pub use uri::PortUri;
pub use wait::{PATIENCE, Wait, wait_any};

/// The most frames that one call receives or transmits.
pub const BATCH_MAX: usize = 256;

/// Bytes at the beginning of a frame in which the frames of a series may differ.
pub const SERIES_HEAD: usize = 64;

/// Some frames, at most [`BATCH_MAX`].
pub type Batch<'a> = ArrayVec<Frame<'a>, BATCH_MAX>;

/// What is done with the frames that a [`Receive`] lends: returns how many of them it took.
pub type Take<'t> = dyn FnMut(&[Frame<'_>]) -> usize + 't;

/// The receiving half of a port.
pub trait Receive: Send {
    /// Lends frames that have arrived, in order, to `take`, and returns how many those were. Those
    /// that `take` did not take, at the end, stay and are lent again next time. Without any frame
    /// `take` is not called (a port that waits does so for at most [`PATIENCE`], so that its user
    /// can see that it should stop).
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize>;

    /// How many frames were lost at this port because they were not received in time, or were
    /// longer than any frame may be.
    fn dropped(&self) -> io::Result<u64>;

    /// What becomes readable when a frame arrives, where the port has such a thing. Some ports say
    /// so only while they are [`armed`](Self::arm).
    fn event(&self) -> Option<BorrowedFd<'_>>;

    /// Before a sleep on [`event`](Self::event) (`true`) and after it (`false`). Whether a frame is
    /// there already, so that nobody should sleep.
    fn arm(&mut self, on: bool) -> bool {
        let _ = on;
        false
    }

    /// Sets how [`receive`](Receive::receive) waits: a loop over several ports must not let one of
    /// them block.
    fn set_wait(&mut self, wait: Wait);
}

/// The transmitting half of a port.
pub trait Transmit: Send {
    /// Copies `frames` to the peer, in order, and returns how many it took. Fewer than all means
    /// that the port is full at present; the others are still the caller's.
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize>;

    /// As [`transmit`](Self::transmit), for frames of one length that differ from each other, and
    /// from all frames of earlier such calls, in their first [`SERIES_HEAD`] bytes only. A port that
    /// transmits from memory of its own need not copy the rest again.
    fn transmit_series(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        self.transmit(frames)
    }

    /// The longest frame that this port transmits, in bytes, without a VLAN tag: with one of 802.1Q,
    /// a frame may be 4 bytes longer.
    fn frame_max(&self) -> usize;

    /// Has the port never wait in [`transmit`](Self::transmit). When it is opened, it may wait for up
    /// to [`PATIENCE`] while its peer takes no more: that is the flow control of a sender that has
    /// nothing else to do. A loop over several ports must not let one of them hold up the others.
    fn never_wait(&mut self) {}

    /// Whether anybody is there to transmit to.
    fn is_ready(&self) -> bool {
        true
    }

    /// Frames, at least, that were taken and that the peer has not had yet: they are lost where the port
    /// is closed before.
    fn pending(&mut self) -> usize {
        0
    }

    /// Frames that were taken and could not be delivered, ever.
    fn dropped(&self) -> u64 {
        0
    }

    /// Whether the port can transmit `frame` at all. A frame from elsewhere may be too long for it,
    /// or of a kind that it does not carry.
    fn accepts(&self, frame: &Frame<'_>) -> bool {
        frame.fits(self.frame_max())
    }
}

/// An open port: of each half one for each of its queues.
pub struct Port {
    /// The receiving halves.
    pub rx: Vec<Box<dyn Receive>>,
    /// The transmitting halves; a flow should keep to one of them.
    pub tx: Vec<Box<dyn Transmit>>,
    /// Its peer, where it has one that comes and goes.
    pub link: Option<Arc<dyn Link>>,
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
    /// Returns true if permissions forbid it.
    pub fn is_denied(&self) -> bool {
        self.error.raw_os_error() == Some(libc::EACCES)
    }

    /// `what` is the part of the port `uri` that could not be had.
    pub fn new(uri: &impl ToString, what: &'static str, error: io::Error) -> Self {
        let hint = match error.raw_os_error() {
            Some(libc::EMFILE) => {
                "; a port takes several file descriptors, so raise the limit (`ulimit -Hn`, systemd's \
                 LimitNOFILE)"
            }
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
