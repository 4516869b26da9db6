//! Messages to senders about packets that could not be forwarded.

use dray_upf::DropReason;
use dray_wire::gtpu::{self, Direction};
use dray_wire::ip::{self, Packet};

use super::{NOTHING, SERVER, changed, down_packet, up_packet};
use crate::ends::{self, Ends, from_dn, from_gnb, plain_session, routed, to_gnb, udp};

#[test]
fn senders_get_error_messages() {
    let mut ends = Ends::new(&plain_session(1));
    let message_in = |frames: Vec<Vec<u8>>| {
        let [frame] = &frames[..] else { panic!("{frames:?}") };
        let packet = Packet::parse(&frame[14..], frame.len() - 14).unwrap();
        (packet, frame[14 + packet.header_len..14 + packet.len].to_vec())
    };
    ends.up([from_gnb(77, None, &up_packet(b""))]);
    let (packet, message) = message_in(ends.n3.received());
    assert_eq!(packet.ports, Some((2152, 2152)));
    let message = &message[8..];
    let header = gtpu::Header::parse(message, message.len()).unwrap();
    assert_eq!(header.message, gtpu::message::ERROR_INDICATION);
    let own = "10.0.3.1".parse().unwrap();
    assert_eq!(gtpu::parse_error_indication(&message[header.len..]), Ok((77, own)));

    let mut unknown = from_gnb(1, Some(9), &up_packet(b""));
    unknown[42 + 11] = 0xc1;
    ends.up([unknown]);
    let (_, message) = message_in(ends.n3.received());
    assert_eq!(message[9], gtpu::message::SUPPORTED_EXTENSIONS);

    ends.down([from_dn(&udp(SERVER, "10.45.0.99", (1, 2), b""))]);
    let (packet, message) = message_in(ends.n6.received());
    assert_eq!(
        (ip::address(packet.dst).to_string().as_str(), &message[..2]),
        (SERVER, &[3, 1][..])
    );
    // Not a port of ours.
    let stray = udp("10.0.3.2", "10.0.3.1", (5, 53), b"who is there?");
    ends.up([ends::frame(ends::GNB_MAC, ends::N3_MAC, &stray)]);
    let (packet, message) = message_in(ends.n3.received());
    assert_eq!(
        (ip::address(packet.dst).to_string().as_str(), &message[..2]),
        ("10.0.3.2", &[3, 3][..])
    );
    assert_eq!(message[8..], stray);
    for (own, expected) in [("10.0.6.1", [3, 3]), ("fd00:6::1", [1, 4])] {
        let from = if own.contains(':') { "2001:db8:ff::1" } else { SERVER };
        let stray = udp(from, own, (5, 53), b"who is there?");
        ends.down([from_dn(&stray)]);
        let (packet, message) = message_in(ends.n6.received());
        assert_eq!(
            (ip::address(packet.src).to_string().as_str(), &message[..2]),
            (own, &expected[..])
        );
        assert_eq!(message[8..], stray);
        // No message for a broadcast frame, or for TCP.
        let mut to_all = from_dn(&stray);
        to_all[..6].fill(0xff);
        ends.down([to_all]);
        assert_eq!(ends.n6.received(), NOTHING);
        let mut other = stray;
        other[if own.contains(':') { 6 } else { 9 }] = 6;
        let other = if own.contains(':') { other } else { changed(other, 8, 64) };
        ends.down([from_dn(&other)]);
        assert_eq!(ends.n6.received(), NOTHING);
    }
    ends.down([from_dn(&down_packet(&[0; 1450]))]);
    let (_, message) = message_in(ends.n6.received());
    assert_eq!((&message[..2], &message[6..8]), (&[3, 4][..], &1456u16.to_be_bytes()[..]));
    // Messages are rate-limited.
    ends.up((0..1000).map(|_| from_gnb(77, None, &up_packet(b""))));
    assert!(ends.n3.received().len() < 500);
}

/// Returns a message to a user: type, code, and the word after the checksum.
fn message_to_user(frame: &[u8], about: &[u8]) -> (u8, u8, u32) {
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
    assert_eq!(message[8..], about[..quoted], "quotes the user's packet");
    (message[0], message[1], u32::from_be_bytes([4, 5, 6, 7].map(|at| message[at])))
}

/// A user's packet that cannot be forwarded causes a message through the user's tunnel.
#[test]
fn users_get_icmp_errors() {
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
    let mut sent = 0;
    for (reason, packet, expected) in &cases {
        for qfi in [None, Some(9)] {
            assert_eq!(ends.up([from_gnb(1, qfi, packet)]), NOTHING);
            let frames = ends.n3.received();
            let [frame] = &frames[..] else { panic!("{reason:?}: {frames:x?}") };
            assert_eq!(message_to_user(frame, packet), *expected, "{reason:?}");
            sent += 1;
        }
        assert_eq!(ends.upf.uplink().drops.get(*reason) % 2, 0);
    }
    assert_eq!(ends.upf.uplink().drops.total(), sent);
    let down = ends.upf.downlink();
    assert_eq!((ends.upf.uplink().errors_sent, down.generated), (sent, sent));
    assert_eq!((down.tx_packets, down.rx_packets), (0, 0), "they were not received");
    assert_eq!(up_packet(&vec![7; too_long - 1]).len(), 1300);
    assert_eq!(ends.up([from_gnb(1, None, &up_packet(&vec![7; too_long - 1]))]).len(), 1);

    // Packets wait for a router; their senders get ICMP errors if it does not reply.
    let unheard = [v4("198.51.100.9", b""), v6("2001:db8:7::9", b"")];
    ends.up(unheard.iter().map(|packet| from_gnb(1, None, packet)));
    std::thread::sleep(std::time::Duration::from_secs(2));
    ends.run();
    assert_eq!((ends.n3.received(), ends.upf.buffered()), (NOTHING.into(), 2));
    std::thread::sleep(std::time::Duration::from_millis(1100));
    ends.run();
    let frames = ends.n3.received();
    for ((packet, frame), expected) in unheard.iter().zip(&frames).zip([(3, 1, 0), (1, 3, 0)]) {
        assert_eq!(message_to_user(frame, &routed(packet)), expected);
    }
    assert_eq!((frames.len(), ends.upf.buffered()), (2, 0));
    assert_eq!(ends.upf.uplink().drops.get(DropReason::NoNeighbour), 2);
}

/// Packets of users that must not cause a message, and the limit on messages.
#[test]
fn forbidden_icmp_errors_are_not_sent() {
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
    let expected = [(DropReason::Group, 2), (DropReason::TtlExpired, count - 2)];
    ends.assert_drops(&ends.upf.uplink(), &expected);
    // First fragments and requests do cause a message.
    for packet in [icmp(8), icmp_v6(128), expired(changed(up_packet(&[0; 16]), 6, 0x20))] {
        ends.up([from_gnb(1, None, &packet)]);
        assert_eq!(ends.n3.received().len(), 1, "{packet:x?}");
    }
    let packet = expired(up_packet(b""));
    ends.up((0..2000).map(|_| from_gnb(1, None, &packet)));
    let sent = ends.n3.received().len();
    assert!((1..200).contains(&sent), "{sent}");
}
