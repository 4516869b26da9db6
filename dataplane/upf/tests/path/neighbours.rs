//! Neighbours of the user plane function.

use std::net::IpAddr;

use dray_upf::DropReason;
use dray_wire::MacAddr;
use dray_wire::arp::Arp;
use dray_wire::ethernet::Ethernet;
use dray_wire::gtpu;
use dray_wire::icmp::Discovery;
use dray_wire::ip::{self, Packet};
use etherparse::PacketBuilder;

use super::{NOTHING, SERVER, down_packet, dropped, up_packet};
use crate::ends::{
    self, Ends, craft, frame, from_dn, from_gnb, message_from_gnb, plain_session, routed, to_gnb,
    udp,
};

#[test]
fn echo_arp_and_discovery_get_replies() {
    let mut ends = Ends::new(&plain_session(1));
    ends.up([message_from_gnb(&gtpu::echo_request(0x1234))]);
    let reply = ends.n3.received();
    assert_eq!(reply[0][42..], gtpu::echo_response(0x1234));
    assert_eq!(reply[0][36..38], 40000u16.to_be_bytes(), "reply to the request's source port");

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

/// Returns the address that a frame asks for by ARP or neighbour discovery, if it does.
fn asked(frame: &[u8]) -> Option<IpAddr> {
    let bytes = &frame[14..];
    if let Some(arp) = Arp::parse(bytes).filter(|arp| arp.is_request) {
        return Some(arp.target.1.into());
    }
    match Discovery::parse(&Packet::parse(bytes, bytes.len()).ok()?, bytes)? {
        Discovery::Solicitation { target, .. } => Some(target.into()),
        Discovery::Advertisement { .. } => None,
    }
}

/// Returns the reply of the gNB, by ARP or neighbour discovery.
pub(crate) fn reply(gnb: &str) -> Vec<u8> {
    let says = if gnb.contains(':') { advertisement } else { arp_reply };
    says(ends::GNB_MAC, gnb)
}

fn numbered(number: u16) -> Vec<u8> {
    down_packet(&number.to_be_bytes())
}

/// Returns the users' packets in frames to the gNB.
fn inner(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    frames.iter().map(|frame| to_gnb(frame).2).collect()
}

/// The first packet to a gNB that is not known is the reason for a question; it and later ones
/// leave in order once there is a reply, before newer ones.
#[test]
fn packets_wait_for_a_neighbour_in_order() {
    for gnb in ["10.0.3.7", "fd00:3::7"] {
        let mut ends =
            Ends::new(&plain_session(1).replace("gnb = \"10.0.3.2\"", &format!("gnb = \"{gnb}\"")));
        let frames = ends.down([from_dn(&numbered(0))]);
        let questions: Vec<_> = frames.iter().map(|frame| asked(frame)).collect();
        assert_eq!(questions, [Some(gnb.parse().unwrap())], "asked at once");
        assert_eq!(ends.down((1..1000).map(|number| from_dn(&numbered(number)))), NOTHING);
        assert_eq!(ends.upf.buffered(), 1000);
        ends.n3.send([reply(gnb)]);
        let out = ends.down((1000..1010).map(|number| from_dn(&numbered(number))));
        let expected: Vec<_> = (0..1010).map(|number| routed(&numbered(number))).collect();
        assert_eq!(inner(&out), expected, "{gnb}");
        let counters = ends.upf.downlink();
        ends.assert_drops(&counters, &[]);
        assert_eq!((counters.buffering, counters.tx_packets, ends.upf.buffered()), (1000, 1010, 0));
    }
}

/// A gNB that was absent for a minute is asked for at once, although questions have become rare.
#[test]
fn packet_asks_a_silent_neighbour_at_once() {
    for gnb in ["10.0.3.7", "fd00:3::7"] {
        let mut ends =
            Ends::new(&plain_session(1).replace("gnb = \"10.0.3.2\"", &format!("gnb = \"{gnb}\"")));
        (0..1200).for_each(|_| ends.upf.solicit_neighbours());
        ends.n3.received();
        let frames = ends.down((0..100).map(|number| from_dn(&numbered(number))));
        assert_eq!(frames.iter().filter_map(|frame| asked(frame)).count(), 1, "{gnb}");
        assert_eq!(frames.len(), 1);
        // If the reply is lost, the next question comes half a second later, not half a minute.
        let rounds = || {
            let round = |_| ends.upf.solicit_neighbours();
            (0..20).for_each(round);
            ends.n3.received().len()
        };
        assert_eq!(rounds(), 2, "{gnb}");
        ends.up([reply(gnb)]);
        assert_eq!(inner(&ends.down([])).len(), 100);
        ends.assert_drops(&ends.upf.downlink(), &[]);
    }
}

/// The gNB sends a packet into the tunnel, pings, or sends to a port that is not open.
#[test]
fn silent_neighbour_that_sends_anything_is_asked() {
    let v6 = |packet: &[u8]| {
        let message = &from_gnb(1, None, packet)[42..];
        frame(ends::GNB_MAC, ends::N3_MAC, &udp("fd00:3::7", "fd00:3::1", (40000, 2152), message))
    };
    let v4 = |port: u16, payload: &[u8]| {
        frame(ends::GNB_MAC, ends::N3_MAC, &udp("10.0.3.7", "10.0.3.1", (40000, port), payload))
    };
    let message = from_gnb(1, None, &up_packet(b""))[42..].to_vec();
    let unknown = from_gnb(77, None, &up_packet(b""))[42..].to_vec();
    let cases = [
        ("10.0.3.7", v4(2152, &message)),
        ("10.0.3.7", v4(2152, &unknown)),
        ("10.0.3.7", v4(2152, &gtpu::echo_request(1))),
        ("10.0.3.7", v4(99, b"anything")),
        ("fd00:3::7", v6(&up_packet(b""))),
    ];
    for (gnb, sent) in cases {
        let mut ends =
            Ends::new(&plain_session(1).replace("gnb = \"10.0.3.2\"", &format!("gnb = \"{gnb}\"")));
        (0..1200).for_each(|_| ends.upf.solicit_neighbours());
        ends.n3.received();
        let questions = |ends: &mut Ends| {
            let all = ends.n3.received();
            all.iter().filter_map(|frame| asked(frame)).collect::<Vec<_>>()
        };
        // Another host's packet, in a batch with the neighbour's.
        let others = (0..40).map(|_| from_gnb(1, None, &up_packet(b"other")));
        ends.up(others.clone());
        ends.upf.solicit_neighbours();
        assert!(questions(&mut ends).is_empty(), "{gnb}");
        ends.up(others.chain([sent.clone()]));
        ends.n3.received();
        ends.upf.solicit_neighbours();
        assert_eq!(questions(&mut ends), [gnb.parse::<IpAddr>().unwrap()]);
        // It proves nothing: the Ethernet address is that of the reply.
        let lie = [&sent[..6], &ATTACKER.0, &sent[12..]].concat();
        ends.up([lie]);
        assert_eq!(sent_to(&mut ends), None);
        ends.up([reply(gnb)]);
        assert_eq!(sent_to(&mut ends), Some(ends::GNB_MAC));
    }
}

/// The queue of a neighbour is bounded, and keeps the latest packets.
#[test]
fn oldest_waiting_packet_makes_room() {
    let more = "buffer_packets = 64\n";
    let session = plain_session(1).replace("10.0.3.2", "10.0.3.7");
    let mut ends = Ends::new(&format!("{more}{session}"));
    ends.down((0..3000).map(|number| from_dn(&numbered(number))));
    assert_eq!(ends.upf.buffered(), 1024);
    ends.up([arp_reply(ends::GNB_MAC, "10.0.3.7")]);
    let expected: Vec<_> = (3000 - 1024..3000).map(|number| routed(&numbered(number))).collect();
    assert_eq!(inner(&ends.down([])), expected);
    ends.assert_drops(&ends.upf.downlink(), &[(DropReason::NoNeighbour, 3000 - 1024)]);
}

/// Packets to many absent neighbours do not take the room of one that replies.
#[test]
fn waiting_packets_to_absent_neighbours_are_bounded() {
    let sessions: String = (1..=40)
        .map(|seid: u8| plain_session(seid).replace("10.0.3.2", &format!("10.0.3.{}", 100 + seid)))
        .collect();
    let mut ends = Ends::new(&format!("buffer_packets = 64\n{sessions}"));
    let to = |seid: u8| from_dn(&udp(SERVER, &format!("10.45.0.{seid}"), (80, 5000), b"x"));
    for seid in 1..40 {
        ends.down((0..200).map(|_| to(seid)));
    }
    assert_eq!(ends.upf.buffered(), 2048);
    ends.down((0..10).map(|_| to(40)));
    ends.up([arp_reply(ends::GNB_MAC, "10.0.3.140")]);
    assert_eq!(ends.down([]).len(), 10);
    assert_eq!(ends.upf.buffered(), 2038);
    let counters = ends.upf.downlink();
    let gone = counters.drops.get(DropReason::NoNeighbour);
    assert_eq!(counters.rx_packets, counters.tx_packets + gone + 2038);
}

/// Questions for absent neighbours are bounded, however many packets there are to them.
#[test]
fn scan_of_absent_neighbours_causes_few_questions() {
    let sessions: String = (1..=60)
        .map(|seid: u8| plain_session(seid).replace("10.0.3.2", &format!("10.0.3.{}", 100 + seid)))
        .collect();
    let mut ends = Ends::new(&sessions);
    (0..1200).for_each(|_| ends.upf.solicit_neighbours());
    ends.n3.received();
    let to = |seid: u8| from_dn(&udp(SERVER, &format!("10.45.0.{seid}"), (80, 5000), b"x"));
    let mut all = Vec::new();
    for round in 0..20 {
        let frames = ends.down((1..=60).map(to));
        assert!(frames.len() <= 32, "{} at once in round {round}", frames.len());
        ends.upf.solicit_neighbours();
        all.extend(frames.into_iter().chain(ends.n3.received()));
    }
    let mut counts = std::collections::HashMap::new();
    all.iter().for_each(|frame| *counts.entry(asked(frame).unwrap()).or_insert(0) += 1);
    assert_eq!(counts.len(), 60, "each is asked");
    // In a second.
    assert!(counts.values().all(|count| (1..=3).contains(count)), "{counts:?}");
}

/// All users of a next hop wait for it: what a session has buffered, an end marker, and a router
/// advertisement.
#[test]
fn handover_to_and_from_unknown_neighbours_keeps_order() {
    use super::waiting::{buffering, modify_with};
    let mut ends = Ends::new(&buffering(1));
    ends.down((0..64).map(|number| from_dn(&numbered(number))));
    let to = |last: u8| plain_session(1).replace("10.0.3.2", &format!("10.0.3.{last}"));
    assert_eq!(
        modify_with(&mut ends, &to(7), false).iter().filter(|it| asked(it).is_some()).count(),
        1
    );
    ends.down((64..70).map(|number| from_dn(&numbered(number))));
    // The handover, before the first gNB has replied.
    modify_with(&mut ends, &to(8), true);
    ends.down((70..80).map(|number| from_dn(&numbered(number))));
    assert_eq!(ends.upf.buffered(), 80);
    (0..40).for_each(|_| ends.upf.solicit_neighbours());
    ends.n3.received();
    ends.up([arp_reply(ends::GNB_MAC, "10.0.3.7")]);
    let out = ends.down([]);
    let (packets, marker) = out.split_at(70);
    let expected: Vec<_> = (0..70).map(|number| routed(&numbered(number))).collect();
    assert_eq!(inner(packets), expected);
    assert_eq!(marker.len(), 1);
    assert_eq!(to_gnb(&marker[0]).1.message, gtpu::message::END_MARKER);
    ends.up([arp_reply(ends::GNB_MAC, "10.0.3.8")]);
    let expected: Vec<_> = (70..80).map(|number| routed(&numbered(number))).collect();
    assert_eq!(inner(&ends.down([])), expected);
    ends.assert_drops(&ends.upf.downlink(), &[]);
}

/// Packets from users wait for the router on N6.
#[test]
fn packets_wait_for_a_router() {
    let interfaces = ends::INTERFACES.replace("via = \"10.0.6.2\"", "via = \"10.0.6.9\"");
    let mut ends = Ends::try_new(&format!("{interfaces}{}", plain_session(1))).unwrap();
    let up = |number: u16| up_packet(&number.to_be_bytes());
    let frames = ends.up((0..100).map(|number| from_gnb(1, Some(9), &up(number))));
    assert_eq!(
        frames.iter().filter_map(|frame| asked(frame)).collect::<Vec<_>>(),
        ["10.0.6.9".parse::<IpAddr>().unwrap()]
    );
    let reply = Arp {
        is_request: false,
        sender: (ends::DN_MAC, "10.0.6.9".parse().unwrap()),
        target: (ends::N6_MAC, "10.0.6.1".parse().unwrap()),
    };
    ends.down([craft::arp(ends::DN_MAC, ends::N6_MAC, &reply)]);
    let out = ends.up([from_gnb(1, Some(9), &up(100))]);
    let expected: Vec<_> = (0..=100).map(|number| ends::to_dn(&up(number))).collect();
    assert_eq!(out, expected);
    ends.assert_drops(&ends.upf.uplink(), &[]);
}

/// A neighbour's number is not given to another while packets wait for it.
#[test]
fn waiting_packets_do_not_go_to_another_neighbour() {
    use super::waiting::modify_with;
    let to = |last: u8| plain_session(1).replace("10.0.3.2", &format!("10.0.3.{last}"));
    let mut ends = Ends::new(&to(7));
    ends.down([from_dn(&numbered(0))]);
    let remove = dray_upf::Operation::Remove(1);
    ends.upf.apply(&[remove]).unwrap();
    ends.run();
    ends.upf.solicit_neighbours();
    ends.upf.apply(&[dray_upf::Operation::Add(ends::session_of(&to(8)))]).unwrap();
    ends.run();
    ends.down([from_dn(&numbered(1))]);
    modify_with(&mut ends, &to(8), false);
    ends.up([arp_reply(ends::GNB_MAC, "10.0.3.8")]);
    assert_eq!(inner(&ends.down([])), [routed(&numbered(1))]);
}

/// Own addresses are announced once to the other end of each link.
#[test]
fn own_addresses_are_announced_once() {
    let ends = Ends::new(&plain_session(1));
    ends.upf.announce();
    for (peer, mac, last) in [(&ends.n3, ends::N3_MAC, 3), (&ends.n6, ends::N6_MAC, 6)] {
        let [v4, v6] = &peer.received()[..] else { panic!("not one announcement per IP version") };
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

/// Packets to a gNB behind a router go to the router.
#[test]
fn gnb_behind_router_is_reachable() {
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

/// Builds an ARP reply, solicited or not.
fn arp_reply(mac: MacAddr, address: &str) -> Vec<u8> {
    let reply = dray_wire::arp::Arp {
        is_request: false,
        sender: (mac, address.parse().unwrap()),
        target: (ends::N3_MAC, "10.0.3.1".parse().unwrap()),
    };
    craft::arp(mac, ends::N3_MAC, &reply)
}

fn advertisement(mac: MacAddr, address: &str) -> Vec<u8> {
    let target = address.parse().unwrap();
    let message = dray_wire::icmp::Discovery::Advertisement { target, mac };
    let packet = message.to_packet(target, "fd00:3::1".parse().unwrap());
    craft::frame(mac, ends::N3_MAC, &packet)
}

const ATTACKER: MacAddr = MacAddr([2, 0, 0, 0, 9, 9]);

/// Returns the MAC address that packets for the user go to.
fn sent_to(ends: &mut Ends) -> Option<MacAddr> {
    ends.n3.received();
    let frames = ends.down([from_dn(&down_packet(b""))]);
    let mut packets = frames.iter().filter(|frame| asked(frame).is_none());
    packets.next().map(|frame| Ethernet::parse(frame).unwrap().dst)
}

#[test]
fn configured_neighbours_are_never_replaced() {
    for gnb in ["10.0.3.2", "fd00:3::2"] {
        let mut ends =
            Ends::new(&plain_session(1).replace("gnb = \"10.0.3.2\"", &format!("gnb = \"{gnb}\"")));
        let lie = if gnb.contains(':') { advertisement } else { arp_reply };
        for _ in 0..20 {
            ends.up((0..100).map(|_| lie(ATTACKER, gnb)));
            ends.upf.solicit_neighbours();
            assert_eq!(sent_to(&mut ends), Some(ends::GNB_MAC), "{gnb}");
        }
        assert_eq!(dropped(&ends.upf.uplink(), "neighbour_refused"), 2000);
        ends.up([lie(ends::GNB_MAC, gnb)]);
        assert_eq!(ends.upf.uplink().control, 1);
    }
}

/// An unsolicited reply is ignored, and a station that replies is not replaced by another.
#[test]
fn learned_neighbours_are_kept_while_they_answer() {
    for gnb in ["10.0.3.7", "fd00:3::7"] {
        let mut ends = Ends::new(&plain_session(1).replace("10.0.3.2", gnb));
        let says = if gnb.contains(':') { advertisement } else { arp_reply };
        ends.up((0..100).map(|_| says(ATTACKER, gnb)));
        assert_eq!(sent_to(&mut ends), None, "{gnb}: unsolicited reply accepted");
        ends.upf.solicit_neighbours();
        ends.n3.received();
        ends.up([says(ends::GNB_MAC, gnb)]);
        assert_eq!(sent_to(&mut ends), Some(ends::GNB_MAC));
        for _ in 0..200 {
            ends.upf.solicit_neighbours();
            let asked = ends.n3.received();
            // The attacker replies first each time.
            ends.up((0..10).map(|_| says(ATTACKER, gnb)));
            assert!(
                asked.iter().all(|frame| frame[..6] == ends::GNB_MAC.0),
                "only the current neighbour is asked"
            );
            ends.up(asked.iter().map(|_| says(ends::GNB_MAC, gnb)));
            assert_eq!(sent_to(&mut ends), Some(ends::GNB_MAC), "{gnb}");
        }
        assert_eq!(dropped(&ends.upf.uplink(), "neighbour_refused"), 2100);
        // Another station is accepted once the first one is silent, and not before.
        let mut rounds = 0;
        while sent_to(&mut ends).is_some() {
            rounds += 1;
            assert!(rounds < 1000, "{gnb}");
            ends.up([says(ATTACKER, gnb)]);
            ends.upf.solicit_neighbours();
        }
        assert!(rounds >= 60, "{gnb}: silent for {rounds} rounds of 50 ms only");
        let other = MacAddr([2, 0, 0, 0, 3, 7]);
        ends.upf.solicit_neighbours();
        ends.up([says(other, gnb)]);
        assert_eq!(sent_to(&mut ends), Some(other));
    }
}

/// A silent neighbour is asked less and less often, and within half a second when it sends
/// something.
#[test]
fn silent_neighbours_are_asked_less_often() {
    let mut ends = Ends::new(&plain_session(1).replace("10.0.3.2", "10.0.3.7"));
    let round = |ends: &mut Ends| {
        ends.upf.solicit_neighbours();
        ends.n3.received().len()
    };
    let asked: usize = (0..66).map(|_| round(&mut ends)).sum();
    assert_eq!(asked, 10, "asked every half second at first, and three times more");
    let asked: usize = (0..12_000).map(|_| round(&mut ends)).sum();
    assert!((5..40).contains(&asked), "asked {asked} times in ten minutes");
    // The neighbour identifies itself by asking for our address.
    let asks = dray_wire::arp::Arp {
        is_request: true,
        sender: (ends::GNB_MAC, "10.0.3.7".parse().unwrap()),
        target: (MacAddr([0; 6]), "10.0.3.1".parse().unwrap()),
    };
    while round(&mut ends) > 0 {}
    ends.up([craft::arp(ends::GNB_MAC, MacAddr([0xff; 6]), &asks)]);
    assert_eq!(ends.n3.received().len(), 1, "reply to the neighbour's request");
    let asked: usize = (0..10).map(|_| round(&mut ends)).sum();
    assert_eq!(asked, 1, "the neighbour is asked soon");
    ends.up([arp_reply(ends::GNB_MAC, "10.0.3.7")]);
    assert_eq!(sent_to(&mut ends), Some(ends::GNB_MAC));
}

/// Each session comes with a new gNB, and there are more gNBs than the table holds: those that no
/// session needs any more are removed.
#[test]
fn neighbours_without_sessions_are_forgotten() {
    let mut ends = Ends::new(&plain_session(1));
    for number in 0..20_000u32 {
        let gnb = std::net::Ipv4Addr::from(0x0a00_1000 + number);
        let session = ends::session_of(&plain_session(1).replace("10.0.3.2", &gnb.to_string()));
        let modify = dray_upf::Operation::Modify { session, end_marker: false };
        ends.upf.apply(&[modify]).unwrap_or_else(|error| panic!("{number}: {error}"));
        ends.run();
        if number % 1000 == 0 {
            ends.upf.solicit_neighbours();
            let asked = ends.n3.received().len();
            assert!(asked <= 1001, "{asked} neighbours are asked for");
        }
    }
    ends.upf.solicit_neighbours();
    ends.n3.received();
    ends.up([arp_reply(ends::GNB_MAC, "10.0.94.31")]);
    assert_eq!(sent_to(&mut ends), Some(ends::GNB_MAC));
}
