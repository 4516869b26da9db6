//! Changes that a router makes to a header.

use super::IPV4_LEN;
use super::packet::Version;

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
    /// header; `None` if the packet must be dropped, because its endpoints cannot learn of the
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
