//! Reading the headers of a packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::address::{MAPPED, as_ipv4};
use super::{IPV4_LEN, IPV6_LEN, protocol};
use crate::checksum;

/// IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RFC 791.
    V4,
    /// RFC 8200.
    V6,
}

impl Version {
    /// Returns the address of this version for a number made by [`number`](super::number); for IPv4
    /// its low 32 bits.
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
    /// Source address ([`number`](super::number)).
    pub src: u128,
    /// Destination address ([`number`](super::number)).
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
    #[error("IPv4 header is shorter than 20 bytes or longer than the packet")]
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
