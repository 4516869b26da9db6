//! Neighbours of the user plane function on real interfaces.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use dray_port::{Frame, Port, scratch};
use dray_wire::MacAddr;
use dray_wire::arp::Arp;
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet, ethertype};
use dray_wire::ip::{Header, IPV4_LEN, Packet, protocol};

use crate::common::veths::Veths;
use crate::common::{alone, eventually, serves};
use crate::fixture::{CONFIG, Upf, V4, interrupted, number, report};

const ABSENT: Ipv4Addr = Ipv4Addr::new(10, 0, 3, 2);
const GNB: Ipv4Addr = Ipv4Addr::new(10, 0, 3, 3);
const GNB_MAC: MacAddr = MacAddr([2, 0, 0, 0, 3, 3]);
const N3_MAC: MacAddr = MacAddr([2, 0, 0, 0, 3, 1]);
const N6_MAC: MacAddr = MacAddr([2, 0, 0, 0, 6, 1]);

/// Returns the frames of one Ethernet type that have arrived, without their Ethernet header.
fn received(port: &mut Port, wanted: u16) -> Vec<(MacAddr, Vec<u8>)> {
    let (mut found, mut scratch) = (Vec::new(), scratch());
    let receives = port.rx[0].receive(&mut |frames| {
        for frame in frames {
            let bytes = frame.bytes(&mut scratch);
            let header = Ethernet::parse(bytes).unwrap();
            if header.ethertype == wanted {
                found.push((header.dst, bytes[ETHERNET_LEN..].to_vec()));
            }
        }
        frames.len()
    });
    receives.unwrap();
    found
}

/// Returns the gNBs asked for, in order.
fn asked(port: &mut Port) -> impl Iterator<Item = Ipv4Addr> {
    let arp = received(port, ethertype::ARP).into_iter();
    arp.map(|(_, message)| Arp::parse(&message).unwrap().target.1)
}

fn send(port: &mut Port, dst: MacAddr, ethertype: u16, payload: &[u8]) {
    let mut frame = [0; ETHERNET_LEN];
    Ethernet { dst, src: GNB_MAC, ethertype }.write(&mut frame);
    let frame = [&frame, payload].concat();
    assert_eq!(port.tx[0].transmit(&[Frame::from(&frame[..])]).unwrap(), 1);
}

/// Returns a packet of the data network to a user, without an upper layer but with a number.
fn to_user(dst: Ipv4Addr, number: u16) -> Vec<u8> {
    let mut packet = vec![0; IPV4_LEN + 8];
    let src = Ipv4Addr::new(10, 0, 6, 2);
    Header { src, dst, protocol: protocol::UDP, tos: 0, ttl: 64, payload_len: 8 }
        .write(packet.first_chunk_mut().unwrap());
    packet[IPV4_LEN..IPV4_LEN + 2].copy_from_slice(&number.to_be_bytes());
    packet
}

/// Replies to the first request for `address`; returns how long it took to come.
fn reply_when_asked(port: &mut Port, mac: MacAddr, address: Ipv4Addr) -> Duration {
    let start = Instant::now();
    assert!(eventually(|| asked(port).any(|target| target == address)), "not asked for {address}");
    let (waited, own) = (start.elapsed(), [10, 0, 3, 1].into());
    let reply = Arp { is_request: false, sender: (mac, address), target: (N3_MAC, own) };
    send(port, N3_MAC, ethertype::ARP, &reply.to_bytes());
    waited
}

/// Collects the numbers of packets that arrive at the gNB until there are `count`.
fn numbers(port: &mut Port, mac: MacAddr, count: usize) -> Vec<u16> {
    let mut numbers = Vec::new();
    let all = eventually(|| {
        for (dst, outer) in received(port, ethertype::IPV4) {
            assert_eq!(dst, mac);
            let packet = Packet::parse(&outer, outer.len()).unwrap();
            // The last packet in the frame is the user's.
            numbers.push(u16::from_be_bytes([outer[packet.len - 8], outer[packet.len - 7]]));
        }
        numbers.len() >= count
    });
    assert!(all, "{count} expected: {numbers:?}");
    numbers
}

/// The packets that a session has buffered leave once the gNB, which no session led to before, has
/// replied; they and newer ones in order.
#[test]
fn released_buffer_waits_for_an_unknown_gnb() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[["gnb", "n3"], ["dn", "n6"]]);
    let session = |far: &str| {
        format!(
            "[[sessions]]\nseid = 200\nue = [\"10.46.0.1\"]\n\
             fars = [ {{ id = 1, {far} }} ]\n\
             pdrs = [ {{ id = 1, precedence = 1, from = \"core\", far = 1 }} ]\n"
        )
    };
    let interfaces = CONFIG.split("[generate]").next().unwrap();
    let files = Upf::with_config(&format!("{interfaces}{}", session("action = \"buffer\"")));
    let [mut gnb, mut dn] = ["gnb", "dn"].map(|name| veths.open(&format!("raw:{name}")));
    let _upf = veths.0.enter(|| files.start("upf", "raw:n3", "raw:n6", &[])).unwrap();
    assert!(eventually(|| serves(files.at("upf.sock"))));
    let packet = |number| to_user(Ipv4Addr::new(10, 46, 0, 1), number);
    (0..64).for_each(|number| send(&mut dn, N6_MAC, ethertype::IPV4, &packet(number)));
    let waiting = || number(&files.ask(&["sessions", "show", "200", "--json"]), "/waiting");
    assert!(eventually(|| waiting() == 64));
    let far = format!("action = \"forward\", tunnel = {{ gnb = \"{GNB}\", teid = 7 }}");
    std::fs::write(files.at("more.toml"), session(&far)).unwrap();
    files.ask(&["sessions", "modify", &files.at("more.toml")]);
    (64..80).for_each(|number| send(&mut dn, N6_MAC, ethertype::IPV4, &packet(number)));
    std::thread::sleep(Duration::from_millis(300));
    reply_when_asked(&mut gnb, GNB_MAC, GNB);
    assert_eq!(numbers(&mut gnb, GNB_MAC, 80), (0..80).collect::<Vec<_>>());
    let stats = files.ask(&["stats", "--json"]);
    assert_eq!(number(&stats, "/downlink/drops/no_neighbour"), 0, "{stats}");
}

/// No neighbour has replied for 40 s, so solicitations have become rare. The packets to a gNB that
/// is there now arrive all the same; so do those of a load, which does not wait longer than it has
/// to.
#[test]
fn peers_that_boot_late_lose_no_packet() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[["gnb", "n3"], ["dn", "n6"]]);
    let files = Upf::with_config(&format!("{CONFIG}{V4}"));
    let upf = veths.0.enter(|| files.start("upf", "raw:n3", "raw:n6", &[])).unwrap();
    assert!(eventually(|| serves(files.at("upf.sock"))));
    std::thread::sleep(Duration::from_secs(40));
    // That of the load.
    let mac = MacAddr::local(0x0300);
    let [mut gnb, mut dn] = ["gnb", "dn"].map(|name| veths.open(&format!("raw:{name}")));
    for number in 0..100 {
        let packet = to_user(Ipv4Addr::new(10, 45, 0, 1), number);
        send(&mut dn, N6_MAC, ethertype::IPV4, &packet);
    }
    let waited = reply_when_asked(&mut gnb, mac, Ipv4Addr::new(10, 0, 3, 2));
    assert!(waited < Duration::from_secs(3), "{waited:?}");
    assert_eq!(numbers(&mut gnb, mac, 100), (0..100).collect::<Vec<_>>());
    drop([gnb, dn]);
    // The second load finds all neighbours known.
    for _ in 0..2 {
        let start = Instant::now();
        let more = ["--rate", "1k", "--duration", "1"];
        let load = veths.0.enter(|| files.start("upf-load", "raw:gnb", "raw:dn", &more)).unwrap();
        let load = report(load);
        let elapsed = start.elapsed();
        for way in ["uplink", "downlink"] {
            assert_eq!(number(&load, &format!("/{way}/lost")), 0, "{load}");
            assert!(number(&load, &format!("/{way}/received")) > 100, "{load}");
        }
        assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
        assert_eq!(load["silent"].as_array().map(Vec::len), Some(0), "{load}");
    }
    let stats = interrupted(upf);
    for way in ["uplink", "downlink"] {
        assert_eq!(number(&stats, &format!("/{way}/drops/no_neighbour")), 0, "{stats}");
    }
}

/// Three requests for a gNB are lost. They and the fourth come in less time than lies between two
/// requests for a gNB that is absent, which measures the time also on a busy machine.
#[test]
fn lost_neighbour_requests_are_repeated_soon() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[["gnb", "n3"], ["dn", "n6"]]);
    let config = CONFIG.replace("count = 100", "count = 1");
    let files = Upf::with_config(&format!("{config}gnbs = [\"{ABSENT}\"]\nue = \"10.45.0.1\"\n"));
    let [mut gnb, mut dn] = ["gnb", "dn"].map(|name| veths.open(&format!("raw:{name}")));
    let _upf = veths.0.enter(|| files.start("upf", "raw:n3", "raw:n6", &[])).unwrap();
    assert!(eventually(|| serves(files.at("upf.sock"))));
    let mut all = Vec::new();
    let mut have_come = |count: usize, of: Ipv4Addr| {
        eventually(|| {
            all.extend(asked(&mut gnb));
            all.iter().filter(|address| **address == of).count() >= count
        })
    };
    // Later ones come once in half a second, or less often.
    assert!(have_come(5, ABSENT));
    let session = format!(
        "[[sessions]]\nseid = 200\nue = [\"10.45.0.2\"]\n\
         fars = [ {{ id = 1, action = \"forward\", tunnel = {{ gnb = \"{GNB}\", teid = 7 }} }} ]\n\
         pdrs = [ {{ id = 1, precedence = 1, from = \"core\", far = 1 }} ]\n"
    );
    std::fs::write(files.at("more.toml"), session).unwrap();
    files.ask(&["sessions", "add", &files.at("more.toml")]);
    assert!(have_come(4, GNB));
    let first = all.iter().position(|address| *address == GNB).unwrap();
    let mut count = 0;
    let until_fourth = all[first..].iter().take_while(|address| {
        count += usize::from(**address == GNB);
        count < 4
    });
    let absent = until_fourth.filter(|address| **address == ABSENT).count();
    assert!(absent <= 1, "{all:?}");

    let reply =
        Arp { is_request: false, sender: (GNB_MAC, GNB), target: (N3_MAC, [10, 0, 3, 1].into()) };
    send(&mut gnb, N3_MAC, ethertype::ARP, &reply.to_bytes());
    let packet = to_user(Ipv4Addr::new(10, 45, 0, 2), 0);
    let arrives = || {
        send(&mut dn, N6_MAC, ethertype::IPV4, &packet);
        received(&mut gnb, ethertype::IPV4).iter().any(|(dst, _)| *dst == GNB_MAC)
    };
    assert!(eventually(arrives), "no packet to the gNB");
}
