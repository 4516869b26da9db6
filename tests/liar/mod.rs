//! A vhost-user front end that says whatever it is told to. It is written by hand, for a library
//! would not lie: messages are bytes on a socket, rings are bytes in a file.
//!
//! * `message`: bytes and file descriptors on the socket, and the messages of an honest handshake.
//! * `memory`: the shared file, and where rings and buffers are in it.
//! * `ring`: descriptors, split and packed.
//! * `lies`: what is told, and what should come of it.
//! * `neighbours`: two well-behaved ports that exchange numbered frames meanwhile.
//! * `partner`: the well-behaved port that the liar's is paired with.
//! * `ours`, `testpmd`: the switches that are lied to.

pub mod lies;
mod memory;
mod message;
pub mod neighbours;
pub mod ours;
pub mod partner;
mod ring;
pub mod testpmd;
mod timed;

pub use message::Liar;

use std::time::{Duration, Instant};

/// Nothing here takes so long, on a machine however slow.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Whether `done` comes true within [`PATIENCE`].
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

/// What should become of a liar.
#[derive(Clone, Copy, Debug)]
pub enum Expect {
    /// It is disconnected, for a reason with this in it.
    Refused(&'static str),
    /// What it said may be said. It stays connected.
    Harmless,
    /// Its frames are counted as malformed. It stays connected.
    Malformed,
    /// It leaves by itself.
    Left,
    /// It depends on who is faster: disconnected for any reason, or not.
    Any,
}

/// Something that cannot be, or that nobody should say.
pub struct Lie {
    pub name: &'static str,
    /// Says it, over a socket that has just been connected.
    pub tell: fn(&mut Liar),
    pub expect: Expect,
}
