//! Ethernet II, IPv4 without options, and UDP: the 42 bytes before every test frame's payload.
//!
//! ```text
//!  0        6        12   14                                34    36    38    40    42
//!  +--------+--------+----+---------------------------------+-----+-----+-----+-----+---
//!  | dst    | src    |0800| IPv4 header (IHL 5)             |sport|dport|len  |sum=0| payload
//!  +--------+--------+----+---------------------------------+-----+-----+-----+-----+---
//! ```
//!
//! The UDP checksum is zero, "not computed" (RFC 768), because the payload is stamped anew for
//! every frame.

use std::net::Ipv4Addr;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::MacAddr;
use crate::ethernet::{ETHERNET_LEN, Ethernet, ethertype};
use crate::ip::{Header, IPV4_LEN, protocol};
use crate::udp::{UDP_LEN, Udp};

/// Length of the Ethernet, IPv4 and UDP headers together, in bytes.
pub const HEADERS_LEN: usize = ETHERNET_LEN + IPV4_LEN + UDP_LEN;

const TTL: u8 = 64;

/// Addresses in the headers of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Source Ethernet address.
    pub src_mac: MacAddr,
    /// Destination Ethernet address.
    pub dst_mac: MacAddr,
    /// Source IPv4 address.
    pub src_ip: Ipv4Addr,
    /// Destination IPv4 address.
    pub dst_ip: Ipv4Addr,
    /// Source UDP port.
    pub src_port: u16,
    /// Destination UDP port.
    pub dst_port: u16,
}

impl Default for Flow {
    /// Locally administered addresses and the benchmarking network of RFC 2544 (198.18.0.0/15).
    fn default() -> Self {
        Self {
            src_mac: MacAddr::local(1),
            dst_mac: MacAddr::local(2),
            src_ip: Ipv4Addr::new(198, 18, 0, 1),
            dst_ip: Ipv4Addr::new(198, 18, 0, 2),
            src_port: 9000,
            dst_port: 9000,
        }
    }
}

impl Flow {
    /// Returns the flow with its source port moved by `index`, so that switches and NICs that hash
    /// the 5-tuple see distinct flows. Ports wrap within the unprivileged range.
    pub fn nth(self, index: u16) -> Self {
        const FIRST: u32 = 1024;
        const COUNT: u32 = 65536 - FIRST;
        let offset = u32::from(self.src_port.max(FIRST as u16)) - FIRST;
        let port = FIRST + (offset + u32::from(index)) % COUNT;
        Self { src_port: port as u16, ..self }
    }

    /// Returns the flow between other machines: both MAC addresses are moved by `index`.
    pub fn between_others(self, index: u16) -> Self {
        let moved = |MacAddr([a, b, c, d, e, f]): MacAddr| {
            let number = u16::from_be_bytes([d, e]).wrapping_add(index);
            let [d, e] = number.to_be_bytes();
            MacAddr([a, b, c, d, e, f])
        };
        Self { src_mac: moved(self.src_mac), dst_mac: moved(self.dst_mac), ..self }
    }

    /// Returns the opposite direction of the flow.
    pub fn reversed(self) -> Self {
        Self {
            src_mac: self.dst_mac,
            dst_mac: self.src_mac,
            src_ip: self.dst_ip,
            dst_ip: self.src_ip,
            src_port: self.dst_port,
            dst_port: self.src_port,
        }
    }
}

/// Writes the headers of `flow` for a frame of `frame_len` bytes into `out`.
///
/// # Panics
/// If `frame_len` is less than [`HEADERS_LEN`] or its IPv4 part longer than 65,535 bytes: the frame
/// sizes that dray accepts exclude both.
pub fn write(flow: &Flow, frame_len: usize, out: &mut [u8; HEADERS_LEN]) {
    let payload_len = frame_len.checked_sub(HEADERS_LEN).expect("a frame holds its headers");
    let (ethernet, rest) = out.split_first_chunk_mut().expect("longer than all three");
    let (ip, udp) = rest.split_first_chunk_mut().expect("longer than all three");
    let &Flow { src_mac, dst_mac, src_ip: src, dst_ip: dst, src_port, dst_port } = flow;
    Ethernet { dst: dst_mac, src: src_mac, ethertype: ethertype::IPV4 }.write(ethernet);
    let datagram_len = u16::try_from(UDP_LEN + payload_len).expect("a length of 16 bits");
    let protocol = protocol::UDP;
    Header { src, dst, protocol, tos: 0, ttl: TTL, payload_len: datagram_len }.write(ip);
    let udp = udp.first_chunk_mut().expect("longer than all three");
    Udp { src_port, dst_port, payload_len }.write(udp);
}

/// Returns the UDP payload of `frame`, or `None` if it is not an unfragmented IPv4/UDP frame
/// without IP options whose lengths fit the received bytes. Padding after the IP packet is left
/// out.
pub fn udp_payload(frame: &[u8]) -> Option<&[u8]> {
    frame.get(udp_payload_range(frame.first_chunk()?, frame.len())?)
}

/// Returns the range of the payload that [`udp_payload`] finds, in a frame of `len` bytes that
/// begins with `headers`.
pub fn udp_payload_range(headers: &[u8; HEADERS_LEN], len: usize) -> Option<Range<usize>> {
    let fragment = u16::from_be_bytes([headers[20], headers[21]]) & 0x3fff;
    if headers[12..14] != ethertype::IPV4.to_be_bytes()
        || headers[14] != 0x45
        || headers[23] != protocol::UDP
        || fragment != 0
    {
        return None;
    }
    let ip_len = usize::from(u16::from_be_bytes([headers[16], headers[17]]));
    let udp_len = usize::from(u16::from_be_bytes([headers[38], headers[39]]));
    let range = HEADERS_LEN..ETHERNET_LEN + ip_len;
    let fits = udp_len + IPV4_LEN == ip_len && range.start <= range.end && range.end <= len;
    fits.then_some(range)
}

/// Turns around a frame for which [`udp_payload`] returns a payload: swaps its Ethernet and IPv4
/// addresses and its UDP ports. The checksums stay valid, because they are sums.
///
/// # Panics
/// If `frame` is shorter than [`HEADERS_LEN`].
pub fn swap_addresses(frame: &mut [u8]) {
    let headers: &mut [u8; HEADERS_LEN] = frame.first_chunk_mut().expect("a UDP frame");
    for (at, len) in [(0, 6), (26, 4), (34, 2)] {
        let (first, second) = headers[at..at + 2 * len].split_at_mut(len);
        first.swap_with_slice(second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flow() -> impl Strategy<Value = Flow> {
        (
            any::<[u8; 6]>(),
            any::<[u8; 6]>(),
            any::<[u8; 4]>(),
            any::<[u8; 4]>(),
            any::<u16>(),
            any::<u16>(),
        )
            .prop_map(|(s, d, si, di, sp, dp)| Flow {
                src_mac: MacAddr(s),
                dst_mac: MacAddr(d),
                src_ip: si.into(),
                dst_ip: di.into(),
                src_port: sp,
                dst_port: dp,
            })
    }

    proptest! {
        /// etherparse, an independent implementation, reads back what was written.
        #[test]
        fn etherparse_parses_written_headers(flow in flow(), len in 64usize..9000) {
            let mut frame = vec![0; len];
            write(&flow, len, frame.first_chunk_mut().unwrap());
            let parsed = etherparse::SlicedPacket::from_ethernet(&frame).unwrap();
            let Some(etherparse::LinkSlice::Ethernet2(eth)) = parsed.link else { panic!("{parsed:?}") };
            prop_assert_eq!(eth.source(), flow.src_mac.0);
            prop_assert_eq!(eth.destination(), flow.dst_mac.0);
            let Some(etherparse::NetSlice::Ipv4(ip)) = parsed.net else { panic!("not IPv4") };
            let ip = ip.header();
            prop_assert_eq!(ip.source_addr(), flow.src_ip);
            prop_assert_eq!(ip.destination_addr(), flow.dst_ip);
            prop_assert_eq!(ip.header_checksum(), ip.to_header().calc_header_checksum());
            let Some(etherparse::TransportSlice::Udp(udp)) = parsed.transport else { panic!("not UDP") };
            prop_assert_eq!((udp.source_port(), udp.destination_port()), (flow.src_port, flow.dst_port));
            prop_assert_eq!(udp.payload().len(), len - HEADERS_LEN);
            prop_assert_eq!(udp_payload(&frame).unwrap().len(), len - HEADERS_LEN);
        }

        #[test]
        fn swapped_addresses_reverse_the_flow(flow in flow(), len in 64usize..200) {
            let mut frame = vec![0; len];
            write(&flow, len, frame.first_chunk_mut().unwrap());
            swap_addresses(&mut frame);
            let back = Flow {
                src_mac: flow.dst_mac,
                dst_mac: flow.src_mac,
                src_ip: flow.dst_ip,
                dst_ip: flow.src_ip,
                src_port: flow.dst_port,
                dst_port: flow.src_port,
            };
            let mut expected = vec![0; len];
            write(&back, len, expected.first_chunk_mut().unwrap());
            prop_assert_eq!(frame, expected);
        }

        /// A UDP payload is always within the bytes.
        #[test]
        fn udp_payload_is_within_any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..128), valid: bool) {
            if valid && bytes.len() >= HEADERS_LEN {
                bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
                bytes[23] = 17;
            }
            if let Some(payload) = udp_payload(&bytes) {
                prop_assert!(payload.len() + HEADERS_LEN <= bytes.len());
            }
        }
    }

    #[test]
    fn udp_payload_excludes_padding_and_fragments() {
        let mut frame = vec![0; 100];
        write(&Flow::default(), 70, frame.first_chunk_mut().unwrap());
        assert_eq!(udp_payload(&frame).unwrap().len(), 70 - HEADERS_LEN, "padding is left out");
        assert_eq!(udp_payload(&frame[..69]), None, "truncated");
        frame[20] = 0x20; // more fragments
        assert_eq!(udp_payload(&frame), None);
    }

    #[test]
    fn between_others_gives_distinct_addresses() {
        let base = Flow::default();
        assert_eq!(base.between_others(0), base);
        let macs: std::collections::HashSet<_> = (0..=u16::MAX)
            .map(|index| base.between_others(index))
            .flat_map(|flow| [flow.src_mac, flow.dst_mac])
            .collect();
        assert_eq!(macs.len(), 2 << 16);
        assert!(macs.iter().all(|mac| mac.0[0] == 2), "none is a group address");
    }

    #[test]
    fn flows_have_distinct_unprivileged_ports() {
        let base = Flow { src_port: 65535, ..Flow::default() };
        assert_eq!(base.nth(0).src_port, 65535);
        assert_eq!(base.nth(1).src_port, 1024);
        let ports: std::collections::HashSet<_> =
            (0..60000).map(|i| base.nth(i).src_port).collect();
        assert_eq!(ports.len(), 60000);
    }
}
