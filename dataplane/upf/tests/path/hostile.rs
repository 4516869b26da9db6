//! Messages with addresses that no single host has: each is counted once, no reply goes to a
//! forbidden destination, and both directions forward as before.

use std::net::IpAddr;

use dray_upf::Counters;
use dray_wire::MacAddr;
use dray_wire::arp::Arp;
use dray_wire::ethernet::Ethernet;
use dray_wire::ip::{self, Packet};
use proptest::prelude::*;

use super::{down_packet, up_packet};
use crate::ends::craft::{self, ICMP, ICMPV6, UDP};
use crate::ends::{self, Ends, from_dn, from_gnb, plain_session, to_dn, to_gnb};

/// Mapped, unspecified, loopback, multicast and limited broadcast addresses, and addresses of the
/// two networks.
const ADDRESSES: [&str; 30] = [
    "::ffff:192.0.2.1",
    "::ffff:10.0.3.1",
    "::ffff:10.0.6.1",
    "::ffff:0.0.0.0",
    "::ffff:255.255.255.255",
    "::",
    "::1",
    "::10.0.3.1",
    "ff02::1",
    "ff02::1:ff00:1",
    "ff00:0:a2d:1::",
    "fe80::1",
    "fd00:3::1",
    "fd00:6::1",
    "fd00:3::2",
    "2001:db8:1::77",
    "0.0.0.0",
    "0.0.0.9",
    "127.0.0.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "10.0.3.1",
    "10.0.6.1",
    "10.0.3.2",
    "10.0.6.2",
    "10.45.0.1",
    "203.0.113.9",
    "192.0.2.1",
];

fn addresses() -> Vec<IpAddr> {
    ADDRESSES.iter().map(|text| text.parse().unwrap()).collect()
}

/// Returns ICMP messages of either version, by type, with an address after the header, as in
/// neighbour discovery, and an option with a MAC address.
fn icmp_messages() -> Vec<Vec<u8>> {
    let message = |kind: u8, rest: &[u8]| [&[kind, 0, 0, 0, 0, 1, 0, 2][..], rest].concat();
    let target: IpAddr = "fd00:3::1".parse().unwrap();
    let target = ip::number(target).to_be_bytes();
    let option = |kind: u8, mac: u8| [&target[..], &[kind, 1, mac, 0, 0, 0, 3, 9]].concat();
    let mut messages: Vec<_> = [0, 3, 5, 8, 9, 10, 11, 13, 128, 129, 1, 2, 133, 134, 137, 143]
        .map(|kind| message(kind, b"what follows"))
        .into();
    for (kind, of_option) in [(135, 1), (136, 2)] {
        messages.push(message(kind, &target));
        messages.push(message(kind, &option(of_option, 2)));
        messages.push(message(kind, &option(of_option, 0xff)));
        messages.push(message(kind, &[&target[..], &[of_option, 0]].concat()));
    }
    messages
}

/// Checks that each reply goes to one station, or to one neighbour discovery group.
fn check_replies(ends: &Ends) {
    for (peer, own) in [(&ends.n3, ends::N3_MAC), (&ends.n6, ends::N6_MAC)] {
        for frame in peer.received() {
            let ethernet = Ethernet::parse(&frame).unwrap();
            assert_eq!(ethernet.src, own, "{frame:x?}");
            assert!(!ethernet.dst.is_group() && ethernet.dst != own, "to {ethernet:?}");
            if ethernet.ethertype == 0x0806 {
                let arp = Arp::parse(&frame[14..]).unwrap();
                assert!(!arp.is_request && arp.target.0 == ethernet.dst, "{arp:?}");
                continue;
            }
            let packet = Packet::parse(&frame[14..], frame.len() - 14).unwrap();
            let kind = if packet.version == ip::Version::V4 { 0x0800 } else { 0x86dd };
            assert_eq!(ethernet.ethertype, kind, "{frame:x?}");
            let dst = ip::address(packet.dst);
            let is_host = match dst {
                IpAddr::V4(dst) => !matches!(dst.octets()[0], 0 | 127 | 224..),
                IpAddr::V6(dst) => !dst.is_multicast() && dst.segments()[..4] != [0; 4],
            };
            let own = ["10.0.3.1", "10.0.6.1", "fd00:3::1", "fd00:6::1"];
            assert!(is_host && !own.contains(&&*dst.to_string()), "to {dst}: {frame:x?}");
        }
    }
}

fn accounted(counters: &Counters) -> u64 {
    counters.tx_packets + counters.control + counters.drops.total()
}

/// Sends `frame` to a side, and checks that it is counted once.
#[track_caller]
fn give(ends: &mut Ends, n6: bool, frame: Vec<u8>) {
    let counted = |ends: &Ends| if n6 { ends.upf.downlink() } else { ends.upf.uplink() };
    let errors = |ends: &Ends| ends.upf.uplink().errors_sent;
    let (before, errors_before, said) = (counted(ends), errors(ends), format!("{frame:x?}"));
    let peer = if n6 { &ends.n6 } else { &ends.n3 };
    peer.send([frame]);
    ends.run();
    let after = counted(ends);
    assert_eq!(after.rx_packets - before.rx_packets, 1);
    // The downlink counts packets that the uplink sends to a user, but not as received.
    assert_eq!(accounted(&after) - accounted(&before), 1, "{said}");
    assert!(errors(ends) - errors_before <= 1);
}

/// Checks that valid packets pass both ways.
#[track_caller]
fn check_forwarding(ends: &mut Ends) {
    assert_eq!(ends.up([from_gnb(1, Some(9), &up_packet(b"up"))]), [to_dn(&up_packet(b"up"))]);
    let frames = ends.down([from_dn(&down_packet(b"down"))]);
    let [frame] = &frames[..] else { panic!("{frames:x?}") };
    assert_eq!(to_gnb(frame).2, ends::routed(&down_packet(b"down")));
}

/// Regression test: one echo request from a mapped address ended a data thread.
#[test]
fn echo_from_mapped_address_does_not_panic() {
    let mut ends = Ends::new(&plain_session(1));
    let echo = [&[128, 0, 0, 0, 0, 1, 0, 2][..], b"ping"].concat();
    let from = "::ffff:192.0.2.1".parse().unwrap();
    for (n6, own_mac, own) in
        [(false, ends::N3_MAC, "fd00:3::1"), (true, ends::N6_MAC, "fd00:6::1")]
    {
        for mac in [own_mac, MacAddr([0xff; 6])] {
            let packet = craft::packet(from, own.parse().unwrap(), ICMPV6, 64, &echo);
            give(&mut ends, n6, craft::frame(ends::GNB_MAC, mac, &packet));
        }
    }
    check_replies(&ends);
    check_forwarding(&mut ends);
}

/// Sends every ICMP and ICMPv6 message from and to every address of the list, to our own MAC
/// address, to broadcast, and to a group.
#[test]
fn icmp_between_any_addresses_is_counted_once() {
    let mut ends = Ends::new(&plain_session(1));
    let group = MacAddr([0x33, 0x33, 0xff, 0, 0, 1]);
    let messages = icmp_messages();
    for (n6, own) in [(false, ends::N3_MAC), (true, ends::N6_MAC)] {
        for src in addresses() {
            for dst in addresses() {
                for message in &messages {
                    let v4 = src.is_ipv4() && dst.is_ipv4();
                    let protocol = if v4 { ICMP } else { ICMPV6 };
                    let packet = craft::packet(src, dst, protocol, 255, message);
                    for mac in [own, MacAddr([0xff; 6]), group] {
                        give(&mut ends, n6, craft::frame(ends::GNB_MAC, mac, &packet));
                    }
                }
            }
            check_replies(&ends);
        }
    }
    // Advertisements for a configured neighbour are ignored, so packets pass as before.
    check_forwarding(&mut ends);
}

/// Regression test for neighbour discovery in IPv4 packets: an advertisement was accepted, and a
/// solicitation was answered to a mapped address.
#[test]
fn discovery_over_ipv4_is_refused() {
    let mut ends = Ends::new(&plain_session(1));
    let target = ip::number("fd00:3::1".parse().unwrap()).to_be_bytes();
    for (kind, of_option) in [(135, 1), (136, 2)] {
        let option = [of_option, 1, 2, 0, 0, 0, 3, 9];
        let message = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &target, &option].concat();
        let (src, dst) = ("10.0.3.2".parse().unwrap(), "10.0.3.1".parse().unwrap());
        let packet = craft::packet(src, dst, ICMPV6, 255, &message);
        give(&mut ends, false, craft::frame(ends::GNB_MAC, ends::N3_MAC, &packet));
        assert_eq!(ends.n3.received(), super::NOTHING);
    }
    ends.assert_drops(&ends.upf.uplink(), &[(dray_upf::DropReason::NotForUs, 2)]);
}

/// Frames from a group or from our own MAC address get no reply.
#[test]
fn frames_from_groups_and_ourselves_get_no_reply() {
    let mut ends = Ends::new(&plain_session(1));
    let echo = [&[8, 0, 0, 0, 0, 1, 0, 2][..], b"ping"].concat();
    let stray = craft::datagram((5, 53), b"");
    for (n6, own, from, to) in [
        (false, ends::N3_MAC, "10.0.3.2", "10.0.3.1"),
        (true, ends::N6_MAC, "10.0.6.2", "10.0.6.1"),
    ] {
        let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
        for mac in [MacAddr([0xff; 6]), MacAddr([1, 0, 0x5e, 0, 0, 1]), MacAddr([0; 6]), own] {
            for packet in [
                craft::packet(from, to, ICMP, 64, &echo),
                craft::packet(from, to, UDP, 64, &stray),
                craft::packet(
                    from,
                    to,
                    UDP,
                    64,
                    &craft::datagram((9, 2152), &dray_wire::gtpu::echo_request(1)),
                ),
                craft::packet(
                    from,
                    to,
                    UDP,
                    64,
                    &craft::datagram((9, 2152), &[0x30, 255, 0, 0, 0, 0, 0, 99]),
                ),
            ] {
                give(&mut ends, n6, craft::frame(mac, own, &packet));
                assert!(ends.n3.received().is_empty() && ends.n6.received().is_empty(), "{mac}");
            }
            let (IpAddr::V4(from), IpAddr::V4(to)) = (from, to) else { unreachable!() };
            let asks = Arp { is_request: true, sender: (mac, from), target: (MacAddr([0; 6]), to) };
            give(&mut ends, n6, craft::arp(mac, MacAddr([0xff; 6]), &asks));
            assert!(ends.n3.received().is_empty() && ends.n6.received().is_empty(), "{mac}");
        }
    }
    check_forwarding(&mut ends);
}

/// Sends ARP messages of either kind between all IPv4 addresses of the list, and MAC addresses of
/// every kind.
#[test]
fn arp_between_any_addresses_is_counted_once() {
    let mut ends = Ends::new(&plain_session(1));
    let v4: Vec<_> = addresses()
        .into_iter()
        .filter_map(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
        .collect();
    let attacker = MacAddr([2, 0, 0, 0, 9, 9]);
    for (n6, own) in [(false, ends::N3_MAC), (true, ends::N6_MAC)] {
        for is_request in [false, true] {
            for &from in &v4 {
                for &to in &v4 {
                    for mac in [attacker, own, MacAddr([0xff; 6]), MacAddr([0; 6])] {
                        let arp = Arp { is_request, sender: (mac, from), target: (own, to) };
                        give(&mut ends, n6, craft::arp(attacker, own, &arp));
                        give(&mut ends, n6, craft::arp(attacker, MacAddr([0xff; 6]), &arp));
                    }
                }
            }
        }
    }
    check_replies(&ends);
    check_forwarding(&mut ends);
}

/// Generates any address, often one of the list.
fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        4 => prop::sample::select(addresses()),
        1 => any::<[u8; 4]>().prop_map(IpAddr::from),
        1 => any::<[u8; 16]>().prop_map(IpAddr::from),
    ]
}

fn mac() -> impl Strategy<Value = MacAddr> {
    let known = [
        ends::N3_MAC,
        ends::N6_MAC,
        ends::GNB_MAC,
        ends::DN_MAC,
        MacAddr([0xff; 6]),
        MacAddr([0x33, 0x33, 0xff, 0, 0, 1]),
        MacAddr([0; 6]),
    ];
    prop_oneof![4 => prop::sample::select(known.to_vec()), 1 => any::<[u8; 6]>().prop_map(MacAddr)]
}

/// Generates an upper layer: ICMP, UDP to any port, GTP-U of any type around another packet,
/// extension headers.
fn upper() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..80);
    let icmp = prop::sample::select(icmp_messages());
    let port = || prop_oneof![Just(2152), Just(53), any::<u16>()];
    let gtp = (any::<u8>(), any::<u8>(), 0u32..3, bytes()).prop_map(|(flags, kind, teid, rest)| {
        let kind = [1, 2, 26, 31, 254, 255, 255, kind][usize::from(kind) % 8];
        let mut message = vec![0x30 | flags & 7, kind];
        message.extend((rest.len() as u16).to_be_bytes());
        message.extend(teid.to_be_bytes());
        message.extend(rest);
        message
    });
    let payload = prop_oneof![gtp, bytes()];
    let udp = (port(), port(), payload);
    let udp = udp.prop_map(|(src, dst, payload)| (UDP, craft::datagram((src, dst), &payload)));
    let icmp = (icmp, bytes(), any::<bool>(), any::<bool>());
    let icmp = icmp.prop_map(|(mut message, more, v6, keep)| {
        if !keep {
            message.extend(more);
        }
        (if v6 { ICMPV6 } else { ICMP }, message)
    });
    prop_oneof![3 => icmp, 3 => udp, 1 => (any::<u8>(), bytes())]
}

/// Returns frames of every kind between any addresses, alone and in a tunnel, and whether N6 gets
/// them.
fn frames() -> impl Strategy<Value = (bool, Vec<u8>)> {
    let ttl = prop_oneof![Just(0), Just(1), Just(64), Just(255)];
    let change = prop::option::of((0usize..90, any::<u8>()));
    let parts = ((mac(), mac()), (address(), address()), upper(), ttl, any::<bool>(), change);
    (any::<bool>(), parts).prop_map(|(n6, parts)| {
        let (macs, ends_of, (protocol, upper), ttl, tunnelled, change) = parts;
        let packet = craft::packet(ends_of.0, ends_of.1, protocol, ttl, &upper);
        let mut frame = match tunnelled {
            true => from_gnb(1, Some(9), &packet),
            false => craft::frame(macs.0, macs.1, &packet),
        };
        if let Some((at, value)) = change {
            let at = at % frame.len();
            frame[at] = value;
        }
        (n6, frame)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, ..ProptestConfig::default() })]

    /// Packets with valid checksums at both sides: nothing panics, each is counted once, and both
    /// directions forward after each. A function of its own for each packet would take most of the
    /// time.
    #[test]
    fn any_headers_are_counted_once(frames in prop::collection::vec(frames(), 16)) {
        let mut ends = Ends::new(&plain_session(1));
        for (n6, frame) in frames {
            give(&mut ends, n6, frame);
            ends.n3.received();
            ends.n6.received();
            check_forwarding(&mut ends);
        }
    }
}
