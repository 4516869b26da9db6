//! IPv4 and IPv6 (RFC 791, RFC 8200), as far as a router and a packet filter need to read them.
//!
//! An address of either version is a number of 128 bits, an IPv4 address as `::ffff:a.b.c.d` (RFC
//! 4291, section 2.5.5.2), so that rules compare both in one way.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum;

/// Length of an IPv4 header without options, in bytes.
pub const IPV4_LEN: usize = 20;
/// Length of the fixed IPv6 header, in bytes.
pub const IPV6_LEN: usize = 40;

/// Numbers of upper-layer protocols (IANA).
pub mod protocol {
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// IPv6: no next header.
    pub const NONE: u8 = 59;
    pub(crate) const HOP_BY_HOP: u8 = 0;
    pub(crate) const ROUTING: u8 = 43;
    pub(crate) const FRAGMENT: u8 = 44;
    pub(super) const AUTHENTICATION: u8 = 51;
    pub(crate) const DESTINATION: u8 = 60;
}

/// The high 96 bits of an IPv4 address as a number.
const MAPPED: u128 = 0xffff << 32;

/// Returns an address as a number.
#[inline]
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => MAPPED | u128::from(u32::from(address)),
        IpAddr::V6(address) => address.into(),
    }
}

/// Returns the address for a number made by [`number`].
#[inline]
pub fn address(number: u128) -> IpAddr {
    match as_ipv4(number) {
        Some(address) => address.into(),
        None => Ipv6Addr::from(number).into(),
    }
}

/// Returns the IPv4 address that a number represents, if it does.
#[inline]
pub fn as_ipv4(number: u128) -> Option<Ipv4Addr> {
    (number >> 32 == MAPPED >> 32).then(|| (number as u32).into())
}

/// Returns true if `address` can be the address of a single host on a network: the only kind that
/// may be the source of a packet, and the destination of a reply or an error (RFC 1122, section
/// 3.2.1.3; RFC 4443, section 2.4; RFC 6890). This excludes "this network", loopback, groups, class
/// E and the limited broadcast, and `::/64` (unspecified, loopback, IPv4-mapped).
#[inline]
pub fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !matches!(address.octets()[0], 0 | 127 | 224..),
        IpAddr::V6(address) => u128::from(address) >> 64 != 0 && !address.is_multicast(),
    }
}

/// Returns true if `address` is a group address: multicast, or the limited broadcast.
#[inline]
pub fn is_group(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_multicast() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_multicast(),
    }
}

/// IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RFC 791.
    V4,
    /// RFC 8200.
    V6,
}

impl Version {
    /// Returns the address of this version for a number made by [`number`]; for IPv4 its low 32
    /// bits.
    #[inline]
    fn address(self, number: u128) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::from(number as u32).into(),
            Self::V6 => Ipv6Addr::from(number).into(),
        }
    }
}

/// Part of a packet that a fragment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// The whole packet.
    Whole,
    /// The first part, with the upper layer's header.
    First,
    /// Another part.
    Later,
}

/// Contents of a packet's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// IP version.
    pub version: Version,
    /// Source address ([`number`]).
    pub src: u128,
    /// Destination address ([`number`]).
    pub dst: u128,
    /// Type of service, or traffic class.
    pub tos: u8,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Upper-layer protocol, after all extension headers. If these continue beyond the bytes given:
    /// the number of the first header that was not read.
    pub protocol: u8,
    /// Part of the packet that this is.
    pub fragment: Fragment,
    /// True if a router must not fragment it; always true with IPv6.
    pub dont_fragment: bool,
    /// Source and destination port of TCP, UDP or SCTP, if they are in this fragment.
    pub ports: Option<(u16, u16)>,
    /// Number of bytes before the upper layer, including options and extension headers.
    pub header_len: usize,
    /// Length of the packet in bytes; link-layer padding may follow it.
    pub len: usize,
}

/// The bytes are not a valid IP packet.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum IpError {
    /// The packet is shorter than its header or its length field requires.
    #[error("packet is truncated")]
    TooShort,
    /// Version other than 4 and 6.
    #[error("IP version {0}: allowed are 4 and 6")]
    Version(u8),
    /// The IPv4 header does not have 5 to 15 words, or the packet is shorter than its header.
    #[error("invalid IPv4 header length")]
    HeaderLength,
    /// The IPv4 header's checksum is wrong.
    #[error("invalid IPv4 header checksum")]
    Checksum,
    /// An IPv6 packet from or to an IPv4-mapped address, which is not allowed (RFC 6890, table 20):
    /// it would be taken for that IPv4 address.
    #[error("an IPv4-mapped address in an IPv6 packet")]
    Mapped,
    /// An IPv6 extension header reaches beyond the packet.
    #[error("IPv6 extension header exceeds the packet")]
    Extension,
}

impl Packet {
    /// Parses the packet that begins with `bytes`, which may be only its first bytes; `available`
    /// is the number of bytes received in all.
    ///
    /// Only `bytes` are read: if the headers continue after them, ports and upper-layer protocol
    /// stay unknown.
    #[inline(always)]
    pub fn parse(bytes: &[u8], available: usize) -> Result<Self, IpError> {
        match bytes.first().ok_or(IpError::TooShort)? >> 4 {
            4 => Self::parse_v4(bytes, available),
            6 => Self::parse_v6(bytes, available),
            other => Err(IpError::Version(other)),
        }
    }

    // Inlined, because passing the result through memory takes as long as computing it.
    #[inline(always)]
    fn parse_v4(bytes: &[u8], available: usize) -> Result<Self, IpError> {
        let fixed: &[u8; IPV4_LEN] = bytes.first_chunk().ok_or(IpError::TooShort)?;
        let header_len = usize::from(fixed[0] & 0xf) * 4;
        let len = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        if header_len < IPV4_LEN || len < header_len {
            return Err(IpError::HeaderLength);
        }
        let header = bytes.get(..header_len).filter(|_| len <= available);
        let header = header.ok_or(IpError::TooShort)?;
        let sum = match header_len {
            IPV4_LEN => checksum::internet_of(fixed),
            _ => checksum::internet(header),
        };
        if sum != 0 {
            return Err(IpError::Checksum);
        }
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|i| fixed[at + i]));
        let flags = u16::from_be_bytes([fixed[6], fixed[7]]);
        let fragment = match (flags & 0x1fff, flags & 0x2000) {
            (0, 0) => Fragment::Whole,
            (0, _) => Fragment::First,
            _ => Fragment::Later,
        };
        let protocol = fixed[9];
        Ok(Self {
            version: Version::V4,
            src: MAPPED | u128::from(word(12)),
            dst: MAPPED | u128::from(word(16)),
            tos: fixed[1],
            ttl: fixed[8],
            protocol,
            fragment,
            dont_fragment: flags & 0x4000 != 0,
            ports: ports(protocol, fragment, bytes, header_len, len),
            header_len,
            len,
        })
    }

    #[inline]
    fn parse_v6(bytes: &[u8], available: usize) -> Result<Self, IpError> {
        let fixed: &[u8; IPV6_LEN] = bytes.first_chunk().ok_or(IpError::TooShort)?;
        let len = IPV6_LEN + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        if len > available {
            return Err(IpError::TooShort);
        }
        let half = |at: usize| -> u128 {
            u128::from_be_bytes(fixed[at..at + 16].try_into().expect("16 bytes"))
        };
        let mut packet = Self {
            version: Version::V6,
            src: half(8),
            dst: half(24),
            tos: (fixed[0] << 4) | (fixed[1] >> 4),
            ttl: fixed[7],
            protocol: fixed[6],
            fragment: Fragment::Whole,
            dont_fragment: true,
            ports: None,
            header_len: IPV6_LEN,
            len,
        };
        if as_ipv4(packet.src).is_some() || as_ipv4(packet.dst).is_some() {
            return Err(IpError::Mapped);
        }
        if is_extension(packet.protocol) {
            packet.skip_extensions(bytes)?;
        }
        packet.ports = ports(packet.protocol, packet.fragment, bytes, packet.header_len, len);
        Ok(packet)
    }

    /// Follows the extension headers (RFC 8200, section 4). Each has at least 8 bytes, so their
    /// number is bounded by the packet's length.
    #[cold]
    fn skip_extensions(&mut self, bytes: &[u8]) -> Result<(), IpError> {
        while is_extension(self.protocol) && self.fragment != Fragment::Later {
            if self.header_len + 8 > self.len {
                return Err(IpError::Extension);
            }
            let Some(&[next, length, offset_high, offset_low]) =
                bytes.get(self.header_len..self.header_len + 4)
            else {
                return Ok(());
            };
            let whole = match self.protocol {
                protocol::FRAGMENT => {
                    let offset = u16::from_be_bytes([offset_high, offset_low]);
                    self.fragment = match (offset >> 3, offset & 1) {
                        // An "atomic" fragment (RFC 6946) is a whole packet.
                        (0, 0) => self.fragment,
                        (0, _) => Fragment::First,
                        _ => Fragment::Later,
                    };
                    8
                }
                protocol::AUTHENTICATION => (usize::from(length) + 2) * 4,
                _ => (usize::from(length) + 1) * 8,
            };
            if self.header_len + whole > self.len {
                return Err(IpError::Extension);
            }
            self.header_len += whole;
            self.protocol = next;
        }
        Ok(())
    }

    /// Returns the source address, in the packet's version whatever the number is.
    #[inline]
    pub fn source(&self) -> IpAddr {
        self.version.address(self.src)
    }

    /// Returns the destination address, in the packet's version whatever the number is.
    #[inline]
    pub fn destination(&self) -> IpAddr {
        self.version.address(self.dst)
    }

    /// Returns true if headers or ports are beyond the bytes given.
    #[inline]
    pub fn is_cut(&self) -> bool {
        // If the ports are known, all headers are: true for almost all packets.
        if self.ports.is_some() {
            return false;
        }
        let lacks_ports = has_ports(self.protocol) && self.header_len + PORTS_LEN <= self.len;
        let is_missing = is_extension(self.protocol) || lacks_ports;
        is_missing && self.fragment != Fragment::Later
    }

    /// Returns the length of the header that a router may change: without options and extension
    /// headers.
    #[inline]
    pub fn fixed_len(&self) -> usize {
        match self.version {
            Version::V4 => IPV4_LEN,
            Version::V6 => IPV6_LEN,
        }
    }
}

#[inline]
fn is_extension(number: u8) -> bool {
    use protocol::{AUTHENTICATION, DESTINATION, FRAGMENT, HOP_BY_HOP, ROUTING};
    matches!(number, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION)
}

/// Returns true if the header of a protocol begins with ports.
#[inline]
fn has_ports(number: u8) -> bool {
    matches!(number, protocol::TCP | protocol::UDP | protocol::SCTP)
}

/// Length of both ports, in bytes.
pub const PORTS_LEN: usize = 4;

#[inline]
fn ports(
    number: u8,
    fragment: Fragment,
    bytes: &[u8],
    at: usize,
    len: usize,
) -> Option<(u16, u16)> {
    if !has_ports(number) || fragment == Fragment::Later || at + PORTS_LEN > len {
        return None;
    }
    let [a, b, c, d] = *bytes.get(at..at + PORTS_LEN)?.first_chunk()?;
    Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}

/// Decrements the time to live of the packet that begins with `header`, and updates an IPv4
/// header's checksum (RFC 1624). The time to live must not be zero.
///
/// # Panics
/// If `header` is shorter than the fixed header of a packet of its version.
#[inline]
pub fn decrement_ttl(header: &mut [u8], version: Version) {
    match version {
        Version::V6 => header[7] -= 1,
        Version::V4 => {
            let header: &mut [u8; IPV4_LEN] = header.first_chunk_mut().expect("an IPv4 header");
            header[8] -= 1;
            // The word with the time to live in its high byte decreases by 0x100: so does the sum,
            // and its complement increases by as much.
            let sum = u32::from(u16::from_be_bytes([header[10], header[11]])) + 0x100;
            let sum = (sum + (sum >> 16)) as u16;
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

/// Codepoints of explicit congestion notification (RFC 3168), the two low bits of the type of
/// service.
pub mod ecn {
    /// All bits of the field.
    pub const MASK: u8 = 3;
    /// The endpoints do not support it.
    pub const NOT_ECT: u8 = 0;
    /// The endpoints support it, second codepoint.
    pub const ECT_1: u8 = 1;
    /// The endpoints support it.
    pub const ECT_0: u8 = 2;
    /// Congestion was experienced.
    pub const CE: u8 = 3;

    /// Returns the codepoint of a packet that leaves a tunnel, from its own and that of the outer
    /// header; `None` if the packet must be dropped, because its endpoints cannot be told of the
    /// congestion (RFC 6040, figure 4).
    #[inline]
    pub fn decapsulated(inner: u8, outer: u8) -> Option<u8> {
        match (inner & MASK, outer & MASK) {
            (NOT_ECT, CE) => None,
            (NOT_ECT, _) => Some(NOT_ECT),
            (_, CE) => Some(CE),
            (ECT_0, ECT_1) => Some(ECT_1),
            (inner, _) => Some(inner),
        }
    }
}

/// Sets the congestion notification codepoint of the packet that begins with `header`, and updates
/// an IPv4 header's checksum (RFC 1624).
///
/// # Panics
/// If `header` is shorter than the fixed header of a packet of its version.
pub fn set_ecn(header: &mut [u8], version: Version, codepoint: u8) {
    match version {
        Version::V6 => header[1] = header[1] & !0x30 | (codepoint & ecn::MASK) << 4,
        Version::V4 => {
            let before = u16::from_be_bytes([header[0], header[1]]);
            header[1] = header[1] & !ecn::MASK | codepoint & ecn::MASK;
            let after = u16::from_be_bytes([header[0], header[1]]);
            let sum = !u16::from_be_bytes([header[10], header[11]]);
            let sum = u32::from(sum) + u32::from(!before) + u32::from(after);
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = !((sum + (sum >> 16)) as u16);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

/// Fields for the header of a packet that is built here.
#[derive(Clone, Copy, Debug)]
pub struct Header<A> {
    /// Source address.
    pub src: A,
    /// Destination address.
    pub dst: A,
    /// Upper-layer protocol.
    pub protocol: u8,
    /// Type of service, or traffic class.
    pub tos: u8,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Number of bytes after the header.
    pub payload_len: u16,
}

impl Header<Ipv4Addr> {
    /// Writes an IPv4 header without options, of a packet that must not be fragmented.
    ///
    /// # Panics
    /// If the packet would be longer than 65,535 bytes.
    #[inline]
    pub fn write(&self, out: &mut [u8; IPV4_LEN]) {
        let len = self.payload_len.checked_add(IPV4_LEN as u16).expect("a length of 16 bits");
        // Built in registers and written at once, so that the sum is not read back from memory.
        let first = 0x45 << 56 | u64::from(self.tos) << 48 | u64::from(len) << 32 | 0x4000; // don't fragment
        let second = u64::from(self.ttl) << 56 | u64::from(self.protocol) << 48;
        let (src, dst) = (u64::from(u32::from(self.src)), u64::from(u32::from(self.dst)));
        let sum = checksum::internet_of_words(&[first, second, src << 32 | dst]);
        out[0..8].copy_from_slice(&first.to_be_bytes());
        out[8..16].copy_from_slice(&(second | u64::from(sum) << 32 | src).to_be_bytes());
        out[16..20].copy_from_slice(&(dst as u32).to_be_bytes());
    }
}

impl Header<Ipv6Addr> {
    /// Writes an IPv6 header.
    #[inline]
    pub fn write(&self, out: &mut [u8; IPV6_LEN]) {
        let first = 6 << 60
            | u64::from(self.tos) << 52
            | u64::from(self.payload_len) << 16
            | u64::from(self.protocol) << 8
            | u64::from(self.ttl);
        out[0..8].copy_from_slice(&first.to_be_bytes());
        out[8..24].copy_from_slice(&self.src.octets());
        out[24..40].copy_from_slice(&self.dst.octets());
    }
}

/// Returns the checksum of an upper layer that also covers the addresses, such as UDP's or ICMPv6's
/// (RFC 768; RFC 8200, section 8.1). `pieces` are the upper layer from its header on, with zero in
/// the checksum field; each but the last must have an even length.
pub fn upper_checksum(src: IpAddr, dst: IpAddr, protocol: u8, pieces: &[&[u8]]) -> u16 {
    let mut sum = checksum::Sum::default();
    for address in [src, dst] {
        match address {
            IpAddr::V4(address) => sum.add(&address.octets()),
            IpAddr::V6(address) => sum.add(&address.octets()),
        }
    }
    let len: usize = pieces.iter().map(|piece| piece.len()).sum();
    sum.add(&(len as u32).to_be_bytes());
    sum.add(&[0, protocol]);
    pieces.iter().for_each(|piece| sum.add(piece));
    sum.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    fn payload() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..100)
    }

    /// Source, destination, protocol and ports.
    type Said = (IpAddr, IpAddr, u8, Option<(u16, u16)>);

    /// Returns what etherparse reads in `bytes`, as far as it is compared.
    fn oracle(bytes: &[u8]) -> Option<Said> {
        let sliced = SlicedPacket::from_ip(bytes).ok()?;
        let ports = match &sliced.transport {
            Some(TransportSlice::Udp(udp)) => Some((udp.source_port(), udp.destination_port())),
            Some(TransportSlice::Tcp(tcp)) => Some((tcp.source_port(), tcp.destination_port())),
            _ => None,
        };
        match sliced.net? {
            NetSlice::Ipv4(ip) => {
                let header = ip.header();
                let right = header.header_checksum() == header.to_header().calc_header_checksum();
                let (src, dst) = (header.source_addr().into(), header.destination_addr().into());
                right.then_some((src, dst, header.protocol().0, ports))
            }
            NetSlice::Ipv6(ip) => {
                let header = ip.header();
                let (src, dst) = (header.source_addr().into(), header.destination_addr().into());
                Some((src, dst, ip.payload().ip_number.0, ports))
            }
            NetSlice::Arp(_) => None,
        }
    }

    fn ours(packet: &Packet) -> Said {
        (address(packet.src), address(packet.dst), packet.protocol, packet.ports)
    }

    proptest! {
        #[test]
        fn parsing_agrees_with_etherparse(
            src: [u8; 16], dst: [u8; 16], v6: bool, tcp: bool, ttl: u8, ports: (u16, u16), payload in payload(),
        ) {
            let builder = match v6 {
                true => PacketBuilder::ipv6(src, dst, ttl),
                false => PacketBuilder::ipv4(*src.first_chunk().unwrap(), *dst.first_chunk().unwrap(), ttl),
            };
            let mut bytes = Vec::new();
            match tcp {
                true => builder.tcp(ports.0, ports.1, 1, 1).write(&mut bytes, &payload).unwrap(),
                false => builder.udp(ports.0, ports.1).write(&mut bytes, &payload).unwrap(),
            }
            let len = bytes.len();
            bytes.extend([0; 10]);
            let packet = Packet::parse(&bytes, bytes.len()).unwrap();
            prop_assert_eq!(packet.len, len, "padding is left out");
            prop_assert_eq!(packet.ttl, ttl);
            prop_assert_eq!(Some(ours(&packet)), oracle(&bytes[..len]));
            prop_assert_eq!(packet.ports, Some(ports));
            // Without the bytes of the upper layer only the ports are unknown.
            let cut = Packet::parse(&bytes[..packet.header_len], len).unwrap();
            prop_assert_eq!(cut, Packet { ports: None, ..packet });
        }

        #[test]
        fn etherparse_parses_written_ip_headers(
            src: [u8; 16], dst: [u8; 16], tos: u8, ttl in 1u8.., payload in payload(),
        ) {
            let payload_len = payload.len() as u16;
            let mut v6 = [0; IPV6_LEN];
            Header { src: Ipv6Addr::from(src), dst: dst.into(), protocol: 253, tos, ttl, payload_len }.write(&mut v6);
            let (src, dst): ([u8; 4], [u8; 4]) = (*src.first_chunk().unwrap(), *dst.first_chunk().unwrap());
            let mut v4 = [0; IPV4_LEN];
            Header { src: Ipv4Addr::from(src), dst: dst.into(), protocol: 253, tos, ttl, payload_len }.write(&mut v4);
            for header in [&v4[..], &v6[..]] {
                let mut bytes = [header, &payload].concat();
                let packet = Packet::parse(&bytes, bytes.len()).unwrap();
                prop_assert_eq!((packet.len, packet.tos, packet.ttl), (bytes.len(), tos, ttl));
                prop_assert_eq!(Some(ours(&packet)), oracle(&bytes));
                decrement_ttl(&mut bytes, packet.version);
                let later = Packet::parse(&bytes, bytes.len());
                prop_assert_eq!(later, Ok(Packet { ttl: ttl - 1, ..packet }));
                for codepoint in 0..4 {
                    set_ecn(&mut bytes, packet.version, codepoint);
                    let later = Packet::parse(&bytes, bytes.len());
                    let tos = tos & !ecn::MASK | codepoint;
                    prop_assert_eq!(later, Ok(Packet { ttl: ttl - 1, tos, ..packet }));
                }
            }
        }

        #[test]
        fn extension_headers_in_any_order_are_skipped(
            kinds in prop::collection::vec((0usize..5, 0u8..3), 0..6), offset in 0u16..3, more: bool,
        ) {
            let numbers = [0, 43, 60, 51, 44];
            let mut bytes = vec![0x60, 0, 0, 0, 0, 0, 17, 64];
            bytes.extend([1; 32]);
            let mut place = 6;
            let mut expected = Fragment::Whole;
            for (kind, units) in kinds {
                let (number, at) = (numbers[kind], bytes.len());
                bytes[place] = number;
                let len = match number {
                    44 => 8,
                    51 => (usize::from(units) + 2) * 4,
                    _ => (usize::from(units) + 1) * 8,
                };
                if len < 8 { continue }
                bytes.resize(at + len, 0);
                bytes[at] = 17;
                bytes[at + 1] = units;
                place = at;
                if number == 44 {
                    bytes[at + 1] = 0;
                    bytes[at + 2..at + 4].copy_from_slice(&(offset << 3 | u16::from(more)).to_be_bytes());
                    expected = match (offset, more) {
                        (0, false) => expected,
                        (0, true) => Fragment::First,
                        _ => Fragment::Later,
                    };
                    if expected == Fragment::Later { break }
                }
            }
            let header_len = bytes.len();
            bytes.extend([0x12, 0x34, 0x56, 0x78, 0, 8, 0, 0]);
            let payload_len = (bytes.len() - IPV6_LEN) as u16;
            bytes[4..6].copy_from_slice(&payload_len.to_be_bytes());
            let packet = Packet::parse(&bytes, bytes.len()).unwrap();
            prop_assert_eq!((packet.protocol, packet.header_len), (17, header_len));
            prop_assert_eq!(packet.fragment, expected);
            let ports = (expected != Fragment::Later).then_some((0x1234, 0x5678));
            prop_assert_eq!(packet.ports, ports);
            for len in 0..bytes.len() {
                prop_assert!(Packet::parse(&bytes[..len], len).is_err());
                // `bytes` may be shorter than what is available.
                let seen = Packet::parse(&bytes[..len], bytes.len());
                prop_assert_eq!(seen.is_ok(), len >= IPV6_LEN);
                // If anything that rules need is missing, `is_cut` says so.
                if let Ok(seen) = seen {
                    let knows = (seen.protocol, seen.ports) == (packet.protocol, packet.ports);
                    prop_assert!(knows || seen.is_cut(), "{len} of {seen:?}");
                }
            }
        }

        #[test]
        fn parsing_any_bytes_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..120), v6: bool) {
            if let Some(first) = bytes.first_mut() {
                *first = if v6 { 0x60 } else { 0x40 | (*first & 0xf) };
            }
            if let Ok(packet) = Packet::parse(&bytes, bytes.len()) {
                prop_assert!(packet.header_len <= packet.len && packet.len <= bytes.len());
            }
        }

        #[test]
        fn address_round_trips_as_number(v4: [u8; 4], v6: [u8; 16]) {
            for given in [IpAddr::from(v4), IpAddr::from(v6)] {
                prop_assert_eq!(address(number(given)).to_canonical(), given.to_canonical());
            }
        }

        #[test]
        fn upper_checksum_agrees_with_etherparse(src: [u8; 16], dst: [u8; 16], payload in payload()) {
            let mut bytes = Vec::new();
            PacketBuilder::ipv6(src, dst, 64).udp(1, 2).write(&mut bytes, &payload).unwrap();
            prop_assert_eq!(upper_checksum(src.into(), dst.into(), 17, &[&bytes[IPV6_LEN..]]), 0);
        }
    }

    #[test]
    fn ipv4_mapped_addresses_are_refused() {
        let right: [Ipv6Addr; 2] = ["2001:db8::1".parse().unwrap(), "fd00::1".parse().unwrap()];
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        for (src, dst, outcome) in [
            (right[0], right[1], Ok(())),
            (mapped, right[1], Err(IpError::Mapped)),
            (right[0], mapped, Err(IpError::Mapped)),
        ] {
            let header = Header { src, dst, protocol: 17, tos: 0, ttl: 1, payload_len: 0 };
            let mut bytes = [0; IPV6_LEN];
            header.write(&mut bytes);
            assert_eq!(Packet::parse(&bytes, bytes.len()).map(drop), outcome, "{src} {dst}");
        }
    }

    #[test]
    fn host_and_group_addresses_are_distinguished() {
        for (address, expected) in [
            ("10.0.0.1", (true, false)),
            ("0.0.0.0", (false, false)),
            ("0.0.0.9", (false, false)),
            ("127.0.0.1", (false, false)),
            ("224.0.0.1", (false, true)),
            ("240.0.0.1", (false, false)),
            ("255.255.255.255", (false, true)),
            ("2001:db8::1", (true, false)),
            ("fe80::1", (true, false)),
            ("::", (false, false)),
            ("::1", (false, false)),
            ("::ffff:10.0.0.1", (false, false)),
            ("::10.0.0.1", (false, false)),
            ("ff02::1", (false, true)),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!((is_host(address), is_group(address)), expected, "{address}");
        }
    }

    /// RFC 6040, figure 4.
    #[test]
    fn ecn_is_combined_at_decapsulation() {
        use ecn::{CE, ECT_0, ECT_1, NOT_ECT};
        let outers = [NOT_ECT, ECT_0, ECT_1, CE];
        for (inner, expected) in [
            (NOT_ECT, [Some(NOT_ECT), Some(NOT_ECT), Some(NOT_ECT), None]),
            (ECT_0, [Some(ECT_0), Some(ECT_0), Some(ECT_1), Some(CE)]),
            (ECT_1, [Some(ECT_1), Some(ECT_1), Some(ECT_1), Some(CE)]),
            (CE, [Some(CE); 4]),
        ] {
            assert_eq!(outers.map(|outer| ecn::decapsulated(inner, outer)), expected);
        }
    }

    #[test]
    fn every_invalid_field_has_its_error() {
        let mut right = [0; IPV4_LEN];
        let address = Ipv4Addr::LOCALHOST;
        let header =
            Header { src: address, dst: address, protocol: 17, tos: 0, ttl: 1, payload_len: 0 };
        header.write(&mut right);
        let with = |at: usize, value: u8| {
            let mut bytes = right;
            bytes[at] = value;
            Packet::parse(&bytes, bytes.len())
        };
        assert_eq!(Packet::parse(&[], 0), Err(IpError::TooShort));
        assert_eq!(with(0, 0x75), Err(IpError::Version(7)));
        assert_eq!(with(0, 0x44), Err(IpError::HeaderLength));
        assert_eq!(with(3, 19), Err(IpError::HeaderLength));
        assert_eq!(with(3, 21), Err(IpError::TooShort));
        assert_eq!(with(10, !right[10]), Err(IpError::Checksum));
    }
}
