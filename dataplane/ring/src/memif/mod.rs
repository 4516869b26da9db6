//! The rings of memif, the shared memory packet interface of FD.io's VPP (its
//! `src/plugins/memif/memif.h`, version 2.0): one ring of descriptors with two running indices,
//! each written by one side.
//!
//! The client owns the memory, posts buffers by advancing the head and gets them back by the tail:
//! full ones to transmit and empty ones to receive, in order, so that an entry of the ring always
//! has the same buffer. The server takes the posted buffers, reads or fills them, and returns them
//! by advancing the tail.

mod client;
mod layout;
mod server;

pub use client::{ClientRing, Returned};
pub use layout::MemifLayout;
pub use server::{Posted, ServerRing};
