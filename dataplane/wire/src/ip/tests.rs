use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
