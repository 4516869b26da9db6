//! Neighbours of the user plane function on real interfaces.

use std::net::Ipv4Addr;

use dray_port::{Frame, Port, scratch};
use dray_wire::MacAddr;
use dray_wire::arp::Arp;
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet, ethertype};
use dray_wire::ip::{Header, IPV4_LEN, protocol};

use crate::common::veths::Veths;
use crate::common::{alone, eventually, listens};
use crate::fixture::{CONFIG, Upf};

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

/// Three requests for a gNB are lost. They and the fourth come in less time than lies between two
/// requests for a gNB that is absent, which measures the time also on a busy machine.
#[test]
fn lost_neighbour_requests_are_repeated_soon() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[["gnb", "n3"], ["dn", "n6"]]);
    let config = CONFIG.replace("count = 100", "count = 1");
    let files = Upf::told(&format!("{config}gnbs = [\"{ABSENT}\"]\nue = \"10.45.0.1\"\n"));
    let [mut gnb, mut dn] = ["gnb", "dn"].map(|name| veths.open(&format!("raw:{name}")));
    let _upf = veths.0.enter(|| files.start("upf", "raw:n3", "raw:n6", &[])).unwrap();
    assert!(eventually(|| listens(files.at("upf.sock"))));
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
    let mut packet = [0; IPV4_LEN + 8];
    let (src, dst) = (Ipv4Addr::new(10, 0, 6, 2), Ipv4Addr::new(10, 45, 0, 2));
    Header { src, dst, protocol: protocol::UDP, tos: 0, ttl: 64, payload_len: 8 }
        .write(packet.first_chunk_mut().unwrap());
    let arrives = || {
        send(&mut dn, N6_MAC, ethertype::IPV4, &packet);
        received(&mut gnb, ethertype::IPV4).iter().any(|(dst, _)| *dst == GNB_MAC)
    };
    assert!(eventually(arrives), "no packet to the gNB");
}
