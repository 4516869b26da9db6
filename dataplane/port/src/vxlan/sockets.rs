//! Sockets of a VXLAN port, which both halves have.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The sockets of a port: one receives, the others transmit. The source port of a datagram
/// identifies its flow, so there is one socket for each.
pub(super) struct Sockets {
    pub(super) receiving: OwnedFd,
    /// By flow.
    pub(super) transmitting: Vec<OwnedFd>,
}

impl Sockets {
    /// Returns the descriptors, that of the receiving socket first.
    pub(super) fn iter(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.receiving].into_iter().chain(&self.transmitting).map(AsFd::as_fd)
    }
}
