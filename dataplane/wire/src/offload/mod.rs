//! Work on a frame that its sender leaves to the device: a checksum that covers only the
//! pseudo-header so far, and segmentation of a TCP or UDP packet that is longer than a frame. The
//! virtio-net header (Virtio 1.2, section 5.1.6) in front of a frame describes it.
//!
//! * `kind`: the kinds of this work.
//! * `header`: the virtio-net header, and what it asks for once it has been checked.
//! * `layout`: where the headers of a frame are.
//! * `finish`: the work itself, for a receiver that does not take it over.
//! * `tunnel`: the same for a packet inside another, which only a kernel leaves.
//!
//! All of them read what a hostile peer has written. A frame's [`Offload`] says only what is left
//! to do; offsets are found in the frame's own headers each time, so they are right even if a VLAN
//! tag was added, or if the peer changes the frame meanwhile.

mod finish;
mod header;
mod kind;
mod layout;
#[cfg(test)]
mod tests;
mod tunnel;

pub use finish::{Finish, complete, complete_sctp, finish, is_suspect, missing_checksum, start};
pub use header::{Accept, Invalid, VIRTIO_NET_LEN, VirtioNet};
pub use kind::{Offload, Offloads, SEGMENTS_MAX};
pub use layout::{HEADERS_MAX, Layout, Transport};
pub use tunnel::Tunnel;
