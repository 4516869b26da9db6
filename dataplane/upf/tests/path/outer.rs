//! Outer headers: what they copy from inner packets, and what inner packets take from them.

use std::collections::HashSet;

use dray_upf::DropReason;
use dray_wire::ip::{self, Packet};

use super::{NOTHING, SERVER, changed, down_packet, up_packet};
use crate::ends::{Ends, from_dn, from_gnb, plain_session, to_gnb, udp};

/// Returns the outer header's type of service and source port.
fn outer(ends: &mut Ends, packet: &[u8]) -> (u8, u16) {
    let frames = ends.down([from_dn(packet)]);
    let outers: HashSet<_> = frames
        .iter()
        .map(|frame| to_gnb(frame).0)
        .map(|outer| (outer.tos, outer.ports.unwrap().0))
        .collect();
    assert_eq!(outers.len(), 1, "different outer headers: {outers:?}");
    outers.into_iter().next().unwrap()
}

fn with_tos(mut packet: Vec<u8>, tos: u8) -> Vec<u8> {
    if packet[0] >> 4 == 4 {
        return changed(packet, 1, tos);
    }
    (packet[0], packet[1]) = (0x60 | tos >> 4, tos << 4);
    packet
}

fn to_user_v6() -> Vec<u8> {
    udp("2001:db8:ff::1", "2001:db8:1::77", (2, 1), b"six")
}

#[test]
fn outer_header_copies_ecn_but_not_dscp() {
    let marked = |gnb: &str, more: &str| {
        plain_session(1).replace(
            "gnb = \"10.0.3.2\", teid = 1001",
            &format!("gnb = \"{gnb}\", teid = 1001{more}"),
        )
    };
    for gnb in ["10.0.3.2", "fd00:3::2"] {
        for (more, dscp) in [("", 0), (", dscp = 46", 46 << 2)] {
            let mut ends = Ends::new(&marked(gnb, more));
            for ecn in 0..4 {
                for packet in [down_packet(b""), to_user_v6()] {
                    let packet = with_tos(packet, 0xb8 | ecn);
                    assert_eq!(outer(&mut ends, &packet).0, dscp | ecn, "{gnb} {more}");
                }
            }
            // Each fragment of a packet is marked.
            let long = with_tos(changed(down_packet(&[7; 1472]), 6, 0), 3);
            assert_eq!(outer(&mut ends, &long).0, dscp | 3);
        }
    }
    let text = format!("{}{}", crate::ends::INTERFACES, marked("10.0.3.2", ", dscp = 64"));
    let error = Ends::try_new(&text).err().unwrap().to_string();
    assert_eq!(error, "session 1: fars[1].tunnel: dscp 64: give 0 to 63");
}

#[test]
fn inner_ecn_takes_congestion_from_outer_header() {
    let mut ends = Ends::new(&plain_session(1));
    let v6 = udp("2001:db8:1::77", "2001:db8:ff::1", (1, 2), b"six");
    let mut dropped = 0;
    for inner in [up_packet(b"four"), v6, changed(up_packet(&[7; 1490]), 6, 0)] {
        for (own, around) in (0..16).map(|both| (both & 3, both >> 2)) {
            let mut frame = from_gnb(1, Some(9), &with_tos(inner.clone(), 0xb8 | own));
            frame[15] = around;
            frame[24..26].fill(0);
            let sum = dray_wire::checksum::internet(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            let out = ends.up([frame]);
            match ip::ecn::decapsulated(own, around) {
                None => {
                    dropped += 1;
                    assert_eq!(out, NOTHING);
                }
                Some(expected) => {
                    assert!(!out.is_empty());
                    for frame in out {
                        let packet = Packet::parse(&frame[14..], frame.len() - 14).unwrap();
                        assert_eq!(
                            packet.tos,
                            0xb8 | expected,
                            "inner ECN {own}, outer ECN {around}"
                        );
                        assert_eq!(packet.ttl, 63);
                    }
                }
            }
        }
    }
    assert_eq!(dropped, 3);
    ends.assert_drops(&ends.upf.uplink(), &[(DropReason::Congestion, dropped)]);
}

#[test]
fn outer_source_port_depends_on_flow() {
    let mut ends = Ends::new(&(plain_session(1) + &plain_session(2)));
    let mut port = |packet: &[u8]| outer(&mut ends, packet).1;
    let flow = |number: u16| udp(SERVER, "10.45.0.1", (80, 5000 + number), b"payload");
    let ports: HashSet<u16> = (0..1000).map(|number| port(&flow(number))).collect();
    assert!(ports.iter().all(|port| *port >= 49152));
    // 1000 flows over 16384 ports hit about 970 of them.
    assert!(ports.len() > 900, "{}", ports.len());
    let lows: HashSet<u16> = ports.iter().map(|port| port % 16).collect();
    assert_eq!(lows.len(), 16);
    let users: HashSet<u16> = (0..=255)
        .map(|host| port(&udp(&format!("203.0.113.{host}"), "10.45.0.2", (80, 1), b"")))
        .collect();
    assert!(users.len() > 240, "{}", users.len());
    assert_eq!(
        port(&flow(1)),
        port(&with_tos(udp(SERVER, "10.45.0.1", (80, 5001), b"other"), 0xb8))
    );
    // All fragments that arrive use the same port, with or without ports of their own.
    let fragments = [(6, 0x20), (7, 90)].map(|(at, value)| changed(flow(1), at, value));
    assert_eq!(port(&fragments[0]), port(&fragments[1]));
    // A packet that is fragmented here keeps its flow's port.
    let long = changed(udp(SERVER, "10.45.0.1", (80, 5001), &[7; 1472]), 6, 0);
    assert_eq!(port(&long), port(&flow(1)));
}
