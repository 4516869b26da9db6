//! Offsets of the headers of a TCP or UDP packet in a frame.

use crate::checksum::Sum;
use crate::ethernet::{ETHERNET_LEN, SERVICE_TAG_TYPE, TAG_LEN, TAG_TYPE, ethertype};
use crate::ip::{IPV4_LEN, IPV6_LEN, protocol};

/// Maximum length of all headers of a frame with an offload, in bytes: four VLAN tags, the longest
/// IPv4 and TCP headers, and some room for IPv6 extension headers. A frame with longer ones cannot
/// be segmented.
pub const HEADERS_MAX: usize = 192;

/// Maximum number of VLAN tags.
const TAGS_MAX: usize = 4;
const TCP_LEN: usize = 20;
const UDP_LEN: usize = 8;
const SCTP_LEN: usize = 12;
/// Offset of the checksum in SCTP's header, in bytes.
pub(super) const SCTP_CHECKSUM: usize = 8;

/// Upper layer of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    /// Offset of the checksum in the header, in bytes.
    #[inline]
    pub fn checksum_at(self) -> usize {
        match self {
            Self::Tcp => 16,
            Self::Udp => 6,
        }
    }
}

/// Positions of the headers in a frame with an unfragmented TCP or UDP packet, in bytes from its
/// start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// True for IPv6, false for IPv4.
    pub is_v6: bool,
    /// Start of the IP header.
    pub network: usize,
    /// Upper layer.
    pub transport: Transport,
    /// Start of the upper layer's header.
    pub start: usize,
    /// Start of the payload, just behind all headers; at most [`HEADERS_MAX`].
    pub payload: usize,
    /// End of the packet; link-layer padding may follow it.
    pub end: usize,
}

impl Layout {
    /// Finds the headers of a frame of `len` bytes that begins with `head`; only `head` is read.
    /// `None` if it is not an unfragmented TCP or UDP packet, if a length in it is invalid, or if
    /// its headers exceed [`HEADERS_MAX`] or `head`.
    #[inline]
    pub fn of(head: &[u8], len: usize) -> Option<Self> {
        let head = &head[..head.len().min(HEADERS_MAX).min(len)];
        let Upper { is_v6, network, number, start, end } = Upper::of(head)?;
        let (transport, header_len) = match number {
            protocol::TCP => (Transport::Tcp, usize::from(head.get(start + 12)? >> 4) * 4),
            protocol::UDP => (Transport::Udp, UDP_LEN),
            _ => return None,
        };
        let least = if transport == Transport::Tcp { TCP_LEN } else { UDP_LEN };
        let payload = start + header_len;
        let fits = header_len >= least && payload <= head.len() && payload <= end && end <= len;
        fits.then_some(Self { is_v6, network, transport, start, payload, end })
    }

    /// Position of the upper layer's checksum.
    #[inline]
    pub fn checksum(&self) -> usize {
        self.start + self.transport.checksum_at()
    }

    /// Adds the pseudo-header of an upper layer of `len` bytes, by the addresses in `head`.
    pub(super) fn add_pseudo_header(&self, head: &[u8], len: usize, sum: &mut Sum) {
        let ip = self.network;
        sum.add(if self.is_v6 { &head[ip + 8..ip + 40] } else { &head[ip + 12..ip + 20] });
        sum.add(&(len as u32).to_be_bytes());
        let number = if self.transport == Transport::Tcp { protocol::TCP } else { protocol::UDP };
        sum.add(&[0, number]);
    }
}

/// Returns the end of the SCTP packet whose header is at `start` in a frame of `len` bytes that
/// begins with `head`; `None` if there is none.
pub(super) fn sctp_end(head: &[u8], len: usize, start: usize) -> Option<usize> {
    let head = &head[..head.len().min(HEADERS_MAX).min(len)];
    let upper = Upper::of(head)?;
    let is_there = upper.number == protocol::SCTP && upper.start == start;
    (is_there && start + SCTP_LEN <= upper.end && upper.end <= len).then_some(upper.end)
}

/// Positions of an unfragmented IP packet of any upper layer, in bytes from the frame's start.
pub(super) struct Upper {
    pub(super) is_v6: bool,
    pub(super) network: usize,
    /// Protocol of the upper layer.
    pub(super) number: u8,
    /// Start of the upper layer's header.
    pub(super) start: usize,
    /// End of the packet.
    pub(super) end: usize,
}

impl Upper {
    #[inline]
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        let mut network = ETHERNET_LEN;
        let mut kind = two(head, network - 2)?;
        for _ in 0..TAGS_MAX {
            if kind != u16::from_be_bytes(TAG_TYPE) && kind != u16::from_be_bytes(SERVICE_TAG_TYPE)
            {
                break;
            }
            network += TAG_LEN;
            kind = two(head, network - 2)?;
        }
        match kind {
            ethertype::IPV4 => v4(head, network),
            ethertype::IPV6 => v6(head, network),
            _ => None,
        }
    }
}

#[inline]
fn two(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]))
}

#[inline]
fn v4(head: &[u8], network: usize) -> Option<Upper> {
    let fixed: &[u8; IPV4_LEN] = head.get(network..)?.first_chunk()?;
    let header_len = usize::from(fixed[0] & 0xf) * 4;
    let fragment = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff;
    let right = fixed[0] >> 4 == 4 && header_len >= IPV4_LEN && fragment == 0;
    let end = network + usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    let start = network + header_len;
    right.then_some(Upper { is_v6: false, network, number: fixed[9], start, end })
}

#[inline]
fn v6(head: &[u8], network: usize) -> Option<Upper> {
    let fixed: &[u8; IPV6_LEN] = head.get(network..)?.first_chunk()?;
    if fixed[0] >> 4 != 6 {
        return None;
    }
    let (mut number, mut start) = (fixed[6], network + IPV6_LEN);
    let end = start + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    // Each has at least 8 bytes, and `head` bounds them. Behind a routing header, the checksum may
    // be that of another destination.
    while matches!(number, protocol::HOP_BY_HOP | protocol::DESTINATION) {
        let &[next, length] = head.get(start..start + 2)?.first_chunk()?;
        number = next;
        start += (usize::from(length) + 1) * 8;
    }
    Some(Upper { is_v6: true, network, number, start, end })
}
