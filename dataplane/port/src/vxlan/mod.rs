//! `vxlan:LOCAL`: one VXLAN network (RFC 7348) over UDP, so that the switches of several hosts are
//! one network.
//!
//! Frames for a station go to the host behind which it was learned, all others to each host of a
//! list (head-end replication). A frame that came from one host never leaves to another one: the
//! switch does not send a frame back to the port that it came from, so no loop arises between hosts
//! that all know each other.
//!
//! The speed comes from batches: frames of one length and one flow leave as one message that the
//! kernel, or the network card, cuts into datagrams (`UDP_SEGMENT`), and datagrams of one flow
//! arrive in one message if the kernel merged them (`UDP_GRO`).

mod calls;
mod flow;
mod memory;
mod open;
mod receive;
mod remotes;
mod sockets;
mod stations;
#[cfg(test)]
mod tests;
mod transmit;
mod uri;

pub use uri::{Learn, VxlanUri};

/// Returns the present second of the ports' clock.
fn seconds() -> u32 {
    (crate::clock::ticks() / crate::clock::ticks_per_second()) as u32
}
