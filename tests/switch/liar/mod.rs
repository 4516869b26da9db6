//! A vhost-user front end and a memif client that can violate their protocols. They are written by hand, because a library
//! would not: messages are bytes on a socket, rings are bytes in a file.
//!
//! * `message`: bytes and file descriptors on the socket, and the messages of an honest handshake.
//! * `memory`: the shared file, and the offsets of rings and buffers in it.
//! * `ring`: descriptors, split and packed.
//! * `client`: the memif client: messages and rings.
//! * `lies`: the lies, and the expected outcome of each.
//! * `neighbours`: two well-behaved ports that exchange numbered frames meanwhile.
//! * `partner`: the well-behaved port that the liar's port is paired with.
//! * `ours`, `testpmd`: the switches under test.
#![forbid(unsafe_code)]
#![allow(unreachable_pub, reason = "fuzz/ uses a part of this")]

pub mod client;
pub mod lies;
mod memory;
mod message;
pub mod neighbours;
pub mod ours;
pub mod partner;
mod ring;
pub mod testpmd;
mod timed;

pub use client::Client;
pub use message::Liar;

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

/// Expected outcome of a lie.
#[derive(Clone, Copy, Debug)]
pub enum Expect {
    /// The liar is disconnected, for a reason that contains this text.
    Refused(&'static str),
    /// The protocol permits it. The liar stays connected.
    Harmless,
    /// The liar's frames are counted as malformed. It stays connected.
    Malformed,
    /// The liar never has room for a frame, which is counted as too long. It stays connected.
    NoRoom,
    /// The liar disconnects by itself.
    Left,
    /// The port does not notice: the liar never said which port it wants.
    Unheard,
    /// A race decides: disconnected for any reason, or not.
    Any,
}

/// Something invalid, or something that no peer should do.
pub struct Lie<L = Liar> {
    pub name: &'static str,
    /// Violates the protocol on a newly connected socket.
    pub tell: fn(&mut L),
    pub expect: Expect,
}

/// Creates a lie.
pub const fn lie<L>(name: &'static str, expect: Expect, tell: fn(&mut L)) -> Lie<L> {
    Lie { name, tell, expect }
}

/// A peer that lies to a port of one kind.
pub trait Lies: Sized + Send {
    /// Connects to the port's socket.
    fn connect(path: &Path) -> Self;

    /// Returns the URI of the port that listens at `path`.
    fn port(path: &Path) -> String;

    /// Returns the URI of a well-behaved peer of that port.
    fn honest(path: &Path) -> String;
}

impl Lies for Liar {
    fn connect(path: &Path) -> Self {
        Self::connect(path)
    }

    fn port(path: &Path) -> String {
        format!("vhost:{}", path.display())
    }

    fn honest(path: &Path) -> String {
        format!("virtio:{}?hugepages=0", path.display())
    }
}

impl Lies for Client {
    fn connect(path: &Path) -> Self {
        Self::connect(path)
    }

    fn port(path: &Path) -> String {
        format!("memif:{}?role=server", path.display())
    }

    fn honest(path: &Path) -> String {
        format!("memif:{}", path.display())
    }
}
