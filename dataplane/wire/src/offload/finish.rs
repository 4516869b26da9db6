//! Checksums and segments for receivers that want neither left to do.

use std::ops::Range;

use super::kind::{Offload, SEGMENTS_MAX};
use super::layout::{HEADERS_MAX, Layout, SCTP_CHECKSUM, Transport};
use crate::checksum::{self, Sum};
use crate::ip::IPV4_LEN;

/// Completes a checksum: writes that of the bytes from `start` on, which include the partial sum in
/// the field at `at`, into that field.
///
/// # Panics
/// If the field is not in `bytes`.
pub fn complete(bytes: &mut [u8], start: usize, at: usize) {
    let sum = sent(checksum::internet(&bytes[start..]));
    bytes[at..at + 2].copy_from_slice(&sum);
}

/// Completes the partial checksum of a TCP or UDP packet. `None` if the frame is no such packet.
pub fn finish(bytes: &mut [u8]) -> Option<()> {
    let layout = Layout::of(bytes, bytes.len())?;
    complete(bytes, layout.start, layout.checksum());
    Some(())
}

/// Completes the checksum of SCTP, the CRC32c of the packet from `start` to the end of `bytes` with
/// zeroes for the checksum itself (RFC 9260, section 6.8).
///
/// # Panics
/// If SCTP's header is not in `bytes`.
pub fn complete_sctp(bytes: &mut [u8], start: usize) {
    bytes[start + SCTP_CHECKSUM..][..4].fill(0);
    let sum = checksum::crc32c(&bytes[start..]);
    bytes[start + SCTP_CHECKSUM..][..4].copy_from_slice(&sum.to_le_bytes());
}

/// Writes the sum of the pseudo-header into the checksum field of a TCP or UDP packet, as a sender
/// does that leaves the rest to the device. `None` if the frame is no such packet.
pub fn start(bytes: &mut [u8]) -> Option<Layout> {
    let layout = Layout::of(bytes, bytes.len())?;
    let mut sum = Sum::default();
    layout.add_pseudo_header(bytes, layout.end - layout.start, &mut sum);
    let at = layout.checksum();
    bytes[at..at + 2].copy_from_slice(&(!sum.finish()).to_be_bytes());
    Some(layout)
}

/// Returns true if the checksum field of a TCP or UDP packet holds the sum of its pseudo-header, as
/// that of one packet in 65,536 does by chance, and a partial checksum always. `head` is the
/// beginning of a frame of `len` bytes.
#[inline]
pub fn is_suspect(head: &[u8], len: usize) -> bool {
    Layout::of(head, len).is_some_and(|layout| {
        let mut sum = Sum::default();
        layout.add_pseudo_header(head, layout.end - layout.start, &mut sum);
        let at = layout.checksum();
        head[at..at + 2] == (!sum.finish()).to_be_bytes()
    })
}

/// Returns the checksum of a packet without a virtio-net header that [is suspect](is_suspect), and
/// its position. `None` if the present checksum is right.
pub fn missing_checksum(bytes: &[u8]) -> Option<(usize, [u8; 2])> {
    let layout = Layout::of(bytes, bytes.len()).filter(|_| is_suspect(bytes, bytes.len()))?;
    let upper = &bytes[layout.start..layout.end];
    let mut sum = Sum::default();
    layout.add_pseudo_header(bytes, upper.len(), &mut sum);
    sum.add(upper);
    let is_right = sum.finish() == 0;
    (!is_right).then(|| (layout.checksum(), sent(checksum::internet(upper))))
}

/// Returns a checksum as it is sent: zero has a second form, since UDP uses the first for none.
pub(super) fn sent(sum: u16) -> [u8; 2] {
    if sum == 0 { 0xffff } else { sum }.to_be_bytes()
}

const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// Performs a frame's offload: divides it into segments with valid checksums.
///
/// Each of them is a head, which [`head`](Self::head) writes, and a [part](Self::part) of the
/// original bytes.
pub struct Finish<'b> {
    bytes: &'b [u8],
    layout: Layout,
    offload: Offload,
    /// Payload of all segments but the last.
    segment: usize,
    count: usize,
}

impl<'b> Finish<'b> {
    /// Creates it for the whole frame `bytes`. `None` if the frame does not fit its offload.
    pub fn new(bytes: &'b [u8], offload: Offload) -> Option<Self> {
        let layout = Layout::of(bytes, bytes.len())?;
        let payload = bytes.len() - layout.payload;
        let Some(segment) = offload.segment() else {
            return Some(Self { bytes, layout, offload, segment: payload, count: 1 });
        };
        let fits = match offload {
            Offload::Tcp(_) | Offload::TcpEcn(_) => layout.transport == Transport::Tcp,
            _ => layout.transport == Transport::Udp,
        };
        let segment = usize::from(segment.get());
        let count = payload.div_ceil(segment).max(1);
        (fits && layout.end == bytes.len() && count <= SEGMENTS_MAX).then_some(Self {
            bytes,
            layout,
            offload,
            segment,
            count,
        })
    }

    /// Number of frames that it becomes.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Length of the longest of these frames, in bytes.
    pub fn frame_max(&self) -> usize {
        self.bytes.len().min(self.layout.payload + self.segment)
    }

    /// Returns the bytes that follow the head of frame `index`.
    ///
    /// # Panics
    /// If there is no such frame.
    pub fn part(&self, index: usize) -> Range<usize> {
        assert!(index < self.count, "frame {index} of {}", self.count);
        let start = self.layout.payload + index * self.segment;
        start..self.bytes.len().min(start + self.segment)
    }

    /// Writes the head of frame `index`, all its headers, and returns its length.
    ///
    /// # Panics
    /// If there is no such frame.
    pub fn head(&self, index: usize, out: &mut [u8; HEADERS_MAX]) -> usize {
        let part = self.part(index);
        let Layout { network, start, payload, .. } = self.layout;
        let head = &mut out[..payload];
        head.copy_from_slice(&self.bytes[..payload]);
        let at = self.layout.checksum();
        if self.offload.segment().is_none() {
            if self.offload == Offload::Checksum {
                // As in `complete`; the checksum is in the head.
                let sum = checksum::internet(&self.bytes[start..]);
                head[at..at + 2].copy_from_slice(&sent(sum));
            }
            return payload;
        }
        let len = payload - start + part.len();
        if self.layout.is_v6 {
            let len = (payload + part.len() - network - IPV6_FIXED) as u16;
            head[network + 4..network + 6].copy_from_slice(&len.to_be_bytes());
        } else {
            set_v4(&mut head[network..start], index, len);
        }
        match self.layout.transport {
            Transport::Tcp => {
                let tcp = &mut head[start..];
                let sequence: [u8; 4] = tcp[4..8].try_into().expect("4 bytes");
                let sequence =
                    u32::from_be_bytes(sequence).wrapping_add((index * self.segment) as u32);
                tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
                if index + 1 < self.count {
                    tcp[13] &= !FIN_PSH;
                }
                if index > 0 {
                    tcp[13] &= !CWR;
                }
            }
            Transport::Udp => {
                head[start + 4..start + 6].copy_from_slice(&(len as u16).to_be_bytes());
            }
        }
        head[at..at + 2].fill(0);
        let sum = self.sum(head, len, &self.bytes[part]);
        head[at..at + 2].copy_from_slice(&sent(sum));
        payload
    }

    /// Returns the checksum of an upper layer of `len` bytes: its header is in `head`, with zero
    /// for the checksum, and `payload` follows.
    fn sum(&self, head: &[u8], len: usize, payload: &[u8]) -> u16 {
        let mut sum = Sum::default();
        self.layout.add_pseudo_header(head, len, &mut sum);
        // The header's length is even.
        sum.add(&head[self.layout.start..]);
        sum.add(payload);
        sum.finish()
    }
}

/// Length of the IPv6 header, which its length field does not include.
const IPV6_FIXED: usize = crate::ip::IPV6_LEN;

/// Sets length, identification and checksum of the IPv4 header `ip` of segment `index`, whose upper
/// layer has `len` bytes.
pub(super) fn set_v4(ip: &mut [u8], index: usize, len: usize) {
    debug_assert!(ip.len() >= IPV4_LEN);
    let whole = (ip.len() + len) as u16;
    ip[2..4].copy_from_slice(&whole.to_be_bytes());
    let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(index as u16);
    ip[4..6].copy_from_slice(&id.to_be_bytes());
    ip[10..12].fill(0);
    let sum = checksum::internet(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
}
