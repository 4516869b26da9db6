//! Packets that this program itself sends.

use std::net::IpAddr;

use dray_wire::gtpu;
use dray_wire::ip::{self, Header, IPV4_LEN, IPV6_LEN, protocol};
use dray_wire::udp::{UDP_LEN, Udp};

/// Time to live of our own packets.
pub(crate) const TTL: u8 = 64;

/// Returns a packet from our GTP-U port to a peer's `port`; `None` if the versions of the addresses
/// differ.
pub(crate) fn datagram(src: IpAddr, dst: IpAddr, port: u16, payload: &[u8]) -> Option<Vec<u8>> {
    udp_packet((src, gtpu::PORT), (dst, port), payload)
}

/// Returns a UDP packet, with a checksum if IPv6 requires one; `None` if the versions of the
/// addresses differ.
pub(crate) fn udp_packet(
    (src, src_port): (IpAddr, u16),
    (dst, dst_port): (IpAddr, u16),
    payload: &[u8],
) -> Option<Vec<u8>> {
    let mut udp = [0; UDP_LEN];
    Udp { src_port, dst_port, payload_len: payload.len() }.write(&mut udp);
    let payload_len = (UDP_LEN + payload.len()) as u16;
    let (protocol, tos, ttl) = (protocol::UDP, 0, TTL);
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut ip = [0; IPV4_LEN];
            Header { src, dst, protocol, tos, ttl, payload_len }.write(&mut ip);
            Some([&ip[..], &udp, payload].concat())
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let mut ip = [0; IPV6_LEN];
            Header { src: a, dst: b, protocol, tos, ttl, payload_len }.write(&mut ip);
            let sum = ip::upper_checksum(src, dst, protocol, &[&udp, payload]);
            udp[6..].copy_from_slice(&(if sum == 0 { 0xffff } else { sum }).to_be_bytes());
            Some([&ip[..], &udp, payload].concat())
        }
        _ => None,
    }
}
