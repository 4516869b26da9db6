//! Makes checksums and lengths of any bytes valid, outer and inner, so that tests reach the code
//! behind those checks.

use dray_wire::checksum;
use dray_wire::gtpu::{self, Header, message};
use dray_wire::ip::{self, IPV4_LEN, IPV6_LEN, Version, protocol};

/// Nesting of packets: the outer one, the user's, and one more.
const DEPTH: usize = 3;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// Makes the checksums of a packet valid, and its lengths those of its bytes.
pub fn packet(bytes: &mut [u8], lengths: bool) {
    packet_at(bytes, lengths, 0);
}

fn packet_at(bytes: &mut [u8], lengths: bool, depth: usize) {
    if depth == DEPTH {
        return;
    }
    match bytes.first().map(|byte| byte >> 4) {
        Some(4) => ipv4(bytes, lengths, depth),
        Some(6) => ipv6(bytes, lengths, depth),
        _ => {}
    }
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn half(bytes: &[u8], at: usize) -> usize {
    u16::from_be_bytes([bytes[at], bytes[at + 1]]).into()
}

fn ipv4(bytes: &mut [u8], lengths: bool, depth: usize) {
    let header_len = usize::from(bytes[0] & 0xf) * 4;
    if header_len < IPV4_LEN || header_len > bytes.len() {
        return;
    }
    if lengths {
        put(bytes, 2, bytes.len() as u16);
    }
    let len = half(bytes, 2).clamp(header_len, bytes.len());
    put(bytes, 10, 0);
    let sum = checksum::internet(&bytes[..header_len]);
    put(bytes, 10, sum);
    if half(bytes, 6) & 0x3fff == 0 {
        let (header, upper) = bytes[..len].split_at_mut(header_len);
        let address = |at: usize| u32::from_be_bytes(*header[at..].first_chunk().unwrap());
        let ends = [12, 16].map(|at| ip::number(address(at).to_be_bytes().into()));
        upper_layer((Version::V4, ends, header[9]), upper, lengths, depth);
    }
}

fn ipv6(bytes: &mut [u8], lengths: bool, depth: usize) {
    if bytes.len() < IPV6_LEN {
        return;
    }
    if lengths {
        put(bytes, 4, (bytes.len() - IPV6_LEN) as u16);
    }
    let len = (IPV6_LEN + half(bytes, 4)).min(bytes.len());
    let (mut kind, mut at) = (bytes[6], IPV6_LEN);
    while matches!(kind, HOP_BY_HOP | ROUTING | DESTINATION) && at + 8 <= len {
        (kind, at) = (bytes[at], at + 8 * (1 + usize::from(bytes[at + 1])));
    }
    if kind == FRAGMENT || at > len {
        return;
    }
    let (header, upper) = bytes[..len].split_at_mut(at);
    let ends = [8, 24].map(|at| u128::from_be_bytes(*header[at..].first_chunk().unwrap()));
    upper_layer((Version::V6, ends, kind), upper, lengths, depth);
}

fn upper_layer(
    (version, [src, dst], kind): (Version, [u128; 2], u8),
    upper: &mut [u8],
    lengths: bool,
    depth: usize,
) {
    let at = match kind {
        protocol::ICMP | protocol::ICMPV6 => 2,
        protocol::UDP => 6,
        _ => return,
    };
    if upper.len() < 8 {
        return;
    }
    if kind == protocol::UDP {
        if lengths {
            put(upper, 4, upper.len() as u16);
        }
        if half(upper, 2) == usize::from(gtpu::PORT) {
            message(&mut upper[8..], lengths, depth);
        }
        // Over IPv4 the checksum may be absent.
        if version == Version::V4 && half(upper, at) == 0 {
            return;
        }
    }
    put(upper, at, 0);
    let sum = match (kind, version) {
        (protocol::ICMP, _) => checksum::internet(upper),
        (_, Version::V4) => {
            let end = |number: u128| ip::as_ipv4(number).expect("of IPv4").into();
            ip::upper_checksum(end(src), end(dst), kind, &[upper])
        }
        (_, Version::V6) => ip::upper_checksum(
            std::net::Ipv6Addr::from(src).into(),
            std::net::Ipv6Addr::from(dst).into(),
            kind,
            &[upper],
        ),
    };
    put(upper, at, if sum == 0 && kind == protocol::UDP { 0xffff } else { sum });
}

fn message(bytes: &mut [u8], lengths: bool, depth: usize) {
    if lengths && bytes.len() >= gtpu::FIXED_LEN {
        put(bytes, 2, (bytes.len() - gtpu::FIXED_LEN) as u16);
    }
    if let Ok(header) = Header::parse(bytes, bytes.len())
        && header.message == message::G_PDU
    {
        packet_at(&mut bytes[header.len..header.len + header.payload_len], lengths, depth + 1);
    }
}
