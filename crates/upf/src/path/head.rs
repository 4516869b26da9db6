//! The beginning of a frame, in memory of our own: what is looked at, and what is changed.

use dray_port::Frame;
use dray_wire::ethernet::ETHERNET_LEN;

/// Room in front of the frame for the headers of a tunnel: IPv6, UDP, GTP-U with a container.
pub(super) const ROOM: usize = 40 + 8 + 16;
/// Bytes of a frame that are looked at: Ethernet, IPv4, UDP, GTP-U with a container, IPv6, and some.
pub(super) const LOOK: usize = ETHERNET_LEN + 7 * 16;
/// Where the packet begins that follows the Ethernet header.
pub(super) const PACKET: usize = ROOM + ETHERNET_LEN;

/// The frame's first byte is at [`ROOM`].
#[derive(Clone)]
#[repr(align(64))]
pub(super) struct Head(pub(super) [u8; ROOM + LOOK]);

impl Head {
    /// Copies the frame's beginning here, and returns as much as there is of it.
    #[inline(always)]
    pub(super) fn copy(&mut self, frame: &Frame<'_>) -> &[u8] {
        let look: &mut [u8; LOOK] = self.0.last_chunk_mut().expect("just as long");
        let len = frame.copy_first::<ETHERNET_LEN, LOOK>(look);
        &look[..len]
    }

    /// What [`copy`](Self::copy) returned of `frame`.
    pub(super) fn bytes(&self, frame: &Frame<'_>) -> &[u8] {
        &self.0[ROOM..][..frame.len().min(LOOK)]
    }

    /// Copies the packet that lies at `from` in the frame to [`PACKET`], as far as there is room.
    #[inline]
    pub(super) fn copy_packet(&mut self, frame: &Frame<'_>, from: usize) {
        frame.copy_from(from, &mut self.0[PACKET..]);
    }
}
