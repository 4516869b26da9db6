//! Ports: endpoints that frames are received from and transmitted to.
//!
//! A port is two independent halves, so that a forwarder can transmit frames through one half while
//! another lends them:
//!
//! * [`Receive`] *lends* frames in place, for the duration of a call.
//! * [`Transmit`] *copies* frames to the port's peer.
//!
//! Nothing between the two owns a frame, so forwarding a frame copies it once. Every transport is a
//! folder here, and every port is named by a URI ([`PortUri`]).
//!
//! A forwarder between two ports:
//!
//! ```
//! use dray_port::{Port, PortUri};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let [near, far] = ["a", "b"].map(|name| folder.path().join(name).display().to_string());
//! let from: PortUri = format!("unix:{near}?wait=poll").parse()?;
//! let to: PortUri = "null:".parse()?;
//! let Port { mut rx, .. } = from.open()?;
//! let Port { mut tx, .. } = to.open()?;
//! # let far: PortUri = format!("unix:{far}?peer={near}").parse()?;
//! # far.open()?.tx[0].transmit(&[dray_port::Frame::from(&[0; 64][..])])?;
//! let mut failed = None;
//! let lent = rx[0].receive(&mut |frames| {
//!     // Frames that are not taken are lent again by the next call.
//!     tx[0].transmit(frames).unwrap_or_else(|error| {
//!         failed = Some(error);
//!         frames.len()
//!     })
//! })?;
//! assert!(lent == 1 && failed.is_none());
//! # Ok(())
//! # }
//! ```

pub mod afxdp;
pub mod clock;
mod ends;
mod fill;
mod frame;
pub mod impair;
mod lock;
mod lost;
pub mod memif;
pub mod memory;
pub mod netmap;
pub mod null;
pub mod raw;
mod session;
mod signal;
mod socket;
pub mod tap;
mod total;
pub mod udp;
pub mod unix_datagram;
mod uri;
pub mod vhost;
pub mod virtio;
mod vnet;
pub mod vxlan;
mod wait;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use dray_netdev::privilege::{self, Capability};
use dray_wire::offload::Offloads;

pub use dray_bpf::{BypassEntry, Bypassed};
pub use dray_shm::guard::{GUARDED_IN_ALL, guarded, limit_guarded, survive_truncation};
pub use dray_shm::share_heap;
pub use ends::limits::MemoryLimits;
pub use fill::Fill;
pub use frame::finisher::{Finished, Finisher};
pub use frame::{
    BATCH_MAX, FRAME_LIMIT, Frame, HEAD_MAX, OFFLOADED_LIMIT, Scratch, ahead, prefetch, scratch,
};
pub use lost::{Loss, Lost};
pub use session::link::Link;
pub use session::snapshot::{Frozen, MessageBytes, PausedPort, PortSnapshot, Resumption};
pub use session::status::{LinkState, LinkStatus};
pub use socket::SocketOptions;
pub use uri::bytes::{Bytes, BytesError};
pub use uri::query::{self, UriError};
pub use uri::{Bound, PortUri};
pub use wait::{PATIENCE, Wait};

/// A batch of at most [`BATCH_MAX`] frames.
pub type Batch<'a> = ArrayVec<Frame<'a>, BATCH_MAX>;

/// Callback for the frames that a [`Receive`] lends; returns how many of them it took.
pub type Take<'t> = dyn FnMut(&[Frame<'_>]) -> usize + 't;

/// The receiving half of a port.
pub trait Receive: Send {
    /// Lends the frames that have arrived, in order, to `take`, and returns how many it lent.
    /// Frames at the end that `take` did not take stay queued and are lent again by the next call.
    /// `take` is not called when there is no frame (a port that waits does so for at most
    /// [`PATIENCE`], so that the caller can check whether to stop).
    ///
    /// # Errors
    /// The kernel's error, if the port can no longer receive: its interface is gone, for example. A
    /// peer that disconnects or violates the protocol is no error; [`Port::link`] reports it.
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize>;

    /// Returns the number of frames lost at this port: those [missed](Self::missed) and those
    /// [refused](Self::refused). None of these numbers ever decreases.
    fn dropped(&self) -> io::Result<u64> {
        Ok(self.missed()? + self.refused())
    }

    /// Returns the number of frames that were not received in time: the kernel had no room for
    /// more.
    fn missed(&self) -> io::Result<u64> {
        Ok(0)
    }

    /// Returns the number of frames that were invalid, or longer than [`FRAME_LIMIT`].
    fn refused(&self) -> u64 {
        0
    }

    /// Returns the fill of the ring that the peer fills; `None` without such a ring or a peer.
    fn fill(&self) -> Option<Fill> {
        None
    }

    /// Returns the descriptor that becomes readable when a frame arrives, if the port has one. Some
    /// ports signal it only while they are [`armed`](Self::arm).
    fn event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns the descriptors with which another process can continue to receive and transmit
    /// ([`PortUri::resume`]), if these are all it needs.
    fn devices(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// Makes [`receive`](Self::receive) lend only frames that have already left the kernel
    /// (`true`), or all frames (`false`). Returns true if there are such frames: they would be lost
    /// if another process continued now.
    fn drain(&mut self, on: bool) -> bool {
        let _ = on;
        false
    }

    /// Called before a sleep on [`event`](Self::event) (`true`) and after it (`false`). Returns
    /// true if a frame is already there, so that the caller must not sleep.
    fn arm(&mut self, on: bool) -> bool {
        let _ = on;
        false
    }

    /// Sets how [`receive`](Receive::receive) waits. A loop over several ports must not block in
    /// one of them. Ports that never wait ignore this.
    fn set_wait(&mut self, wait: Wait) {
        let _ = wait;
    }
}

/// Sleeps until one of `ports` may have a frame, for at most `time`, less than a second.
pub fn wait_any(ports: &mut [&mut dyn Receive], time: Duration) -> io::Result<()> {
    let mut ready = false;
    for port in ports.iter_mut() {
        ready |= port.arm(true);
    }
    let events: Vec<BorrowedFd<'_>> = ports.iter().filter_map(|port| port.event()).collect();
    let slept = if ready { Ok(()) } else { wait::sleep_for(&events, time) };
    for port in ports.iter_mut() {
        port.arm(false);
    }
    slept
}

/// The transmitting half of a port.
pub trait Transmit: Send {
    /// Copies every byte of `frames` to the peer, in order, and returns how many frames were taken.
    /// If the port is full, it takes fewer than all. Pass only frames that the port
    /// [`accepts`](Self::accepts): other frames are dropped or cause an error, depending on the
    /// port.
    ///
    /// # Errors
    /// The kernel's error, if the port can no longer transmit. Frames before the failure may have
    /// been sent.
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize>;

    /// Returns the length in bytes of the longest untagged frame that this port transmits. A frame
    /// with an 802.1Q VLAN tag may be 4 bytes longer.
    fn frame_max(&self) -> usize;

    /// Makes [`transmit`](Self::transmit) never wait. By default it may wait for up to [`PATIENCE`]
    /// while the peer takes no more frames, as flow control for a sender. In a loop over several
    /// ports one port must not delay the others.
    fn never_wait(&mut self) {}

    /// Returns true if there is a peer to transmit to.
    fn is_ready(&self) -> bool {
        true
    }

    /// Returns a lower bound of the number of frames that were taken but have not reached the peer.
    /// They are lost if the port is closed now.
    fn pending(&mut self) -> usize {
        0
    }

    /// Returns the frames that were taken but can never be delivered.
    fn lost(&self) -> &Lost {
        Lost::none()
    }

    /// Returns the number of frames that were taken but could never be delivered.
    fn dropped(&self) -> u64 {
        self.lost().total()
    }

    /// Returns the fill of the ring that the peer empties; `None` without such a ring or a peer.
    fn fill(&self) -> Option<Fill> {
        None
    }

    /// Returns the offloads that [`transmit`](Self::transmit) accepts at present; it drops frames
    /// with other offloads. A [`Finisher`] turns such frames into frames without an offload.
    fn offloads(&self) -> Offloads {
        Offloads::NONE
    }

    /// Returns true if the port can transmit `frame` at all. A frame from another port may be too
    /// long, or of a kind that this port does not carry.
    fn accepts(&self, frame: &Frame<'_>) -> bool {
        frame.fits(self.frame_max()) && !frame.has_offload()
    }

    /// Returns the number of frames before the first one that the port does not
    /// [accept](Self::accepts), by one virtual call for a batch.
    fn accepted(&self, frames: &[Frame<'_>]) -> usize {
        frames.iter().take_while(|frame| self.accepts(frame)).count()
    }
}

/// An open port: one receiving and one transmitting half per queue, at least one of each.
pub struct Port {
    /// The receiving halves.
    pub rx: Vec<Box<dyn Receive>>,
    /// The transmitting halves; all frames of a flow should use the same one.
    pub tx: Vec<Box<dyn Transmit>>,
    /// The port's peer, for transports whose peers connect and disconnect.
    pub link: Option<Arc<dyn Link>>,
}

/// Error: a port could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("port {uri}: {what}: {error}{hint}")]
pub struct OpenError {
    uri: String,
    what: &'static str,
    error: io::Error,
    hint: String,
}

/// The call that registers an AF_XDP port's memory with the kernel.
const UMEM_REGISTRATION: &str = "XDP_UMEM_REG";

impl OpenError {
    /// Returns true if permissions forbid opening the port (`EACCES`, or `EPERM` for an abstract
    /// socket).
    pub fn is_denied(&self) -> bool {
        matches!(self.error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
    }

    /// Returns true if this process finds no such directory for the socket.
    pub fn is_not_found(&self) -> bool {
        self.error.kind() == io::ErrorKind::NotFound
    }

    /// Creates the error for the port `uri`; `what` is the part of it that failed.
    pub fn new(uri: &impl ToString, what: &'static str, error: io::Error) -> Self {
        let hint = match error.raw_os_error() {
            Some(libc::EACCES) if what == "connect" => {
                "; this needs write permission for the socket and access to its directory"
            }
            Some(libc::EACCES) if what == "socket" => {
                "; this needs write permission for the socket's directory"
            }
            Some(libc::EMFILE) => {
                "; a port takes several file descriptors, so raise the limit (`ulimit -Hn`, systemd's \
                 LimitNOFILE)"
            }
            Some(libc::ENOBUFS) if what == UMEM_REGISTRATION => {
                "; the memory counts against the limit on locked memory (`ulimit -l`, systemd's \
                 LimitMEMLOCK), unless the process has CAP_IPC_LOCK"
            }
            Some(libc::ENODEV) => "; `ip link` lists the interfaces of this namespace",
            Some(libc::EADDRINUSE) if what == "bind" => {
                "; another socket, or a vxlan interface of the kernel, has this address and port"
            }
            Some(libc::EADDRNOTAVAIL) => "; the local address must be one of this namespace's own",
            _ => "",
        };
        Self { uri: uri.to_string(), what, error, hint: hint.to_owned() }
    }

    /// Adds a hint if a lack of the capabilities `needed` can cause the error.
    fn needing(mut self, needed: &[Capability]) -> Self {
        let denied = [Some(libc::EPERM), Some(libc::EACCES)];
        if !needed.is_empty() && denied.contains(&self.error.raw_os_error()) {
            self.hint = privilege::hint(needed);
        }
        self
    }

    /// Returns true if the process lacks a privilege (any permission error).
    pub fn is_permission_denied(&self) -> bool {
        self.error.kind() == io::ErrorKind::PermissionDenied
    }
}
