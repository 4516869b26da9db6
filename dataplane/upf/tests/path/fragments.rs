//! Fragments of outer packets, and users' packets that are too long for a link.

use std::time::Duration;

use dray_upf::DropReason;
use dray_wire::ip::Packet;
use etherparse::SlicedPacket;
use etherparse::defrag::IpDefragPool;

use super::{NOTHING, changed, down_packet, up_packet, within};
use crate::ends::{
    self, DN_MAC, Ends, GNB_MAC, N3_MAC, N6_MAC, frame, from_dn, from_gnb, plain_session, routed,
    to_dn, to_gnb, udp,
};

/// Divides the IP packet in `frame_bytes` into fragments of `unit` bytes of payload.
fn divided(frame_bytes: &[u8], ident: u16, unit: usize) -> Vec<Vec<u8>> {
    let packet = &frame_bytes[14..];
    let v6 = packet[0] >> 4 == 6;
    let (head, payload) = packet.split_at(if v6 { 40 } else { 20 });
    let count = payload.len().div_ceil(unit);
    let pieces = payload.chunks(unit).enumerate().map(|(number, piece)| {
        let (offset, more) = ((number * unit / 8) as u16, number + 1 < count);
        let mut head = head.to_vec();
        if v6 {
            let len = (piece.len() + 8) as u16;
            head[4..6].copy_from_slice(&len.to_be_bytes());
            let next = std::mem::replace(&mut head[6], 44);
            head.extend([next, 0]);
            head.extend((offset << 3 | u16::from(more)).to_be_bytes());
            head.extend(u32::from(ident).to_be_bytes());
        } else {
            let len = (piece.len() + 20) as u16;
            head[2..4].copy_from_slice(&len.to_be_bytes());
            head[4..6].copy_from_slice(&ident.to_be_bytes());
            head[6..8].copy_from_slice(&(offset | u16::from(more) << 13).to_be_bytes());
            head[10..12].fill(0);
            let sum = dray_wire::checksum::internet(&head);
            head[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        frame(GNB_MAC, N3_MAC, &[head, piece.to_vec()].concat())
    });
    pieces.collect()
}

/// Builds the same GTP-U message from another gNB's address.
fn from_address(src: &str, teid: u32, packet: &[u8]) -> Vec<u8> {
    let right = from_gnb(teid, None, packet);
    let message = &right[42..];
    let own = if src.contains(':') { "fd00:3::1" } else { "10.0.3.1" };
    frame(GNB_MAC, N3_MAC, &udp(src, own, (40000, 2152), message))
}

#[test]
fn outer_fragments_are_reassembled_in_any_order() {
    let mut ends = Ends::new(&plain_session(1));
    let packet = up_packet(&[7; 1472]);
    assert_eq!(packet.len(), 1500);
    for (ident, src) in ["10.0.3.2", "fd00:3::2"].iter().enumerate() {
        let whole = from_address(src, 1, &packet);
        let pieces = divided(&whole, ident as u16, 1440);
        assert_eq!(pieces.len(), 2);
        assert_eq!(ends.up(pieces.clone()), [to_dn(&packet)], "{src}");
        assert_eq!(ends.up(pieces.into_iter().rev()), [to_dn(&packet)], "{src}");
        let many = divided(&whole, ident as u16, 104);
        let mixed = many.iter().step_by(2).chain(many.iter().skip(1).step_by(2)).cloned();
        assert_eq!(ends.up(mixed), [to_dn(&packet)], "{src}");
    }
    ends.assert_drops(&ends.upf.uplink(), &[]);
    assert_eq!(ends.upf.uplink().reassembled, 6);
}

#[test]
fn reassembled_packets_keep_their_place_in_the_flow() {
    let mut ends = Ends::new(&plain_session(1));
    let (short, long) = (|number: u8| up_packet(&[number]), up_packet(&[7; 1472]));
    let mut frames: Vec<_> = (0..5).map(|number| from_gnb(1, None, &short(number))).collect();
    frames.extend(divided(&from_gnb(1, None, &long), 1, 1440));
    frames.extend((5..60).map(|number| from_gnb(1, None, &short(number))));
    frames.extend(divided(&from_gnb(1, None, &long), 2, 1440));
    let mut expected: Vec<_> = (0..60).map(|number| to_dn(&short(number))).collect();
    expected.insert(5, to_dn(&long));
    expected.push(to_dn(&long));
    assert_eq!(ends.up(frames), expected);
}

/// Each fragment twice, one after the other, and all again in reverse before the last.
#[test]
fn copies_of_fragments_are_ignored() {
    let mut ends = Ends::new(&plain_session(1));
    let packet = up_packet(&[7; 1472]);
    let mut copies = 0;
    for (number, src) in ["10.0.3.2", "fd00:3::2"].iter().enumerate() {
        let whole = from_address(src, 1, &packet);
        for at in [0, 1] {
            let mut pieces = divided(&whole, (10 * number + at) as u16, 704);
            pieces.insert(1, pieces[at].clone());
            assert_eq!(ends.up(pieces), [to_dn(&packet)], "{src}");
            copies += 1;
        }
        let mut pieces = divided(&whole, (10 * number + 2) as u16, 104);
        let last = pieces.remove(number * 3);
        let again: Vec<_> = pieces.iter().rev().cloned().collect();
        copies += again.len() as u64;
        let all = pieces.into_iter().chain(again).chain([last]);
        assert_eq!(ends.up(all), [to_dn(&packet)], "{src}");
    }
    ends.assert_drops(&ends.upf.uplink(), &[(DropReason::FragmentCopy, copies)]);
    assert_eq!(ends.upf.uplink().reassembled, 6);
}

#[test]
fn overlapping_fragments_drop_the_whole_packet() {
    let mut ends = Ends::new(&plain_session(1));
    let packet = up_packet(&[7; 1472]);
    for (number, src) in ["10.0.3.2", "fd00:3::2"].iter().enumerate() {
        let whole = from_address(src, 1, &packet);
        let ident = |case: usize| (10 * number + case) as u16;
        for at in [0, 1, 2] {
            // A fragment at the same place with another byte.
            let mut pieces = divided(&whole, ident(at), 704);
            let piece = pieces.remove(at);
            let mut other = piece.clone();
            *other.last_mut().unwrap() ^= 1;
            pieces.splice(..0, [other, piece]);
            assert_eq!(ends.up(pieces), NOTHING);
            let dropped = 4 * (3 * number + at + 1) as u64;
            ends.assert_drops(&ends.upf.uplink(), &[(DropReason::OuterFragment, dropped)]);
        }
    }
    let dropped = ends.upf.uplink().drops.get(DropReason::OuterFragment);
    let whole = from_address("10.0.3.2", 1, &packet);
    // A part of a fragment that has arrived, with the same bytes.
    let mut pieces = divided(&whole, 40, 704);
    pieces.insert(2, divided(&whole, 40, 352).remove(3));
    assert_eq!(ends.up(pieces), NOTHING);
    ends.assert_drops(&ends.upf.uplink(), &[(DropReason::OuterFragment, dropped + 4)]);
    // A fragment beyond the end arrives before and after the last fragment.
    for last_first in [false, true] {
        let mut pieces = divided(&whole, 50 + u16::from(last_first), 704);
        let beyond = divided(&whole, 50 + u16::from(last_first), 8).remove(200 - 20);
        pieces.remove(1);
        pieces.insert(if last_first { 2 } else { 1 }, beyond);
        ends.up(pieces);
    }
    let mut other = divided(&whole, 60, 704);
    other.swap(0, 2);
    assert_eq!(ends.up(other).len(), 1, "another packet is reassembled");
}

#[test]
fn outer_fragments_of_icmp_are_dropped() {
    let mut ends = Ends::new(&plain_session(1));
    let mut icmp = from_gnb(1, None, &up_packet(&[7; 1472]));
    icmp[23] = 1;
    assert_eq!(ends.up(divided(&icmp, 1, 704)), NOTHING);
    ends.assert_drops(&ends.upf.uplink(), &[(DropReason::OuterFragment, 3)]);
    assert_eq!(ends.n3.received(), NOTHING);
}

#[test]
fn fragment_flood_from_one_source_spares_others() {
    let packet = up_packet(&[7; 1472]);
    let pieces = divided(&from_address("10.0.3.2", 1, &packet), 1, 1440);
    let flood = from_address("10.0.3.66", 1, &packet);
    let flood: Vec<_> = (0..300).map(|ident| divided(&flood, ident, 1440).remove(0)).collect();
    // The first fragment waits for 500 ms only.
    let (out, full) = within(Duration::from_millis(400), || {
        let mut ends = Ends::new(&plain_session(1));
        ends.up([pieces[0].clone()]);
        ends.up(flood.clone());
        (ends.up([pieces[1].clone()]), ends.upf.uplink().drops.get(DropReason::FragmentFull))
    });
    assert_eq!(out, [to_dn(&packet)]);
    assert!((200..300).contains(&full), "{full}");
}

#[test]
fn fragment_flood_from_many_sources_is_bounded() {
    let mut ends = Ends::new(&plain_session(1));
    let packet = up_packet(&[7; 1472]);
    for number in 0..2000u16 {
        let src = format!("10.7.{}.{}", number >> 8, number & 0xff);
        ends.up([divided(&from_address(&src, 1, &packet), 1, 1440).remove(0)]);
    }
    assert!(ends.upf.uplink().drops.get(DropReason::FragmentFull) >= 1000);
    assert_eq!(ends.up(divided(&from_gnb(1, None, &packet), 1, 1440)), [to_dn(&packet)]);
}

/// A fragment of another datagram with the same identification must not become part of this one.
#[test]
fn reassembled_udp_checksum_is_checked() {
    let mut ends = Ends::new(&plain_session(1));
    let [a, b] = [7, 8].map(|byte| from_gnb(1, None, &up_packet(&[byte; 1472])));
    let mixed = [divided(&a, 1, 1440).remove(0), divided(&b, 1, 1440).remove(1)];
    assert_eq!(ends.up(mixed), NOTHING);
    ends.assert_drops(&ends.upf.uplink(), &[(DropReason::OuterUdp, 2)]);
}

/// Makes a packet one that may be fragmented.
fn dividable(packet: Vec<u8>, ident: u8) -> Vec<u8> {
    changed(changed(packet, 6, 0), 5, ident)
}

/// Reassembles `pieces`, fragments of one packet of at most `mtu` bytes each, with etherparse.
/// Returns the header without length, flags and checksum, and the payload.
#[track_caller]
fn together(pieces: &[Vec<u8>], mtu: usize) -> (Vec<u8>, Vec<u8>) {
    let mut pool = IpDefragPool::<(), ()>::new();
    let mut whole = None;
    for piece in pieces {
        let packet = Packet::parse(piece, piece.len()).unwrap();
        assert!(packet.len == piece.len() && packet.len <= mtu);
        assert!(whole.is_none());
        whole = pool.process_sliced_packet(&SlicedPacket::from_ip(piece).unwrap(), (), ()).unwrap();
    }
    (said(&pieces[0]), whole.expect("all fragments").payload)
}

fn said(packet: &[u8]) -> Vec<u8> {
    let mut header = packet[..20].to_vec();
    header[2..4].fill(0);
    header[6..8].fill(0);
    header[10..12].fill(0);
    header
}

#[test]
fn long_packets_to_users_are_fragmented_inside_the_tunnel() {
    for (gnb, outer_len) in [("10.0.3.2", 44), ("fd00:3::2", 64)] {
        let mut ends =
            Ends::new(&plain_session(1).replace("gnb = \"10.0.3.2\"", &format!("gnb = \"{gnb}\"")));
        let long = dividable(down_packet(&[7; 1472]), 9);
        let short = |number: u8| down_packet(&[number]);
        let frames = ends.down([from_dn(&short(1)), from_dn(&long), from_dn(&short(2))]);
        assert!(frames.iter().all(|frame| frame.len() <= 1514), "no outer fragments");
        let inner: Vec<_> = frames.iter().map(|frame| to_gnb(frame).2).collect();
        let [first, pieces @ .., last] = &inner[..] else { panic!("{}", inner.len()) };
        assert_eq!([first, last], [&routed(&short(1)), &routed(&short(2))], "in order");
        assert_eq!(pieces.len(), 2);
        let routed = routed(&long);
        assert_eq!(together(pieces, 1500 - outer_len), (said(&routed), routed[20..].to_vec()));
        ends.assert_drops(&ends.upf.downlink(), &[]);
        assert_eq!(ends.upf.downlink().fragmented, 1);
        // The longest packet that fits.
        let fits = dividable(down_packet(&vec![7; 1500 - outer_len - 28]), 9);
        assert_eq!(ends.down([from_dn(&fits)]).len(), 1);
    }
}

#[test]
fn long_packets_from_users_are_fragmented() {
    let narrow = ends::INTERFACES
        .replace("addresses = [\"10.0.6.1\"", "mtu = 600, addresses = [\"10.0.6.1\"");
    let mut ends = Ends::try_new(&format!("{narrow}{}", plain_session(1))).unwrap();
    let long = dividable(up_packet(&[7; 1400]), 9);
    let short = |number: u8| up_packet(&[number]);
    for qfi in [None, Some(9)] {
        let frames = [short(1), long.clone(), short(2)].map(|packet| from_gnb(1, qfi, &packet));
        let frames = ends.up(frames);
        let [first, pieces @ .., last] = &frames[..] else { panic!("{}", frames.len()) };
        assert_eq!([first, last], [&to_dn(&short(1)), &to_dn(&short(2))], "in order");
        let inner: Vec<_> = pieces.iter().map(|frame| frame[14..].to_vec()).collect();
        assert!(pieces.iter().all(|piece| *piece == frame(N6_MAC, DN_MAC, &piece[14..])));
        let routed = routed(&long);
        assert_eq!(together(&inner, 600), (said(&routed), routed[20..].to_vec()));
    }
    ends.assert_drops(&ends.upf.uplink(), &[]);
    assert_eq!(ends.n3.received(), NOTHING, "the user gets no message");
    // A fragment is divided like a whole packet: its offset and its more-fragments flag are kept.
    let part = changed(changed(long, 6, 0x20), 7, 100);
    let pieces = ends.up([from_gnb(1, None, &part)]);
    let flags = |frame: &Vec<u8>| u16::from_be_bytes([frame[20], frame[21]]);
    assert_eq!(pieces.iter().map(flags).collect::<Vec<_>>(), [0x2064, 0x20ac, 0x20f4]);
}

#[test]
fn fragmented_packet_is_counted_once() {
    let session = plain_session(1).replace("qers = [1] }", "qers = [1], urrs = [4] }")
        + "urrs = [ { id = 4 } ]";
    let mut ends = Ends::new(&session);
    assert_eq!(ends.down([from_dn(&dividable(down_packet(&[7; 1472]), 9))]).len(), 2);
    let counted = ends.upf.session(1).unwrap().usage[0].counted;
    assert_eq!((counted.downlink_packets, counted.downlink_octets), (1, 1500));
}
