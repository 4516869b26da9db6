//! A private copy of the beginning of a frame, which is parsed and rewritten.

use dray_port::Frame;
use dray_wire::ethernet::ETHERNET_LEN;

/// Number of packets that go through the passes together: what is prefetched for the last of them
/// is still in the first-level cache when it is used.
pub(super) const CHUNK: usize = 32;
/// Room in front of the frame for the headers of a tunnel: IPv6, UDP, GTP-U with a container.
pub(super) const HEADROOM: usize = 40 + 8 + 16;
/// Number of copied bytes: Ethernet, IPv4, UDP, GTP-U with a container, IPv6, and some more.
pub(super) const COPY_LEN: usize = ETHERNET_LEN + 7 * 16;
/// Position of the packet that follows the Ethernet header.
pub(super) const PACKET_AT: usize = HEADROOM + ETHERNET_LEN;

/// Buffer for the beginning of a frame; the frame's first byte is at [`HEADROOM`].
#[derive(Clone)]
#[repr(align(64))]
pub(super) struct HeaderBuffer(pub(super) [u8; HEADROOM + COPY_LEN]);

impl HeaderBuffer {
    /// Copies the beginning of the frame, and returns the copied bytes.
    #[inline(always)]
    pub(super) fn copy(&mut self, frame: &Frame<'_>) -> &[u8] {
        let look: &mut [u8; COPY_LEN] =
            self.0.last_chunk_mut().expect("COPY_LEN bytes follow HEADROOM");
        let len = frame.copy_first::<ETHERNET_LEN, COPY_LEN>(look);
        &look[..len]
    }

    /// Returns the bytes that [`copy`](Self::copy) returned for `frame`.
    pub(super) fn bytes(&self, frame: &Frame<'_>) -> &[u8] {
        &self.0[HEADROOM..][..frame.len().min(COPY_LEN)]
    }

    /// Copies the packet at `from` in the frame to [`PACKET_AT`], as far as there is room.
    #[inline]
    pub(super) fn copy_packet(&mut self, frame: &Frame<'_>, from: usize) {
        frame.copy_from(from, &mut self.0[PACKET_AT..]);
    }
}
