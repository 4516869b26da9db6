//! Neighbours of the user plane function.

use dray_upf::DropReason;
use dray_wire::MacAddr;
use dray_wire::ethernet::Ethernet;
use dray_wire::gtpu;
use dray_wire::ip::{self, Packet};
use etherparse::PacketBuilder;

use crate::ends::{self, Ends, craft, from_dn, message_from_gnb, plain_session, to_gnb};
use crate::{NOTHING, down_packet, dropped};

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

/// A gNB's address is resolved by ARP, and packets go to the MAC address in the reply.
#[test]
fn neighbour_is_resolved_by_arp() {
    let mut ends = Ends::new(&plain_session(1).replace("10.0.3.2", "10.0.3.7"));
    assert_eq!(ends.down([from_dn(&down_packet(b""))]), NOTHING);
    ends.assert_drops(&ends.upf.downlink(), &[(DropReason::NoNeighbour, 1)]);
    ends.upf.ask_for_neighbours();
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

/// The same over IPv6, by solicitation and advertisement.
#[test]
fn neighbour_is_resolved_by_solicitation() {
    use dray_wire::icmp::Discovery;
    let mut ends = Ends::new(&plain_session(1).replace("10.0.3.2", "fd00:3::7"));
    assert_eq!(ends.down([from_dn(&down_packet(b""))]), NOTHING);
    ends.upf.ask_for_neighbours();
    let [asked] = &ends.n3.received()[..] else { panic!("not exactly one solicitation") };
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
    frames.first().map(|frame| Ethernet::parse(frame).unwrap().dst)
}

#[test]
fn configured_neighbours_are_never_replaced() {
    for gnb in ["10.0.3.2", "fd00:3::2"] {
        let mut ends =
            Ends::new(&plain_session(1).replace("gnb = \"10.0.3.2\"", &format!("gnb = \"{gnb}\"")));
        let lie = if gnb.contains(':') { advertisement } else { arp_reply };
        for _ in 0..20 {
            ends.up((0..100).map(|_| lie(ATTACKER, gnb)));
            ends.upf.ask_for_neighbours();
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
        ends.upf.ask_for_neighbours();
        ends.n3.received();
        ends.up([says(ends::GNB_MAC, gnb)]);
        assert_eq!(sent_to(&mut ends), Some(ends::GNB_MAC));
        for _ in 0..200 {
            ends.upf.ask_for_neighbours();
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
            ends.upf.ask_for_neighbours();
        }
        assert!(rounds >= 60, "{gnb}: silent for {rounds} rounds of 50 ms only");
        let other = MacAddr([2, 0, 0, 0, 3, 7]);
        ends.upf.ask_for_neighbours();
        ends.up([says(other, gnb)]);
        assert_eq!(sent_to(&mut ends), Some(other));
    }
}

/// A silent neighbour is asked less and less often, and within half a second when it sends something.
#[test]
fn silent_neighbours_are_asked_less_often() {
    let mut ends = Ends::new(&plain_session(1).replace("10.0.3.2", "10.0.3.7"));
    let round = |ends: &mut Ends| {
        ends.upf.ask_for_neighbours();
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
            ends.upf.ask_for_neighbours();
            let asked = ends.n3.received().len();
            assert!(asked <= 1001, "{asked} neighbours are asked for");
        }
    }
    ends.upf.ask_for_neighbours();
    ends.n3.received();
    ends.up([arp_reply(ends::GNB_MAC, "10.0.94.31")]);
    assert_eq!(sent_to(&mut ends), Some(ends::GNB_MAC));
}
