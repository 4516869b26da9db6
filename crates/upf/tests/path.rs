//! The data path between two ports in memory: what goes in, and what comes out.

mod ends;

use dray_upf::{DropReason, Event, Operation};
use dray_wire::gtpu::{self, Direction};
use dray_wire::ip::{self, Packet};
use ends::{
    Ends, from_dn, from_gnb, message_from_gnb, plain_session, routed, session_of, to_dn, to_gnb,
    udp,
};
use etherparse::PacketBuilder;

const SERVER: &str = "203.0.113.9";
const NOTHING: [Vec<u8>; 0] = [];

fn up_packet(payload: &[u8]) -> Vec<u8> {
    udp("10.45.0.1", SERVER, (5000, 80), payload)
}

fn down_packet(payload: &[u8]) -> Vec<u8> {
    udp(SERVER, "10.45.0.1", (80, 5000), payload)
}

/// An IPv4 packet with another byte in its header.
fn changed(mut packet: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    packet[at] = value;
    packet[10..12].fill(0);
    let sum = dray_wire::checksum::internet(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

#[test]
fn packets_leave_their_tunnel() {
    let mut ends = Ends::new(&plain_session(1));
    let v6 = udp("2001:db8:1::77", "2001:db8:ff::1", (1, 2), b"six");
    for payload_len in [0, 1, 50, 64, 128, 1400] {
        let packet = up_packet(&vec![7; payload_len]);
        for qfi in [None, Some(9)] {
            let frames = [from_gnb(1, qfi, &packet), from_gnb(1, qfi, &v6)];
            assert_eq!(ends.up(frames), [to_dn(&packet), to_dn(&v6)], "{payload_len} {qfi:?}");
        }
        // Ethernet pads short frames.
        let padded = [from_gnb(1, None, &packet), vec![0; 9]].concat();
        assert_eq!(ends.up([padded]), [to_dn(&packet)]);
    }
    ends.assert_drops(&ends.upf.uplink(), &[]);
}

#[test]
fn packets_go_into_their_tunnel() {
    let mut ends = Ends::new(&plain_session(1));
    let v6 = udp("2001:db8:ff::1", "2001:db8:1::77", (2, 1), b"six");
    for packet in [down_packet(b""), down_packet(&[7; 1400]), v6] {
        let padded = [from_dn(&packet), vec![0; 9]].concat();
        let frames = ends.down([padded]);
        let [frame] = &frames[..] else { panic!("{frames:?}") };
        let (outer, header, inner) = to_gnb(frame);
        assert_eq!(ip::address(outer.src).to_string(), "10.0.3.1");
        assert_eq!(ip::address(outer.dst).to_string(), "10.0.3.2");
        assert_eq!((header.message, header.teid), (gtpu::message::G_PDU, 1001));
        let container = header.container.unwrap();
        assert_eq!((container.direction, container.qfi), (Direction::Downlink, 9));
        assert_eq!(inner, routed(&packet));
    }
    ends.assert_drops(&ends.upf.downlink(), &[]);
}

/// IPv6 around all of it: the checksum is obligatory there.
#[test]
fn tunnels_over_ipv6() {
    let session = plain_session(1).replace("gnb = \"10.0.3.2\"", "gnb = \"fd00:3::2\"");
    let mut ends = Ends::new(&session);
    for len in [0, 1, 99, 1300] {
        let packet = down_packet(&vec![len as u8; len]);
        let frames = ends.down([from_dn(&packet)]);
        let (outer, header, inner) = to_gnb(&frames[0]);
        assert_eq!((outer.version, header.teid), (ip::Version::V6, 1001));
        assert_eq!(inner, routed(&packet));
        let packet = udp("2001:db8:1::1", "2001:db8:ff::1", (1, 2), &vec![3; len]);
        let mut header = [0; 16];
        let header_len = gtpu::write_gpdu(&mut header, 1, None, packet.len());
        let message = [&header[..header_len], &packet].concat();
        let outer = udp("fd00:3::2", "fd00:3::1", (2152, 2152), &message);
        let frame = ends::frame(ends::GNB_MAC, ends::N3_MAC, &outer);
        assert_eq!(ends.up([frame]), [to_dn(&packet)]);
    }
}

#[test]
fn every_legal_form_of_header_is_taken() {
    let mut ends = Ends::new(&plain_session(1));
    let packet = up_packet(b"payload");
    // Flags, what they bring, and chains: short, long, and longer than is looked at at first.
    let long: Vec<u8> = (0..40).flat_map(|_| [1, 0, 0, 0x20]).collect();
    let very_long = [&long[..long.len() - 1], &[0x85, 1, 0x10, 9, 0]].concat();
    let all: [(u8, Vec<u8>); 9] = [
        (0x30, vec![]),
        (0x31, vec![0, 0, 5, 0x85]),
        (0x32, vec![1, 2, 0, 0x85]),
        (0x33, vec![1, 2, 5, 0x85]),
        (0x34, vec![0, 0, 0, 0]),
        (0x34, vec![9, 9, 9, 0x85, 1, 0x10, 9, 0]),
        (0x37, vec![1, 2, 3, 0x40, 1, 8, 104, 0x85, 2, 0x18, 9, 0, 0, 0, 0, 0]),
        (0x36, [&[1, 2, 3, 0x20][..], &very_long].concat()),
        (0x36, [&[1, 2, 3, 0x20][..], &long[..long.len() - 1], &[0]].concat()),
    ];
    for (flags, optional) in all {
        let rest = [&optional[..], &packet].concat();
        let mut message = vec![flags, 255];
        message.extend((rest.len() as u16).to_be_bytes());
        message.extend([0, 0, 0, 1]);
        message.extend(rest);
        assert_eq!(
            ends.up([message_from_gnb(&message)]),
            [to_dn(&packet)],
            "{flags:x} {optional:x?}"
        );
    }
    ends.assert_drops(&ends.upf.uplink(), &[]);
}

#[test]
fn what_is_wrong_is_dropped_by_its_reason() {
    let mut ends = Ends::new(&plain_session(1));
    let right = from_gnb(1, Some(9), &up_packet(b"payload"));
    let with = |at: usize, value: u8| {
        let mut frame = right.clone();
        frame[at] = value;
        frame
    };
    let (ip, udp_at, gtp, inner) = (14, 34, 42, 58);
    let inner_ttl = changed(up_packet(b""), 8, 1);
    let wrong = [
        (DropReason::OtherHost, with(5, 9)),
        (DropReason::NotIp, with(12, 0x81)),
        (DropReason::NotIp, right[..13].to_vec()),
        (DropReason::OuterIp, right[..33].to_vec()),
        (DropReason::OuterIp, with(ip, 0x44)),
        (DropReason::OuterIp, with(ip + 8, 3)),
        (DropReason::OuterUdp, with(udp_at + 3, 9)),
        (DropReason::OuterUdp, with(udp_at + 5, 7)),
        (DropReason::Gtpu, with(gtp, 0x50)),
        (DropReason::Gtpu, with(gtp + 2, 9)),
        (DropReason::Gtpu, with(gtp + 1, 200)),
        (DropReason::GtpuExtension, with(gtp + 12, 0)),
        (DropReason::GtpuExtension, with(gtp + 13, 0x30)),
        (DropReason::GtpuUnknownExtension, with(gtp + 11, 0xc1)),
        (DropReason::UnknownTeid, with(gtp + 7, 2)),
        (DropReason::InnerIp, with(inner, 0x55)),
        (DropReason::InnerIp, with(inner + 3, 200)),
        (DropReason::Spoofed, from_gnb(1, None, &udp("10.45.0.2", SERVER, (1, 2), b""))),
        (DropReason::Spoofed, from_gnb(1, None, &udp("2001:db8:2::1", "2001:db8::1", (1, 2), b""))),
        (DropReason::TtlExpired, from_gnb(1, None, &inner_ttl)),
        (DropReason::NoRoute, from_gnb(1, None, &udp("2001:db8:1::1", "2001:db9::1", (1, 2), b""))),
    ];
    for (reason, frame) in wrong {
        let before = ends.upf.uplink();
        assert_eq!(ends.up([frame.clone()]), NOTHING, "{reason:?}");
        let after = ends.upf.uplink();
        assert_eq!(after.drops.get(reason), before.drops.get(reason) + 1, "{reason:?} {frame:x?}");
        assert_eq!(after.drops.total(), before.drops.total() + 1, "{reason:?}");
        // One bad packet among good ones harms none of them.
        let many = [right.clone(), frame, right.clone()];
        assert_eq!(ends.up(many).len(), 2, "{reason:?}");
        ends.n3.received();
    }
    let expired = changed(down_packet(b""), 8, 1);
    let group = udp(SERVER, "224.0.0.1", (1, 2), b"");
    for (reason, packet) in [
        (DropReason::NoSession, udp(SERVER, "10.45.0.99", (1, 2), b"")),
        (DropReason::NoSession, group),
        (DropReason::TtlExpired, expired),
        (DropReason::TooBig, down_packet(&[0; 1500 - 44 - 28 + 1])),
        (DropReason::InnerIp, vec![0x45; 40]),
        (DropReason::NotForUs, udp(SERVER, "10.0.6.1", (1, 2), b"")),
    ] {
        let before = ends.upf.downlink();
        assert_eq!(ends.down([from_dn(&packet)]), NOTHING, "{reason:?}");
        let after = ends.upf.downlink();
        assert_eq!(after.drops.get(reason), before.drops.get(reason) + 1, "{reason:?}");
    }
    assert_eq!(ends.down([from_dn(&down_packet(&[0; 1500 - 44 - 28]))]).len(), 1, "just fits");
}

#[test]
fn senders_are_told_what_went_wrong() {
    let mut ends = Ends::new(&plain_session(1));
    let told = |frames: Vec<Vec<u8>>| {
        let [frame] = &frames[..] else { panic!("{frames:?}") };
        let packet = Packet::parse(&frame[14..], frame.len() - 14).unwrap();
        (packet, frame[14 + packet.header_len..14 + packet.len].to_vec())
    };
    ends.up([from_gnb(77, None, &up_packet(b""))]);
    let (packet, message) = told(ends.n3.received());
    assert_eq!(packet.ports, Some((2152, 2152)));
    let message = &message[8..];
    let header = gtpu::Header::parse(message, message.len()).unwrap();
    assert_eq!(header.message, gtpu::message::ERROR_INDICATION);
    let own = "10.0.3.1".parse().unwrap();
    assert_eq!(gtpu::parse_error_indication(&message[header.len..]), Ok((77, own)));

    let mut unknown = from_gnb(1, Some(9), &up_packet(b""));
    unknown[42 + 11] = 0xc1;
    ends.up([unknown]);
    let (_, message) = told(ends.n3.received());
    assert_eq!(message[9], gtpu::message::SUPPORTED_EXTENSIONS);

    ends.down([from_dn(&udp(SERVER, "10.45.0.99", (1, 2), b""))]);
    let (packet, message) = told(ends.n6.received());
    assert_eq!(
        (ip::address(packet.dst).to_string().as_str(), &message[..2]),
        (SERVER, &[3, 1][..])
    );
    ends.down([from_dn(&down_packet(&[0; 1450]))]);
    let (_, message) = told(ends.n6.received());
    assert_eq!((&message[..2], &message[6..8]), (&[3, 4][..], &1456u16.to_be_bytes()[..]));
    // Not without end.
    for _ in 0..1000 {
        ends.up([from_gnb(77, None, &up_packet(b""))]);
    }
    assert!(ends.n3.received().len() < 500);
}

/// What a message to a user says: type, code, and the word that follows the checksum.
fn told_to_user(frame: &[u8], about: &[u8]) -> (u8, u8, u32) {
    let (outer, header, inner) = to_gnb(frame);
    assert_eq!(ip::address(outer.dst).to_string(), "10.0.3.2");
    let container = header.container.unwrap();
    assert_eq!((header.teid, container.direction, container.qfi), (1001, Direction::Downlink, 9));
    let packet = Packet::parse(&inner, inner.len()).unwrap();
    let sender = Packet::parse(about, about.len()).unwrap();
    assert_eq!(packet.dst, sender.src);
    let (own, len_max) = match packet.version {
        ip::Version::V4 => ("10.0.6.1", 576),
        ip::Version::V6 => ("fd00:6::1", 1280),
    };
    assert_eq!(ip::address(packet.src).to_string(), own);
    let message = &inner[packet.header_len..];
    let (src, dst) = (ip::address(packet.src), ip::address(packet.dst));
    match packet.version {
        ip::Version::V4 => assert_eq!(dray_wire::checksum::internet(message), 0),
        ip::Version::V6 => assert_eq!(ip::upper_checksum(src, dst, 58, &[message]), 0),
    }
    let quoted = about.len().min(len_max - packet.header_len - 8);
    assert_eq!(message[8..], about[..quoted], "as the user sent it");
    (message[0], message[1], u32::from_be_bytes([4, 5, 6, 7].map(|at| message[at])))
}

/// What cannot go on from a user is answered through the user's tunnel.
#[test]
fn users_are_told_what_went_wrong() {
    let narrow = ends::INTERFACES
        .replace("addresses = [\"10.0.6.1\"", "mtu = 1300, addresses = [\"10.0.6.1\"")
        .replace("\"0.0.0.0/0\"", "\"203.0.0.0/8\"");
    let silent = "{ to = \"198.51.100.0/24\", via = \"10.0.6.3\" }, { to = \"2001:db8:7::/48\", \
                  via = \"fd00:6::3\" }, { to = \"203";
    let narrow = narrow.replace("{ to = \"203", silent);
    let mut ends = Ends::try_new(&format!("{narrow}{}", plain_session(1))).unwrap();
    let v6 = |dst: &str, payload: &[u8]| udp("2001:db8:1::77", dst, (1, 2), payload);
    let v4 = |dst: &str, payload: &[u8]| udp("10.45.0.1", dst, (1, 2), payload);
    let mut hop_limit = v6("2001:db8:ff::1", b"far");
    hop_limit[7] = 1;
    let too_long = 1300 - 28 + 1;
    let cases = [
        (DropReason::TtlExpired, changed(up_packet(b"far"), 8, 1), (11, 0, 0)),
        (DropReason::TtlExpired, hop_limit, (3, 0, 0)),
        (DropReason::NoRoute, v4("192.0.2.1", b""), (3, 0, 0)),
        (DropReason::NoRoute, v6("2001:db9::1", b""), (1, 0, 0)),
        (DropReason::TooBig, up_packet(&vec![7; too_long]), (3, 4, 1300)),
        (DropReason::TooBig, v6("2001:db8:ff::1", &vec![7; too_long]), (2, 0, 1300)),
    ];
    let mut told = 0;
    for (reason, packet, expected) in &cases {
        for qfi in [None, Some(9)] {
            assert_eq!(ends.up([from_gnb(1, qfi, packet)]), NOTHING);
            let frames = ends.n3.received();
            let [frame] = &frames[..] else { panic!("{reason:?}: {frames:x?}") };
            assert_eq!(told_to_user(frame, packet), *expected, "{reason:?}");
            told += 1;
        }
        assert_eq!(ends.upf.uplink().drops.get(*reason) % 2, 0);
    }
    assert_eq!(ends.upf.uplink().drops.total(), told);
    assert_eq!((ends.upf.uplink().complaints, ends.upf.downlink().tx_packets), (told, told));
    assert_eq!(up_packet(&vec![7; too_long - 1]).len(), 1300);
    assert_eq!(ends.up([from_gnb(1, None, &up_packet(&vec![7; too_long - 1]))]).len(), 1);

    // A router that does not answer is not there; until that is known, it may be.
    let unheard = [v4("198.51.100.9", b""), v6("2001:db8:7::9", b"")];
    for packet in &unheard {
        assert_eq!(ends.up([from_gnb(1, None, packet)]), NOTHING);
        assert_eq!(ends.n3.received(), NOTHING);
    }
    (0..7).for_each(|_| ends.upf.ask_for_neighbours(false));
    ends.n6.received();
    for (packet, expected) in unheard.iter().zip([(3, 1, 0), (1, 3, 0)]) {
        assert_eq!(ends.up([from_gnb(1, None, packet)]), NOTHING);
        assert_eq!(told_to_user(&ends.n3.received()[0], packet), expected);
    }
    assert_eq!(ends.upf.uplink().drops.get(DropReason::NoNeighbour), 4);
}

/// Packets of users that nobody is told of, and no more messages than so many.
#[test]
fn users_are_not_told_what_the_standards_forbid() {
    let mut ends = Ends::new(&plain_session(1));
    let expired = |packet: Vec<u8>| changed(packet, 8, 1);
    let icmp = |kind: u8| {
        let mut packet = expired(changed(up_packet(&[0; 8]), 9, 1));
        packet[20] = kind;
        packet
    };
    let hop_limit = |mut packet: Vec<u8>| {
        packet[7] = 1;
        packet
    };
    let icmp_v6 = |kind: u8| {
        let mut packet = hop_limit(udp("2001:db8:1::77", "2001:db8:ff::1", (1, 2), &[0; 8]));
        (packet[6], packet[40]) = (58, kind);
        packet
    };
    let mut later_v6 = hop_limit(udp("2001:db8:1::77", "2001:db8:ff::1", (1, 2), &[0; 8]));
    later_v6[6] = 44;
    later_v6[40..48].copy_from_slice(&[17, 0, 0, 8, 0, 0, 0, 1]);
    let silent = [
        icmp(3),
        icmp(5),
        icmp(11),
        icmp_v6(1),
        icmp_v6(3),
        icmp_v6(137),
        expired(changed(up_packet(&[0; 16]), 7, 9)),
        later_v6,
        expired(udp("10.45.0.1", "224.0.0.251", (1, 2), b"")),
        hop_limit(udp("2001:db8:1::77", "ff0e::1", (1, 2), b"")),
    ];
    let count = silent.len() as u64;
    for packet in silent {
        assert_eq!(ends.up([from_gnb(1, None, &packet)]), NOTHING);
        assert_eq!(ends.n3.received(), NOTHING, "{packet:x?}");
    }
    ends.assert_drops(&ends.upf.uplink(), &[(DropReason::TtlExpired, count)]);
    // What is first, or asks, is answered.
    for packet in [icmp(8), icmp_v6(128), expired(changed(up_packet(&[0; 16]), 6, 0x20))] {
        ends.up([from_gnb(1, None, &packet)]);
        assert_eq!(ends.n3.received().len(), 1, "{packet:x?}");
    }
    let packet = expired(up_packet(b""));
    ends.up((0..2000).map(|_| from_gnb(1, None, &packet)));
    let told = ends.n3.received().len();
    assert!((1..200).contains(&told), "{told}");
}

#[test]
fn peers_and_neighbours_are_answered() {
    let mut ends = Ends::new(&plain_session(1));
    ends.up([message_from_gnb(&gtpu::echo_request(0x1234))]);
    let reply = ends.n3.received();
    assert_eq!(reply[0][42..], gtpu::echo_response(0x1234));
    assert_eq!(reply[0][36..38], 40000u16.to_be_bytes(), "to where it came from");

    let mut ping = Vec::new();
    PacketBuilder::ipv4([10, 0, 6, 2], [10, 0, 6, 1], 64)
        .icmpv4_echo_request(1, 2)
        .write(&mut ping, b"hello")
        .unwrap();
    ends.down([from_dn(&ping)]);
    assert_eq!(ends.n6.received()[0][34], 0, "an echo reply");

    let gnb = "10.0.3.2".parse().unwrap();
    let asks = dray_wire::arp::Arp {
        is_request: true,
        sender: (ends::GNB_MAC, gnb),
        target: (dray_wire::MacAddr([0; 6]), "10.0.3.1".parse().unwrap()),
    };
    let mut frame = [&[0xff; 6][..], &ends::GNB_MAC.0, &[8, 6]].concat();
    frame.extend(asks.to_bytes());
    ends.up([frame]);
    let reply = dray_wire::arp::Arp::parse(&ends.n3.received()[0][14..]).unwrap();
    assert_eq!((reply.is_request, reply.sender.0), (false, ends::N3_MAC));

    let target = "fd00:3::1".parse().unwrap();
    let (group, mac) = dray_wire::icmp::solicited_node(target);
    let asks = dray_wire::icmp::Discovery::Solicitation { target, source: Some(ends::GNB_MAC) };
    let packet = asks.to_packet("fd00:3::2".parse().unwrap(), group);
    ends.up([ends::frame(ends::GNB_MAC, mac, &packet)]);
    let reply = &ends.n3.received()[0];
    let packet = Packet::parse(&reply[14..], reply.len() - 14).unwrap();
    let expected = dray_wire::icmp::Discovery::Advertisement { target, mac: ends::N3_MAC };
    assert_eq!(dray_wire::icmp::Discovery::parse(&packet, &reply[14..]), Some(expected));
    assert_eq!(ends.upf.uplink().control, 3);
}

/// A gNB is asked for, and what it answers is where packets go.
#[test]
fn neighbours_are_asked_for() {
    let mut ends = Ends::new(&plain_session(1).replace("10.0.3.2", "10.0.3.7"));
    assert_eq!(ends.down([from_dn(&down_packet(b""))]), NOTHING);
    ends.assert_drops(&ends.upf.downlink(), &[(DropReason::NoNeighbour, 1)]);
    ends.upf.ask_for_neighbours(false);
    let asked = ends.n3.received();
    let question = dray_wire::arp::Arp::parse(&asked[0][14..]).unwrap();
    assert_eq!((asked.len(), question.target.1.to_string().as_str()), (1, "10.0.3.7"));
    let answer = dray_wire::arp::Arp {
        is_request: false,
        sender: (ends::GNB_MAC, question.target.1),
        target: question.sender,
    };
    let mut frame = [&ends::N3_MAC.0[..], &ends::GNB_MAC.0, &[8, 6]].concat();
    frame.extend(answer.to_bytes());
    ends.up([frame]);
    let (outer, ..) = to_gnb(&ends.down([from_dn(&down_packet(b""))])[0]);
    assert_eq!(ip::address(outer.dst).to_string(), "10.0.3.7");
}

/// The same over IPv6: by a solicitation, and what the advertisement says.
#[test]
fn neighbours_are_solicited() {
    use dray_wire::icmp::Discovery;
    let mut ends = Ends::new(&plain_session(1).replace("10.0.3.2", "fd00:3::7"));
    assert_eq!(ends.down([from_dn(&down_packet(b""))]), NOTHING);
    ends.upf.ask_for_neighbours(false);
    let [asked] = &ends.n3.received()[..] else { panic!("one question") };
    let packet = Packet::parse(&asked[14..], asked.len() - 14).unwrap();
    let target = "fd00:3::7".parse().unwrap();
    let question = Discovery::Solicitation { target, source: Some(ends::N3_MAC) };
    assert_eq!(Discovery::parse(&packet, &asked[14..]), Some(question));
    let answer = Discovery::Advertisement { target, mac: ends::GNB_MAC };
    let answer = answer.to_packet(target, "fd00:3::1".parse().unwrap());
    ends.up([ends::frame(ends::GNB_MAC, ends::N3_MAC, &answer)]);
    let (outer, ..) = to_gnb(&ends.down([from_dn(&down_packet(b""))])[0]);
    assert_eq!(ip::address(outer.dst).to_string(), "fd00:3::7");
}

/// Whoever is at the other end is told once where the addresses are.
#[test]
fn own_addresses_are_announced() {
    let ends = Ends::new(&plain_session(1));
    ends.upf.announce();
    for (peer, mac, last) in [(&ends.n3, ends::N3_MAC, 3), (&ends.n6, ends::N6_MAC, 6)] {
        let [v4, v6] = &peer.received()[..] else { panic!("an announcement for each version") };
        assert_eq!((&v4[..6], &v4[6..12]), (&[0xff; 6][..], &mac.0[..]));
        let arp = dray_wire::arp::Arp::parse(&v4[14..]).unwrap();
        assert!(arp.is_request && arp.sender == (mac, arp.target.1));
        assert_eq!(arp.target.1.octets()[2], last);
        assert_eq!((&v6[..6], &v6[6..12]), (&[0x33, 0x33, 0, 0, 0, 1][..], &mac.0[..]));
        let packet = Packet::parse(&v6[14..], v6.len() - 14).unwrap();
        let said = dray_wire::icmp::Discovery::parse(&packet, &v6[14..]);
        let target = format!("fd00:{last}::1").parse().unwrap();
        assert_eq!(said, Some(dray_wire::icmp::Discovery::Advertisement { target, mac }));
    }
    ends.upf.announce();
    assert_eq!([ends.n3.received(), ends.n6.received()], [NOTHING, NOTHING]);
}

/// What goes to a gNB beyond a router goes to the router.
#[test]
fn gnbs_may_be_behind_routers() {
    let routes = r#"n3 = { routes = [ { to = "10.1.0.0/16", via = "10.0.3.2" },
        { to = "fd01::/16", via = "fd00:3::2" } ], mac"#;
    let interfaces = ends::INTERFACES.replace("n3 = { mac", routes);
    for gnb in ["10.1.2.3", "fd01::5"] {
        let session = plain_session(1).replace("10.0.3.2", gnb);
        let mut ends = Ends::try_new(&format!("{interfaces}{session}")).unwrap();
        let (outer, ..) = to_gnb(&ends.down([from_dn(&down_packet(b""))])[0]);
        assert_eq!(ip::address(outer.dst).to_string(), gnb);
    }
}

#[test]
fn the_rule_of_lowest_precedence_that_fits_decides() {
    let session = r#"
[[applications]]
name = "video"
servers = ["198.51.100.0/24", "198.51.100.7"]
ports = [443]
[[sessions]]
seid = 1
ue = ["10.45.0.1"]
pdrs = [
  { id = 1, precedence = 30, from = "access", teid = 1, far = 1 },
  { id = 2, precedence = 10, from = "access", teid = 1, far = 3, filters = ["permit out 17 from 203.0.113.9 80 to assigned 6000-6010"] },
  { id = 3, precedence = 30, from = "core", far = 2, qers = [1] },
  { id = 4, precedence = 20, from = "core", far = 2, qers = [2], application = "video" },
  { id = 5, precedence = 10, from = "core", far = 3, tos = [0xb8, 0xfc] },
  { id = 6, precedence = 20, from = "access", teid = 1, far = 3, qfis = [5] },
]
fars = [ { id = 1, action = "forward" }, { id = 3, action = "drop" },
  { id = 2, action = "forward", tunnel = { gnb = "10.0.3.2", teid = 7 } } ]
qers = [ { id = 1, qfi = 1 }, { id = 2, qfi = 2 } ]
"#;
    let mut ends = Ends::new(session);
    let mut passes = |qfi, port: u16| {
        ends.up([from_gnb(1, Some(qfi), &udp("10.45.0.1", SERVER, (port, 80), b""))]).len() == 1
    };
    assert!(passes(1, 5999) && !passes(1, 6000) && !passes(1, 6010) && passes(1, 6011));
    assert!(!passes(5, 5999), "another QoS flow");
    let mut qfi = |server: &str, port: u16, tos: u8| {
        let packet = changed(udp(server, "10.45.0.1", (port, 1), b""), 1, tos);
        let frames = ends.down([from_dn(&packet)]);
        frames.first().map(|frame| to_gnb(frame).1.container.unwrap().qfi)
    };
    assert_eq!(qfi("198.51.100.7", 443, 0), Some(2));
    assert_eq!(qfi("198.51.100.7", 80, 0), Some(1));
    assert_eq!(qfi("198.51.101.7", 443, 0), Some(1));
    assert_eq!(qfi("198.51.101.7", 443, 0xb8), None);
    assert_eq!(qfi("198.51.101.7", 443, 0xb9), None, "the mask leaves two bits out");
    ends.assert_drops(&ends.upf.downlink(), &[(DropReason::Rule, 2)]);
}

/// A later fragment has no ports: it is not one of a flow that is told by them.
#[test]
fn users_fragments_pass_by_rules_without_ports() {
    let rule = "{ id = 3, precedence = 1, from = \"access\", teid = 1, far = 3, \
                filters = [\"permit out 17 from 203.0.113.9 80 to assigned\"] }, { id = 2,";
    let session = plain_session(1)
        .replace("{ id = 2, precedence", &format!("{rule} precedence"))
        .replace("fars = [", "fars = [ { id = 3, action = \"drop\" },");
    let mut ends = Ends::new(&session);
    let mut out =
        |at, value| ends.up([from_gnb(1, None, &changed(up_packet(&[7; 64]), at, value))]);
    assert_eq!((out(6, 0x00), out(6, 0x20)), (vec![], vec![]), "the ports are there");
    let later = changed(up_packet(&[7; 64]), 7, 3);
    assert_eq!(out(7, 3), [to_dn(&later)]);
    ends.assert_drops(&ends.upf.uplink(), &[(DropReason::Rule, 2)]);
    // The other way a user is found by its address alone.
    let later = changed(down_packet(&[7; 64]), 7, 3);
    assert_eq!(to_gnb(&ends.down([from_dn(&later)])[0]).2, routed(&later));
}

#[test]
fn gates_and_quotas_close() {
    let session = plain_session(1)
        .replace("far = 1 }", "far = 1, urrs = [4] }")
        .replace("qers = [1] }", "qers = [1], urrs = [4] }")
        + "urrs = [ { id = 4, threshold = { total = 100 }, quota = { total = 200 } } ]";
    let mut ends = Ends::new(&session);
    // 28 bytes of headers each.
    assert_eq!(ends.up([from_gnb(1, None, &up_packet(&[0; 32]))]).len(), 1);
    assert_eq!(ends.upf.events(), []);
    assert_eq!(ends.down([from_dn(&down_packet(&[0; 32]))]).len(), 1);
    let events = ends.upf.events();
    let [Event::Usage { seid: 1, urr: 4, quota: false, counted }] = events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((counted.uplink_octets, counted.downlink_octets), (60, 60));
    assert_eq!(ends.up([from_gnb(1, None, &up_packet(&[0; 72]))]).len(), 1);
    assert!(matches!(ends.upf.events()[..], [Event::Usage { quota: true, .. }]));
    assert_eq!(ends.up([from_gnb(1, None, &up_packet(b""))]).len(), 0);
    assert_eq!(ends.down([from_dn(&down_packet(b""))]).len(), 0);
    ends.assert_drops(&ends.upf.uplink(), &[(DropReason::Quota, 1)]);
    let counted = ends.upf.session(1).unwrap().usage[0].counted;
    assert_eq!((counted.uplink_packets, counted.downlink_packets), (2, 1));

    let closed = plain_session(1).replace("qfi = 9", "qfi = 9, gate_downlink = \"closed\"");
    let mut ends = Ends::new(&closed);
    assert_eq!(ends.down([from_dn(&down_packet(b""))]).len(), 0);
    ends.assert_drops(&ends.upf.downlink(), &[(DropReason::GateClosed, 1)]);
    assert_eq!(ends.up([from_gnb(1, None, &up_packet(b""))]).len(), 1, "the other way is open");
}

/// More than the rate in one go is cut to a burst; what is over the rate is not counted as used.
#[test]
fn rates_are_kept_by_session_and_by_flow() {
    let session = plain_session(1)
        .replace("far = 1 }", "far = 1, qers = [1, 2], urrs = [1] }")
        .replace("qfi = 9 }", "qfi = 9 }, { id = 2, mbr_uplink_kbps = 1000 }")
        + "urrs = [ { id = 1 } ]"
        + &plain_session(2);
    let mut ends = Ends::new(&session);
    let packet = up_packet(&[0; 972]);
    let passed = ends.up((0..100).map(|_| from_gnb(1, None, &packet))).len();
    // 50 ms of 1 Mb/s are six packets of 1000 bytes, and one begins the burst.
    assert!((7..9).contains(&passed), "{passed}");
    ends.assert_drops(&ends.upf.uplink(), &[(DropReason::Policed, 100 - passed as u64)]);
    assert_eq!(ends.upf.session(1).unwrap().usage[0].counted.uplink_packets, passed as u64);
    let other = udp("10.45.0.2", SERVER, (5000, 80), &[0; 972]);
    assert_eq!(ends.up((0..100).map(|_| from_gnb(2, None, &other))).len(), 100, "no limit");
}

/// A packet passes where every rate of its rule has room, and what one of them refuses counts for none.
#[test]
fn several_rates_of_one_rule() {
    let session = plain_session(1)
        .replace(
            "qers = [1] }",
            "qers = [1, 3, 2] }, { id = 3, precedence = 1, from = \"core\", far = 2, \
             qers = [1, 3], filters = [\"permit out 17 from 203.0.113.9 81 to assigned\"] }",
        )
        .replace(
            "qfi = 9 }",
            "qfi = 9 }, { id = 2, mbr_downlink_kbps = 1000 }, \
             { id = 3, mbr_downlink_kbps = 10000 }",
        );
    let mut ends = Ends::new(&session);
    let packets =
        |port| (0..100).map(move |_| from_dn(&udp(SERVER, "10.45.0.1", (port, 5000), &[0; 972])));
    // 50 ms of 1 Mb/s, as above.
    let slow = ends.down(packets(80)).len();
    assert!((7..9).contains(&slow), "{slow}");
    // 50 ms of 10 Mb/s, less what has passed.
    let fast = ends.down(packets(81)).len();
    assert!((52..60).contains(&fast), "{fast}");
    let policed = 200 - (slow + fast) as u64;
    ends.assert_drops(&ends.upf.downlink(), &[(DropReason::Policed, policed)]);
}

#[test]
fn kept_packets_go_on_in_order_when_their_session_lets_them() {
    let forward = plain_session(1);
    let tunnel = "action = \"forward\", tunnel = { gnb = \"10.0.3.2\", teid = 1001 }";
    let buffer = forward.replace(tunnel, "action = \"buffer\"");
    assert_ne!(forward, buffer);
    let mut ends = Ends::new(&format!("buffer_per_session = 40\n{buffer}"));
    let packets: Vec<_> = (0..50u8).map(|number| down_packet(&[number; 100])).collect();
    assert_eq!(ends.down(packets.iter().map(|packet| from_dn(packet))), NOTHING);
    assert_eq!(ends.upf.downlink().buffered, 40);
    ends.assert_drops(&ends.upf.downlink(), &[(DropReason::BufferFull, 10)]);
    assert_eq!(ends.upf.events(), [Event::DownlinkData { seid: 1, pdr: 2 }]);

    let modify =
        |text: &str, end_marker| Operation::Modify { session: session_of(text), end_marker };
    ends.upf.apply(&[modify(&forward, false)]).unwrap();
    ends.run();
    let frames = ends.n3.received();
    let inner: Vec<_> = frames.iter().map(|frame| to_gnb(frame).2).collect();
    assert_eq!(inner, packets[..40].iter().map(|packet| routed(packet)).collect::<Vec<_>>());

    // To another gNB's tunnel: the old one gets its end marker, then packets take the new one.
    ends.upf.apply(&[modify(&forward.replace("teid = 1001", "teid = 77"), true)]).unwrap();
    let frames = ends.down([from_dn(&packets[0])]);
    let headers: Vec<_> = frames.iter().map(|frame| to_gnb(frame).1).collect();
    let said: Vec<_> = headers.iter().map(|header| (header.message, header.teid)).collect();
    assert_eq!(said, [(gtpu::message::END_MARKER, 1001), (gtpu::message::G_PDU, 77)]);

    // A session that goes takes what it keeps along.
    ends.upf.apply(&[modify(&buffer, false)]).unwrap();
    ends.down([from_dn(&packets[0]), from_dn(&packets[1])]);
    ends.upf.apply(&[Operation::Remove(1)]).unwrap();
    ends.run();
    assert_eq!(ends.upf.downlink().drops.get(DropReason::SessionGone), 2);
    assert_eq!(ends.down([from_dn(&packets[0])]), NOTHING);
    ends.n6.received();
    assert_eq!(ends.up([from_gnb(1, None, &up_packet(b""))]), NOTHING);
}

#[test]
fn a_transaction_is_made_as_a_whole_or_not_at_all() {
    let mut ends = Ends::new(&(plain_session(1) + &plain_session(2)));
    let put = |text: &str| Operation::Add(session_of(text));
    let three = plain_session(3);
    for (operations, part) in [
        (
            vec![put(&three), put(&plain_session(4).replace("teid = 4,", "teid = 2,"))],
            "session 4: pdrs[0].teid: 2: session 2",
        ),
        (
            vec![put(&three), put(&plain_session(4).replace("teid = 4,", "teid = 3,"))],
            "session 3 has it",
        ),
        (
            vec![put(&three), put(&plain_session(4).replace("10.45.0.4", "10.45.0.1"))],
            "session 4: ue[0]: 10.45.0.1",
        ),
        (vec![put(&three), Operation::Remove(9)], "session 9: seid: there is no such"),
        (vec![put(&three), put(&three)], "twice"),
        (
            vec![put(&three), put(&plain_session(4).replace("qers = [1] }", "qers = [8] }"))],
            "session 4: pdrs[1].qers: QER 8",
        ),
    ] {
        let error = ends.upf.apply(&operations).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert_eq!(ends.upf.session_count(), 2);
    }
    ends.run();
    let of = |n: u8| from_gnb(n.into(), None, &udp(&format!("10.45.0.{n}"), SERVER, (1, 2), b""));
    assert_eq!(ends.up([of(1), of(2), of(3)]).len(), 2);
    // What one session lets go of another one may have, at once.
    let moved =
        plain_session(4).replace("teid = 4,", "teid = 1,").replace("10.45.0.4", "10.45.0.1");
    ends.upf.apply(&[Operation::Remove(1), put(&moved), put(&three)]).unwrap();
    assert_eq!(ends.up([of(1), of(2), of(3)]).len(), 3);
    assert_eq!(ends.upf.session_count(), 3);
}
