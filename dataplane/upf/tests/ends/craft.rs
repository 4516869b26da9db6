//! Packets with any addresses and valid checksums, which reach the code behind the checksum checks.

use std::net::IpAddr;

use dray_wire::arp::Arp;
use dray_wire::ip::{self, IPV4_LEN, IPV6_LEN};
use dray_wire::{MacAddr, checksum};

pub const ICMP: u8 = 1;
pub const UDP: u8 = 17;
pub const ICMPV6: u8 = 58;

/// Builds an IP packet with valid checksums. If the addresses are of different versions, it is an
/// IPv6 packet and the IPv4 address is mapped (`::ffff:a.b.c.d`).
pub fn packet(src: IpAddr, dst: IpAddr, protocol: u8, ttl: u8, upper: &[u8]) -> Vec<u8> {
    let upper = with_checksum(src, dst, protocol, upper);
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (src, dst) else {
        let mut bytes = vec![0x60, 0, 0, 0];
        bytes.extend((upper.len() as u16).to_be_bytes());
        bytes.extend([protocol, ttl]);
        bytes.extend([src, dst].into_iter().flat_map(|address| ip::number(address).to_be_bytes()));
        assert_eq!(bytes.len(), IPV6_LEN);
        bytes.extend(upper);
        return bytes;
    };
    let mut bytes = vec![0x45, 0];
    bytes.extend(((IPV4_LEN + upper.len()) as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, ttl, protocol, 0, 0]);
    bytes.extend(src.octets());
    bytes.extend(dst.octets());
    let sum = checksum::internet(&bytes);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(upper);
    bytes
}

/// Returns the upper layer with its checksum, if there is room for one.
fn with_checksum(src: IpAddr, dst: IpAddr, protocol: u8, upper: &[u8]) -> Vec<u8> {
    let mut upper = upper.to_vec();
    let at = match protocol {
        ICMP | ICMPV6 => 2,
        UDP => 6,
        _ => return upper,
    };
    if upper.len() < at + 2 {
        return upper;
    }
    upper[at..at + 2].fill(0);
    let sum = match protocol {
        ICMP => checksum::internet(&upper),
        _ => ip::upper_checksum(src, dst, protocol, &[&upper]),
    };
    upper[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    upper
}

/// Builds a UDP datagram without a checksum.
pub fn datagram(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let header = [ports.0, ports.1, (8 + payload.len()) as u16, 0];
    [&header.map(u16::to_be_bytes).concat()[..], payload].concat()
}

/// Puts a packet into a frame from `src` to `dst`; the Ethernet type follows the packet's version.
pub fn frame(src: MacAddr, dst: MacAddr, packet: &[u8]) -> Vec<u8> {
    let kind = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    [&dst.0[..], &src.0, &kind, packet].concat()
}

/// Puts an ARP message into a frame.
pub fn arp(src: MacAddr, dst: MacAddr, message: &Arp) -> Vec<u8> {
    [&dst.0[..], &src.0, &[8, 6], &message.to_bytes()].concat()
}
