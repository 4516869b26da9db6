//! A private copy of the beginning of a frame, which is parsed and rewritten.

use dray_port::Frame;
use dray_wire::ethernet::ETHERNET_LEN;

/// Number of packets that go through the passes together: what is prefetched for the last of them
/// is still in the first-level cache when it is used.
pub(super) const CHUNK: usize = 32;
/// Room in front of the frame for the headers of a tunnel: IPv6, UDP, GTP-U with a container.
pub(super) const ROOM: usize = 40 + 8 + 16;
/// Number of bytes copied: Ethernet, IPv4, UDP, GTP-U with a container, IPv6, and some more.
pub(super) const LOOK: usize = ETHERNET_LEN + 7 * 16;
/// Position of the packet that follows the Ethernet header.
pub(super) const PACKET: usize = ROOM + ETHERNET_LEN;

/// Buffer for the beginning of a frame; the frame's first byte is at [`ROOM`].
#[derive(Clone)]
#[repr(align(64))]
pub(super) struct Head(pub(super) [u8; ROOM + LOOK]);

impl Head {
    /// Copies the beginning of the frame, and returns the copied bytes.
    #[inline(always)]
    pub(super) fn copy(&mut self, frame: &Frame<'_>) -> &[u8] {
        let look: &mut [u8; LOOK] = self.0.last_chunk_mut().expect("LOOK bytes follow ROOM");
        let len = frame.copy_first::<ETHERNET_LEN, LOOK>(look);
        &look[..len]
    }

    /// Returns the bytes that [`copy`](Self::copy) returned for `frame`.
    pub(super) fn bytes(&self, frame: &Frame<'_>) -> &[u8] {
        &self.0[ROOM..][..frame.len().min(LOOK)]
    }

    /// Copies the packet at `from` in the frame to [`PACKET`], as far as there is room.
    #[inline]
    pub(super) fn copy_packet(&mut self, frame: &Frame<'_>, from: usize) {
        frame.copy_from(from, &mut self.0[PACKET..]);
    }
}
