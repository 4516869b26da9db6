//! Headers and checksums of packets that are built here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{IPV4_LEN, IPV6_LEN};
use crate::checksum;

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
        let sum = checksum::internet_of_words([first, second, src << 32 | dst]);
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
