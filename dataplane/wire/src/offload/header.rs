//! The virtio-net header (Virtio 1.2, section 5.1.6), and what it asks for.

use std::num::NonZeroU16;

use super::finish::start;
use super::kind::{Offload, Offloads, SEGMENTS_MAX};
use super::layout::{HEADERS_MAX, Layout, SCTP_CHECKSUM, Transport, sctp_end};

/// Length of the header without its number of buffers, in bytes.
pub const VIRTIO_NET_LEN: usize = 10;

const NEEDS_CSUM: u8 = 1;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// Flag beside the kind of segmentation.
const GSO_ECN: u8 = 0x80;

/// Fields of the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VirtioNet {
    /// Bit 0: the checksum is partial. Others say what a device has found out about a checksum.
    pub flags: u8,
    /// How to segment the packet; bit 7: it is TCP with ECN.
    pub gso_type: u8,
    /// Hint at the length of all headers.
    pub hdr_len: u16,
    /// Maximum payload of a segment.
    pub gso_size: u16,
    /// Offset of the first byte that the checksum covers.
    pub csum_start: u16,
    /// Offset of the checksum field, from the first covered byte.
    pub csum_offset: u16,
}

/// Treatment of a frame whose header is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// Pass it on with this offload.
    Carry(Offload),
    /// [Complete](super::complete) the checksum of the bytes from `start` on, in the field at `at`,
    /// before it is passed on: only TCP's and UDP's can be found again in the frame itself.
    Complete {
        /// First byte that the checksum covers.
        start: usize,
        /// Position of the checksum.
        at: usize,
    },
    /// [Complete](super::complete_sctp) the checksum of SCTP in the bytes from `start` to `end`
    /// before it is passed on.
    CompleteSctp {
        /// Start of SCTP's header.
        start: usize,
        /// End of the packet.
        end: usize,
    },
}

/// The header is invalid, or does not match its frame.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Invalid {
    /// The header asks for something that was not negotiated.
    #[error("offload was not negotiated")]
    NotNegotiated,
    /// Unknown kind of segmentation.
    #[error(
        "gso_type {0:#x}: allowed are 0, 1 (TCP, IPv4), 4 (TCP, IPv6), 5 (UDP), and 0x80 (ECN) in addition"
    )]
    GsoType(u8),
    /// The kind of segmentation is not that of the packet, or it is no packet to be segmented.
    #[error("gso_type does not match the packet")]
    Mismatch,
    /// Segmentation without a partial checksum.
    #[error("gso_type without a partial checksum")]
    GsoWithoutChecksum,
    /// Segments without payload, or more than [`SEGMENTS_MAX`].
    #[error("gso_size {0}: allowed are those that make 1 to {SEGMENTS_MAX} segments")]
    GsoSize(u16),
    /// The headers are said to be longer than the frame.
    #[error("hdr_len {0} exceeds the frame")]
    HeaderLength(u16),
    /// The checksum is outside the frame, or not where that of the packet to be segmented is.
    #[error("checksum at {start} + {offset} is not in the frame")]
    Checksum {
        /// `csum_start`.
        start: u16,
        /// `csum_offset`.
        offset: u16,
    },
}

impl VirtioNet {
    /// Reads a header.
    #[inline]
    pub fn read(bytes: [u8; VIRTIO_NET_LEN]) -> Self {
        let [flags, gso_type, a, b, c, d, e, f, g, h] = bytes;
        Self {
            flags,
            gso_type,
            hdr_len: u16::from_le_bytes([a, b]),
            gso_size: u16::from_le_bytes([c, d]),
            csum_start: u16::from_le_bytes([e, f]),
            csum_offset: u16::from_le_bytes([g, h]),
        }
    }

    /// Returns the header's bytes.
    #[inline]
    pub fn bytes(&self) -> [u8; VIRTIO_NET_LEN] {
        let [a, b] = self.hdr_len.to_le_bytes();
        let [c, d] = self.gso_size.to_le_bytes();
        let [e, f] = self.csum_start.to_le_bytes();
        let [g, h] = self.csum_offset.to_le_bytes();
        [self.flags, self.gso_type, a, b, c, d, e, f, g, h]
    }

    /// Returns true if the header asks for nothing: the other fields have no meaning then.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.flags & NEEDS_CSUM == 0 && self.gso_type & !GSO_ECN == GSO_NONE
    }

    /// Makes the checksum of a packet of several segments partial, in the header and in its frame,
    /// if it is not: a kernel that has verified the checksums of packets and merged these
    /// leaves that of the first one. Peers that negotiate offloads must not.
    pub fn with_partial_checksum(self, frame: &mut [u8]) -> Self {
        if self.flags & NEEDS_CSUM != 0 || self.gso_type & !GSO_ECN == GSO_NONE {
            return self;
        }
        let Some(layout) = start(frame) else { return self };
        Self {
            flags: self.flags | NEEDS_CSUM,
            csum_start: layout.start as u16,
            csum_offset: layout.transport.checksum_at() as u16,
            ..self
        }
    }

    /// Checks the header of a frame of `len` bytes that begins with `head`, of which
    /// [`HEADERS_MAX`] bytes are enough. `negotiated` is what the sender may ask for.
    pub fn check(&self, head: &[u8], len: usize, negotiated: Offloads) -> Result<Accept, Invalid> {
        if self.is_plain() {
            return Ok(Accept::Carry(Offload::None));
        }
        if !negotiated.checksum {
            return Err(Invalid::NotNegotiated);
        }
        if self.gso_type & !GSO_ECN == GSO_NONE {
            return self.check_checksum(head, len);
        }
        self.check_segments(head, len, negotiated)
    }

    /// Checks the header of a packet of one segment with a partial checksum.
    fn check_checksum(&self, head: &[u8], len: usize) -> Result<Accept, Invalid> {
        let (start, at) = self.checksum_in(len)?;
        if let Some(layout) = Layout::of(head, len)
            && (layout.start, layout.checksum()) == (start, at)
        {
            return Ok(Accept::Carry(Offload::Checksum));
        }
        match sctp_end(head, len, start).filter(|_| at == start + SCTP_CHECKSUM) {
            Some(end) => Ok(Accept::CompleteSctp { start, end }),
            None => Ok(Accept::Complete { start, at }),
        }
    }

    /// Checks the header of a packet of several segments.
    fn check_segments(
        &self,
        head: &[u8],
        len: usize,
        negotiated: Offloads,
    ) -> Result<Accept, Invalid> {
        let Self { gso_type, hdr_len, gso_size, csum_start, csum_offset, .. } = *self;
        let wanted = match gso_type & !GSO_ECN {
            GSO_TCPV4 => (Transport::Tcp, Some(false)),
            GSO_TCPV6 => (Transport::Tcp, Some(true)),
            GSO_UDP_L4 => (Transport::Udp, None),
            _ => return Err(Invalid::GsoType(gso_type)),
        };
        if self.flags & NEEDS_CSUM == 0 {
            return Err(Invalid::GsoWithoutChecksum);
        }
        let place = self.checksum_in(len)?;
        let layout = Layout::of(head, len).ok_or(Invalid::Mismatch)?;
        // Nothing but the packet can be cut into segments.
        let matches = layout.transport == wanted.0
            && wanted.1.is_none_or(|is_v6| layout.is_v6 == is_v6)
            && layout.end == len;
        if !matches {
            return Err(Invalid::Mismatch);
        }
        if place != (layout.start, layout.checksum()) {
            return Err(Invalid::Checksum { start: csum_start, offset: csum_offset });
        }
        if usize::from(hdr_len) > len {
            return Err(Invalid::HeaderLength(hdr_len));
        }
        let size = NonZeroU16::new(gso_size).ok_or(Invalid::GsoSize(gso_size))?;
        let payload = len - layout.payload;
        if payload.div_ceil(gso_size.into()) > SEGMENTS_MAX {
            return Err(Invalid::GsoSize(gso_size));
        }
        let offload = match layout.transport {
            Transport::Tcp if gso_type & GSO_ECN != 0 => Offload::TcpEcn(size),
            Transport::Tcp => Offload::Tcp(size),
            Transport::Udp => Offload::Udp(size),
        };
        if !negotiated.handle(offload, &layout) {
            return Err(Invalid::NotNegotiated);
        }
        // A packet of one segment is an ordinary one.
        let offload = if payload <= gso_size.into() { Offload::Checksum } else { offload };
        Ok(Accept::Carry(offload))
    }

    /// Returns the first byte that a partial checksum covers, and its own position, in a frame of
    /// `len` bytes.
    fn checksum_in(&self, len: usize) -> Result<(usize, usize), Invalid> {
        let Self { csum_start: start, csum_offset: offset, .. } = *self;
        let at = usize::from(start) + usize::from(offset);
        if at + 2 > len {
            return Err(Invalid::Checksum { start, offset });
        }
        Ok((start.into(), at))
    }

    /// Returns the header for a frame of `len` bytes whose own headers are at `layout`. `None` if
    /// those do not fit the offload: the peer has changed them since they were checked.
    pub fn of(offload: Offload, layout: &Layout, len: usize) -> Option<Self> {
        let tcp = if layout.is_v6 { GSO_TCPV6 } else { GSO_TCPV4 };
        let (gso_type, gso_size) = match (offload, layout.transport) {
            (Offload::None, _) => return Some(Self::default()),
            (Offload::Checksum, _) => (GSO_NONE, 0),
            (Offload::Tcp(size), Transport::Tcp) => (tcp, size.get()),
            (Offload::TcpEcn(size), Transport::Tcp) => (tcp | GSO_ECN, size.get()),
            (Offload::Udp(size), Transport::Udp) => (GSO_UDP_L4, size.get()),
            (Offload::Tcp(_) | Offload::TcpEcn(_) | Offload::Udp(_), _) => return None,
        };
        if gso_type != GSO_NONE && layout.end != len {
            return None;
        }
        const { assert!(HEADERS_MAX <= u16::MAX as usize) };
        Some(Self {
            flags: NEEDS_CSUM,
            gso_type,
            hdr_len: layout.payload as u16,
            gso_size,
            csum_start: layout.start as u16,
            csum_offset: layout.transport.checksum_at() as u16,
        })
    }
}
