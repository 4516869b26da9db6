//! GTP-U, IP, ICMP and ARP as untrusted bytes: parsed or refused, and parsed parts lie within the
//! bytes. The first byte says what is made valid before: 1: checksums, 2: lengths too.
#![no_main]

use dray_upf::config::Filter;
use dray_wire::arp::Arp;
use dray_wire::fragment::{FragmentHeader, Fragments, IPV4_HEADER_MAX};
use dray_wire::gtpu::{self, Header};
use dray_wire::icmp::{self, Discovery, Problem};
use dray_wire::ip::{self, Fragment, Packet, Version};
use dray_wire::router;
use dray_wire::udp::{UDP_LEN, Udp};
use libfuzzer_sys::fuzz_target;

#[path = "../../dataplane/upf/tests/any_bytes/model/valid.rs"]
mod valid;

const PROBLEMS: [Problem; 5] = [
    Problem::TooBig(1280),
    Problem::TimeExceeded,
    Problem::Unreachable,
    Problem::NoRoute,
    Problem::NoPort,
];

fn message(bytes: &[u8]) {
    let Ok(header) = Header::parse(bytes, bytes.len()) else { return };
    assert!(header.len + header.payload_len <= bytes.len());
    let payload = &bytes[header.len..header.len + header.payload_len];
    if let Ok((teid, gnb)) = gtpu::parse_error_indication(payload) {
        let made = gtpu::error_indication(teid, gnb, gtpu::PORT);
        let header = Header::parse(&made, made.len()).expect("what we make is right");
        let payload = &made[header.len..][..header.payload_len];
        assert_eq!(gtpu::parse_error_indication(payload), Ok((teid, gnb)));
    }
    if header.message == gtpu::message::G_PDU {
        packet(payload);
    }
}

fn packet(bytes: &[u8]) {
    let Ok(packet) = Packet::parse(bytes, bytes.len()) else { return };
    assert!(packet.header_len <= packet.len && packet.len <= bytes.len());
    let discovery = Discovery::parse(&packet, bytes);
    assert!(discovery.is_none() || Discovery::is_in(&packet, bytes));
    if router::is_valid_solicitation(&packet, bytes) {
        assert!(router::is_solicitation(&packet, bytes));
    }
    if let Some(reply) = icmp::echo_reply(&packet, bytes) {
        check_reply(&reply, (packet.destination(), packet.source()));
    }
    for from in [[10, 0, 0, 1].into(), [1; 16].into()] {
        for problem in PROBLEMS {
            if let Some(error) = icmp::error(from, &packet, bytes, problem) {
                check_reply(&error, (from, packet.source()));
            }
        }
    }
    if packet.fragment != Fragment::Whole
        && let Some(header) = FragmentHeader::parse(&packet, bytes)
    {
        assert!(header.header_len <= bytes.len() && header.offset <= 0xffff);
    }
    if packet.version == Version::V4 && packet.len > 576 {
        check_division(&packet, bytes);
    }
    let upper = &bytes[packet.header_len..packet.len];
    if packet.protocol == ip::protocol::UDP
        && packet.fragment == Fragment::Whole
        && let Some(udp) = Udp::parse(upper.get(..UDP_LEN).unwrap_or_default(), upper.len())
    {
        assert!(UDP_LEN + udp.payload_len <= upper.len());
        message(&upper[UDP_LEN..UDP_LEN + udp.payload_len]);
    }
    // A packet is still valid after a router's changes.
    if packet.ttl > 1 {
        let mut routed = bytes.to_vec();
        ip::decrement_ttl(&mut routed, packet.version);
        ip::set_ecn(&mut routed, packet.version, ip::ecn::CE);
        let (ttl, tos) = (packet.ttl - 1, packet.tos | ip::ecn::CE);
        assert_eq!(Packet::parse(&routed, routed.len()), Ok(Packet { ttl, tos, ..packet }));
    }
}

/// Checks that a reply has the right addresses and checksums.
fn check_reply(bytes: &[u8], (src, dst): (std::net::IpAddr, std::net::IpAddr)) {
    let reply = Packet::parse(bytes, bytes.len()).expect("what we make is right");
    assert_eq!((reply.source(), reply.destination(), reply.len), (src, dst, bytes.len()));
    let upper = &bytes[reply.header_len..];
    let sum = match reply.version {
        Version::V4 => dray_wire::checksum::internet(upper),
        Version::V6 => ip::upper_checksum(src, dst, reply.protocol, &[upper]),
    };
    assert_eq!(sum, 0);
}

/// Checks that a packet's fragments carry all of its payload, in order, each with a valid header.
fn check_division(packet: &Packet, bytes: &[u8]) {
    let header = &bytes[..packet.header_len];
    let Some(mut fragments) = Fragments::new(header, packet.len, 576) else { return };
    let (mut out, mut at) = ([0; IPV4_HEADER_MAX], packet.header_len);
    while let Some((len, body)) = fragments.next(&mut out) {
        assert!(body.start == at && body.end > at && len + body.len() <= 576);
        at = body.end;
        let fragment = [&out[..len], &bytes[body]].concat();
        let fragment = Packet::parse(&fragment, fragment.len()).expect("what we make is right");
        assert_eq!((fragment.src, fragment.dst), (packet.src, packet.dst));
    }
    assert_eq!(at, packet.len);
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let mut bytes = rest.to_vec();
    if first & 1 != 0 {
        valid::packet(&mut bytes, first & 2 != 0);
    }
    message(&bytes);
    packet(&bytes);
    if let Some(arp) = Arp::parse(&bytes) {
        assert_eq!(Arp::parse(&arp.to_bytes()), Some(arp));
    }
    if let Ok(text) = std::str::from_utf8(&bytes)
        && let Ok(filter) = text.parse::<Filter>()
    {
        assert_eq!(filter.to_string().parse(), Ok(filter));
    }
});
