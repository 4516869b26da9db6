//! Packets through tunnels, valid and invalid.

use dray_upf::DropReason;
use dray_wire::gtpu::{self, Direction};
use dray_wire::ip;

use super::{NOTHING, SERVER, changed, down_packet, up_packet};
use crate::ends::{
    self, Ends, from_dn, from_gnb, message_from_gnb, plain_session, routed, to_dn, to_gnb, udp,
};

#[test]
fn uplink_packets_are_decapsulated() {
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
fn downlink_packets_are_encapsulated() {
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

/// Outer IPv6, where the UDP checksum is mandatory.
#[test]
fn tunnels_work_over_ipv6() {
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
fn every_valid_gtpu_header_is_accepted() {
    let mut ends = Ends::new(&plain_session(1));
    let packet = up_packet(b"payload");
    // Flags with their fields, and extension header chains: short, long, and longer than the first
    // part that is read.
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
fn invalid_packet_is_dropped_with_reason() {
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
        (DropReason::NotForUs, with(udp_at + 3, 9)),
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
        // One invalid packet does not affect valid ones in the same batch.
        let many = [right.clone(), frame, right.clone()];
        assert_eq!(ends.up(many).len(), 2, "{reason:?}");
        ends.n3.received();
    }
    let expired = changed(down_packet(b""), 8, 1);
    let group = udp(SERVER, "224.0.0.1", (1, 2), b"");
    for (reason, packet) in [
        (DropReason::NoSession, udp(SERVER, "10.45.0.99", (1, 2), b"")),
        (DropReason::Group, group),
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
    assert_eq!(
        ends.down([from_dn(&down_packet(&[0; 1500 - 44 - 28]))]).len(),
        1,
        "packet of exactly the MTU"
    );
}

/// Builds a user's packet behind extension headers, each of a type and its content; the container
/// is last.
fn behind_extensions(extensions: &[(u8, &[u8])], packet: &[u8]) -> Vec<u8> {
    let mut kinds = extensions.iter().map(|(kind, _)| *kind).chain([0]);
    let mut rest = vec![0, 0, 0, kinds.next().unwrap()];
    for (_, content) in extensions {
        rest.push(((content.len() + 2) / 4) as u8);
        rest.extend(*content);
        rest.push(kinds.next().unwrap());
    }
    rest.extend(packet);
    let mut message = vec![0x34, 255];
    message.extend((rest.len() as u16).to_be_bytes());
    message.extend([0, 0, 0, 1]);
    message.extend(rest);
    message_from_gnb(&message)
}

#[test]
fn extension_header_type_decides_skip_or_drop() {
    let mut ends = Ends::new(&plain_session(1));
    let packet = up_packet(b"handover");
    let container = (0x85, &[0x10, 9][..]);
    for (kind, content) in [
        (0xc0, &[0x12, 0x34][..]),             // PDCP PDU number
        (0x82, &[0, 0x12, 0x34, 0, 0, 0][..]), // 18-bit PDCP PDU number
        (0x03, &[0, 0x12, 0x34, 0, 0, 0][..]), // the same, may be ignored
        (0x20, &[1, 0][..]),                   // service class
        (0x40, &[8, 104][..]),                 // UDP port
        (0x7e, &[0, 0][..]),                   // unknown, may be ignored
    ] {
        for extensions in [&[(kind, content)][..], &[(kind, content), container]] {
            let frame = behind_extensions(extensions, &packet);
            assert_eq!(ends.up([frame]), [to_dn(&packet)], "{kind:#x}");
        }
    }
    ends.assert_drops(&ends.upf.uplink(), &[]);
    // For a gNB only, or unknown.
    let unknown = [0x81, 0x84, 0xc1, 0xff];
    for kind in unknown {
        assert_eq!(ends.up([behind_extensions(&[(kind, &[0, 0])], &packet)]), NOTHING, "{kind:#x}");
    }
    let dropped = [(DropReason::GtpuUnknownExtension, unknown.len() as u64)];
    ends.assert_drops(&ends.upf.uplink(), &dropped);
}

#[test]
fn packet_without_container_has_no_qos_flow() {
    let session =
        plain_session(1).replace("teid = 1, far = 1 }", "teid = 1, far = 1, qfis = [0, 9] }");
    let mut ends = Ends::new(&session);
    let packet = up_packet(b"");
    for qfi in [0, 9] {
        assert_eq!(ends.up([from_gnb(1, Some(qfi), &packet)]).len(), 1);
    }
    assert_eq!(ends.up([from_gnb(1, None, &packet)]), NOTHING);
    assert_eq!(ends.up([behind_extensions(&[(0x40, &[8, 104])], &packet)]), NOTHING);
    ends.assert_drops(&ends.upf.uplink(), &[(DropReason::NoRule, 2)]);
    let any = plain_session(1).replace(
        "{ id = 2, precedence",
        "{ id = 3, precedence = 10, from = \"access\", teid = 1, far = 3, qfis = [0] }, { id = 2, precedence",
    ).replace("fars = [", "fars = [ { id = 3, action = \"drop\" },");
    let mut ends = Ends::new(&any);
    assert_eq!(ends.up([from_gnb(1, Some(0), &packet)]), NOTHING);
    assert_eq!(ends.up([from_gnb(1, None, &packet)]).len(), 1, "matches the rule without QFIs");
}
