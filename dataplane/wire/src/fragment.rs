//! Fragments of IP packets (RFC 791, RFC 8200): reading their headers, and fragmenting packets as a
//! router does.

use std::ops::Range;

use crate::checksum;
use crate::ip::{IPV4_LEN, IPV6_LEN, Packet, Version, protocol};

/// The longest IPv4 header, in bytes.
pub const IPV4_HEADER_MAX: usize = 60;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// Position of a fragment in its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentHeader {
    /// Identification: the same in all fragments of a packet, for the same addresses and protocol.
    pub ident: u32,
    /// Offset of its payload in the packet's payload, in bytes.
    pub offset: usize,
    /// True if more fragments of the packet follow.
    pub more: bool,
    /// Protocol of the payload. With IPv6 this may be an extension header.
    pub protocol: u8,
    /// Number of bytes before the payload.
    pub header_len: usize,
}

impl FragmentHeader {
    /// Reads the fragment header from `bytes`, the first ones of `packet`; `None` if they contain
    /// none.
    pub fn parse(packet: &Packet, bytes: &[u8]) -> Option<Self> {
        match packet.version {
            Version::V4 => {
                let flags = half(bytes, 6)?;
                Some(Self {
                    ident: half(bytes, 4)?.into(),
                    offset: usize::from(flags & OFFSET) * 8,
                    more: flags & MORE != 0,
                    protocol: packet.protocol,
                    header_len: packet.header_len,
                })
            }
            Version::V6 => Self::parse_v6(bytes),
        }
    }

    fn parse_v6(bytes: &[u8]) -> Option<Self> {
        let (mut kind, mut at) = (*bytes.get(6)?, IPV6_LEN);
        // The headers that routers on the way process come before the fragment header (RFC 8200,
        // section 4.5).
        while matches!(kind, protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION) {
            let length = usize::from(*bytes.get(at + 1)?);
            (kind, at) = (bytes[at], at + 8 * (length + 1));
        }
        if kind != protocol::FRAGMENT {
            return None;
        }
        let flags = half(bytes, at + 2)?;
        Some(Self {
            ident: u32::from(half(bytes, at + 4)?) << 16 | u32::from(half(bytes, at + 6)?),
            offset: usize::from(flags & !7),
            more: flags & 1 != 0,
            protocol: bytes[at],
            header_len: at + 8,
        })
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..at + 2)?.first_chunk()?))
}

/// Divides an IPv4 packet into fragments (RFC 791, section 3.2). The packet may be a fragment
/// itself.
#[derive(Clone, Debug)]
pub struct Fragments<'h> {
    header: &'h [u8],
    /// Rest of the payload, as offsets from the beginning of the packet.
    rest: Range<usize>,
    /// Maximum length of a fragment.
    mtu: usize,
}

impl<'h> Fragments<'h> {
    /// Creates the fragments of the packet of `len` bytes with the given header, options included.
    /// Returns `None` if it must not be fragmented, or if `mtu` has no room for a header of maximum
    /// length and 8 bytes.
    pub fn new(header: &'h [u8], len: usize, mtu: usize) -> Option<Self> {
        let fits = (IPV4_LEN..=IPV4_HEADER_MAX).contains(&header.len()) && header.len() <= len;
        let may = half(header, 6)? & DONT_FRAGMENT == 0;
        (fits && may && mtu >= IPV4_HEADER_MAX + 8).then_some(Self {
            header,
            rest: header.len()..len,
            mtu,
        })
    }

    /// Writes the next fragment's header to `out`; returns its length, and the range of the
    /// packet's bytes that follow it. Returns `None` after the last one.
    pub fn next(&mut self, out: &mut [u8; IPV4_HEADER_MAX]) -> Option<(usize, Range<usize>)> {
        if self.rest.is_empty() {
            return None;
        }
        let done = self.rest.start - self.header.len();
        let header_len = match done {
            0 => {
                out[..self.header.len()].copy_from_slice(self.header);
                self.header.len()
            }
            _ => self.later_header(out),
        };
        let room = (self.mtu - header_len) & !7;
        let is_last = self.rest.len() <= self.mtu - header_len;
        let end = if is_last { self.rest.end } else { self.rest.start + room };
        let body = self.rest.start..end;
        self.rest.start = end;
        let before = u16::from_be_bytes([self.header[6], self.header[7]]);
        let more = if is_last { before & MORE } else { MORE };
        let offset = (before & OFFSET).wrapping_add((done / 8) as u16) & OFFSET;
        out[0] = 0x40 | (header_len / 4) as u8;
        out[2..4].copy_from_slice(&((header_len + body.len()) as u16).to_be_bytes());
        out[6..8].copy_from_slice(&(more | offset).to_be_bytes());
        out[10..12].fill(0);
        let sum = checksum::internet(&out[..header_len]);
        out[10..12].copy_from_slice(&sum.to_be_bytes());
        Some((header_len, body))
    }

    /// Writes the header of a later fragment: options without the "copied" flag are only in the
    /// first.
    fn later_header(&self, out: &mut [u8; IPV4_HEADER_MAX]) -> usize {
        const END: u8 = 0;
        const NO_OPERATION: u8 = 1;
        const COPIED: u8 = 0x80;
        let (fixed, mut options) = self.header.split_at(IPV4_LEN);
        out[..IPV4_LEN].copy_from_slice(fixed);
        let mut len = IPV4_LEN;
        while let [kind, rest @ ..] = options {
            let option_len = match (*kind, rest) {
                (END, _) => break,
                (NO_OPERATION, _) => 1,
                (_, [len, ..]) => usize::from(*len).max(2),
                (_, []) => break,
            };
            let Some((option, behind)) = options.split_at_checked(option_len) else { break };
            if kind & COPIED != 0 {
                out[len..len + option_len].copy_from_slice(option);
                len += option_len;
            }
            options = behind;
        }
        let padded = len.next_multiple_of(4);
        out[len..padded].fill(END);
        padded
    }
}

#[cfg(test)]
mod tests {
    use etherparse::defrag::IpDefragPool;
    use etherparse::{PacketBuilder, SlicedPacket};
    use proptest::prelude::*;

    use super::*;

    /// Returns an IPv4 packet of UDP, with options.
    fn packet(options: &[u8], payload: &[u8], ident: u16) -> Vec<u8> {
        let mut bytes = Vec::new();
        let builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1, 2);
        builder.write(&mut bytes, payload).unwrap();
        bytes.splice(20..20, options.iter().copied());
        bytes[0] += (options.len() / 4) as u8;
        let len = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
        bytes[4..6].copy_from_slice(&ident.to_be_bytes());
        bytes[6..8].fill(0);
        let header_len = 20 + options.len();
        bytes[10..12].fill(0);
        let sum = checksum::internet(&bytes[..header_len]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    fn divide(bytes: &[u8], mtu: usize) -> Vec<Vec<u8>> {
        let packet = Packet::parse(bytes, bytes.len()).unwrap();
        let mut fragments = Fragments::new(&bytes[..packet.header_len], bytes.len(), mtu).unwrap();
        let mut header = [0; IPV4_HEADER_MAX];
        let next = || {
            let (len, body) = fragments.next(&mut header)?;
            Some([&header[..len], &bytes[body]].concat())
        };
        std::iter::from_fn(next).collect()
    }

    proptest! {
        /// etherparse reassembles any packet that was fragmented, and fragmented again.
        #[test]
        fn etherparse_reassembles_fragments(
            options in prop::sample::select(vec![
                vec![], vec![1; 4], vec![0x94, 4, 0, 0], vec![7, 7, 4, 0, 0, 0, 0, 0x94, 4, 0, 0, 0],
            ]),
            len in 0usize..4000, mtu in 68usize..1500, again in 68usize..1500, ident: u16,
        ) {
            let payload: Vec<u8> = (0..len).map(|byte| byte as u8).collect();
            let bytes = packet(&options, &payload, ident);
            let once = divide(&bytes, mtu);
            prop_assert!(once.len() > 1 || bytes.len() <= mtu);
            let twice: Vec<_> = once.iter().flat_map(|piece| divide(piece, again)).collect();
            let mut pool = IpDefragPool::<(), ()>::new();
            let mut whole = None;
            for (number, piece) in twice.iter().enumerate() {
                let packet = Packet::parse(piece, piece.len()).unwrap();
                prop_assert_eq!(packet.len, piece.len());
                prop_assert!(piece.len() <= mtu.min(again));
                let header = FragmentHeader::parse(&packet, piece).unwrap();
                prop_assert_eq!((header.ident, header.protocol), (ident.into(), 17));
                prop_assert_eq!(header.more, number + 1 < twice.len());
                let copied = &piece[20..packet.header_len];
                prop_assert_eq!(copied.contains(&0x94), options.contains(&0x94));
                prop_assert!(header.offset == 0 || !copied.contains(&7));
                let sliced = SlicedPacket::from_ip(piece).unwrap();
                if twice.len() > 1 {
                    whole = pool.process_sliced_packet(&sliced, (), ()).unwrap();
                    prop_assert_eq!(whole.is_some(), number + 1 == twice.len());
                }
            }
            if let Some(whole) = whole {
                prop_assert_eq!(&whole.payload[..], &bytes[20 + options.len()..]);
            }
        }

        #[test]
        fn fragmenting_any_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut bytes = bytes;
            for version in [0x45, 0x60] {
                if let Some(first) = bytes.first_mut() { *first = version }
                let packet = Packet::parse(&bytes, bytes.len()).ok();
                let header = packet.and_then(|packet| FragmentHeader::parse(&packet, &bytes));
                prop_assert!(header.is_none_or(|header| header.offset.is_multiple_of(8) && header.offset < 1 << 16));
            }
        }
    }

    #[test]
    fn dont_fragment_is_respected() {
        let mut bytes = packet(&[], &[7; 100], 1);
        assert!(Fragments::new(&bytes[..20], bytes.len(), 67).is_none(), "no room");
        bytes[6] = 0x40;
        assert!(Fragments::new(&bytes[..20], bytes.len(), 68).is_none());
    }
}
