//! A vhost-user front end and a memif client that can violate their protocols. They are written by
//! hand, because a library would not: messages are bytes on a socket, rings are bytes in a file.
//!
//! * `message`: bytes and file descriptors on the socket, and the messages of an conforming
//!   handshake.
//! * `memory`: the shared file, and the offsets of rings and buffers in it.
//! * `ring`: descriptors, split and packed.
//! * `client`: the memif client: messages and rings.
//! * `violations`: the violations, and the expected outcome of each.
//! * `neighbours`: two well-behaved ports that exchange numbered frames meanwhile.
//! * `partner`: the well-behaved port that the hostile peer's port is paired with.
//! * `ours`, `testpmd`: the switches under test.
#![forbid(unsafe_code)]
#![allow(unreachable_pub, reason = "fuzz/ uses a part of this")]

pub mod client;
mod memory;
mod message;
pub mod neighbours;
pub mod ours;
pub mod partner;
mod ring;
pub mod testpmd;
mod timed;
pub mod violations;

pub use client::Client;
pub use message::HostileDriver;

use std::path::Path;
use std::time::{Duration, Instant};

/// Time limit for every wait; far longer than anything here takes on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Returns true if `done` becomes true within [`PATIENCE`].
pub fn wait_until(mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Expected outcome of a violation.
#[derive(Clone, Copy, Debug)]
pub enum Expect {
    /// The hostile peer is disconnected, for a reason that contains this text.
    Refused(&'static str),
    /// The protocol permits it. The hostile peer stays connected.
    Harmless,
    /// The hostile peer's frames are counted as malformed. It stays connected.
    Malformed,
    /// The hostile peer never has room for a frame, which is counted as too long. It stays
    /// connected.
    NoRoom,
    /// The hostile peer disconnects by itself.
    Left,
    /// The port does not notice: the hostile peer has not requested it.
    Unnoticed,
    /// A race decides: disconnected for any reason, or not.
    Any,
}

/// A protocol violation, or something else that no peer should do.
pub struct Violation<L = HostileDriver> {
    pub name: &'static str,
    /// Commits it on a newly connected socket.
    pub commit: fn(&mut L),
    pub expect: Expect,
}

/// Creates a violation.
pub const fn violation<L>(name: &'static str, expect: Expect, commit: fn(&mut L)) -> Violation<L> {
    Violation { name, commit, expect }
}

/// A peer of one kind of port that can violate its protocol.
pub trait HostilePeer: Sized + Send {
    /// Connects to the port's socket.
    fn connect(path: &Path) -> Self;

    /// Returns the URI of the port that listens at `path`.
    fn port(path: &Path) -> String;

    /// Returns the URI of a well-behaved peer of that port.
    fn conforming(path: &Path) -> String;
}

impl HostilePeer for HostileDriver {
    fn connect(path: &Path) -> Self {
        Self::connect(path)
    }

    fn port(path: &Path) -> String {
        format!("vhost:{}", path.display())
    }

    fn conforming(path: &Path) -> String {
        format!("virtio:{}?hugepages=0", path.display())
    }
}

impl HostilePeer for Client {
    fn connect(path: &Path) -> Self {
        Self::connect(path)
    }

    fn port(path: &Path) -> String {
        format!("memif:{}?role=server", path.display())
    }

    fn conforming(path: &Path) -> String {
        format!("memif:{}", path.display())
    }
}
