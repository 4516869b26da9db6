//! Router solicitations from users, and other packets to a user's own link.

use std::net::Ipv6Addr;

use dray_upf::DropReason;
use dray_wire::ip::{self, Packet};

use super::{NOTHING, up_packet};
use crate::ends::{Ends, craft, from_gnb, plain_session, to_gnb};

const ROUTERS: &str = "ff02::2";

fn icmp(src: &str, dst: &str, ttl: u8, message: &[u8]) -> Vec<u8> {
    craft::packet(src.parse().unwrap(), dst.parse().unwrap(), craft::ICMPV6, ttl, message)
}

fn solicitation(src: &str) -> Vec<u8> {
    icmp(src, ROUTERS, 255, &[133, 0, 0, 0, 0, 0, 0, 0])
}

fn up(ends: &mut Ends, teid: u32, packet: &[u8]) -> Vec<Vec<u8>> {
    assert_eq!(ends.up([from_gnb(teid, Some(9), packet)]), NOTHING);
    ends.run();
    ends.n3.received()
}

#[test]
fn router_solicitation_gets_users_prefix() {
    for (gnb, outer_len) in [("10.0.3.2", 44), ("fd00:3::2", 64)] {
        let session = |seid: u8| {
            plain_session(seid).replace("gnb = \"10.0.3.2\"", &format!("gnb = \"{gnb}\""))
        };
        let mut ends = Ends::new(&(session(1) + &session(2)));
        for (teid, src, dst) in [(1, "fe80::7:8", "fe80::7:8"), (2, "::", "ff02::1")] {
            let frames = up(&mut ends, teid, &solicitation(src));
            let [frame] = &frames[..] else { panic!("{frames:x?} {:?}", ends.upf.uplink()) };
            let (_, header, inner) = to_gnb(frame);
            assert_eq!((header.teid, header.container.unwrap().qfi), (1000 + teid, 9));
            let packet = Packet::parse(&inner, inner.len()).unwrap();
            assert_eq!((packet.ttl, packet.protocol, packet.len), (255, 58, inner.len()));
            assert_eq!(packet.destination().to_string(), dst);
            assert_eq!(
                packet.source().to_string(),
                "fe80::ff:fe00:601",
                "derived from N6's MAC address"
            );
            let message = &inner[40..];
            assert_eq!(
                ip::upper_checksum(packet.source(), packet.destination(), 58, &[message]),
                0
            );
            // Type, code, checksum; hop limit, flags, lifetime; two timers.
            assert_eq!((&message[..2], &message[4..8]), (&[134, 0][..], &[64, 0, 0xff, 0xff][..]));
            // A 64-bit prefix: autonomous, not on-link, with infinite lifetimes.
            assert_eq!(message[16..20], [3, 4, 64, 0x40]);
            assert_eq!(message[20..28], [0xff; 8]);
            let prefix: Ipv6Addr = format!("2001:db8:{teid}::").parse().unwrap();
            assert_eq!(message[32..48], prefix.octets());
            let mtu = (1500u32 - outer_len).to_be_bytes();
            assert_eq!(message[48..], [[5, 1, 0, 0], mtu].concat());
        }
        ends.assert_drops(&ends.upf.uplink(), &[]);
        assert_eq!(ends.upf.downlink().router_advertisements, 2);
    }
}

#[test]
fn router_solicitations_are_limited_and_checked() {
    let without = plain_session(2).replace(", \"2001:db8:2::/64\"", "");
    let mut ends = Ends::new(&(plain_session(1) + &without + &plain_session(3)));
    assert_eq!(up(&mut ends, 2, &solicitation("fe80::1")), NOTHING, "session without IPv6 prefix");
    let mut refused = 1;
    for wrong in [
        icmp("fe80::1", ROUTERS, 254, &[133, 0, 0, 0, 0, 0, 0, 0]),
        icmp("fe80::1", ROUTERS, 255, &[133, 1, 0, 0, 0, 0, 0, 0]),
        icmp("fe80::1", ROUTERS, 255, &[133, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
    ] {
        assert_eq!(up(&mut ends, 1, &wrong), NOTHING);
        refused += 1;
    }
    ends.assert_drops(&ends.upf.uplink(), &[(DropReason::Solicitation, refused)]);
    // Few solicitations of one session get a reply; those of another session still do.
    let answered: usize = (0..200).map(|_| up(&mut ends, 1, &solicitation("fe80::1")).len()).sum();
    assert!((1..100).contains(&answered), "{answered}");
    assert_eq!(up(&mut ends, 3, &solicitation("fe80::1")).len(), 1);
    let drops = ends.upf.uplink().drops;
    assert_eq!(drops.get(DropReason::Solicitation), refused + 200 - answered as u64);
    assert_eq!(drops.total(), drops.get(DropReason::Solicitation));
}

/// Advertisements to the user follow the session's rules.
#[test]
fn router_advertisement_obeys_session_rules() {
    let closed = plain_session(1).replace(
        "{ id = 2, action = \"forward\", tunnel = { gnb = \"10.0.3.2\", teid = 1001 } }",
        "{ id = 2, action = \"drop\" }",
    );
    let mut ends = Ends::new(&closed);
    assert_eq!(up(&mut ends, 1, &solicitation("fe80::1")), NOTHING);
    let down = ends.upf.downlink();
    assert_eq!((down.generated, down.generated_dropped), (0, 1));
    ends.assert_drops(&down, &[]);
}

#[test]
fn link_local_packet_is_not_counted_as_spoofed() {
    let mut ends = Ends::new(&plain_session(1));
    let solicited = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &[0xfe, 0x80], &[7; 14]].concat();
    let report = [143, 0, 0, 0, 0, 0, 0, 0];
    let local = [
        icmp("fe80::1", "ff02::1:ff00:1", 255, &solicited),
        icmp("::", "ff02::1:ff07:707", 255, &solicited),
        icmp("fe80::1", "ff02::16", 1, &report),
        icmp("fe80::1", "fe80::2", 64, &[128, 0, 0, 0, 0, 0, 0, 0]),
        // Such a packet may not leave its link, even from the user's own address.
        icmp("2001:db8:1::1", "ff02::1", 64, &report),
        icmp("2001:db8:1::1", "fe80::1", 64, &[128, 0, 0, 0, 0, 0, 0, 0]),
    ];
    let count = local.len() as u64;
    for packet in local {
        assert_eq!(up(&mut ends, 1, &packet), NOTHING);
    }
    ends.assert_drops(&ends.upf.uplink(), &[(DropReason::LinkLocal, count)]);
    let other = icmp("2001:db8:2::1", ROUTERS, 255, &[133, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(up(&mut ends, 1, &other), NOTHING);
    ends.assert_drops(
        &ends.upf.uplink(),
        &[(DropReason::Spoofed, 1), (DropReason::LinkLocal, count)],
    );
    assert_eq!(ends.up([from_gnb(1, None, &up_packet(b""))]).len(), 1);
}
