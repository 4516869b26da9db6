//! Users' packets with invalid source or destination addresses.

use dray_upf::Operation;
use dray_wire::gtpu;

use super::{NOTHING, SERVER, changed, down_packet, dropped, up_packet};
use crate::ends::{self, Ends, from_dn, from_gnb, plain_session, to_dn, udp};

const USER: &str = "10.45.0.1";
const USER_V6: &str = "2001:db8:1::77";

/// Puts a user's packet into a tunnel from another outer address.
fn from_other(source: &str, teid: u32, packet: &[u8]) -> Vec<u8> {
    let mut header = [0; 16];
    let len = gtpu::write_gpdu(&mut header, teid, None, packet.len());
    let own = if source.contains(':') { "fd00:3::1" } else { "10.0.3.1" };
    let message = [&header[..len], packet].concat();
    ends::frame(ends::GNB_MAC, ends::N3_MAC, &udp(source, own, (2152, 2152), &message))
}

fn without_gnbs() -> String {
    let interfaces = ends::INTERFACES.replace("gnbs = [\"10.0.3.2\", \"fd00:3::2\"], ", "");
    assert_ne!(interfaces, ends::INTERFACES);
    interfaces
}

/// Only the gNB of a session may send into its tunnels.
#[test]
fn teid_is_bound_to_its_gnb() {
    let v6 = plain_session(2).replace("gnb = \"10.0.3.2\"", "gnb = \"fd00:3::2\"");
    let mut ends = Ends::try_new(&format!("{}{}{v6}", without_gnbs(), plain_session(1))).unwrap();
    let (one, two) = (up_packet(b""), udp("10.45.0.2", SERVER, (1, 2), b""));
    let right = [from_other("10.0.3.2", 1, &one), from_other("fd00:3::2", 2, &two)];
    assert_eq!(ends.up(right).len(), 2);
    let wrong = [
        from_other("10.0.3.9", 1, &one),
        from_other("fd00:3::2", 1, &one),
        from_other("10.0.3.2", 2, &two),
        from_other("fd00:3::9", 2, &two),
        from_other("0.0.0.0", 1, &one),
        from_other("0.0.0.0", 2, &two),
        from_other("10.0.3.1", 1, &one),
    ];
    let count = wrong.len() as u64;
    assert_eq!(ends.up(wrong), NOTHING);
    assert_eq!(dropped(&ends.upf.uplink(), "wrong_gnb"), count);
    assert_eq!(ends.n3.received(), NOTHING, "the sender gets no message");
}

#[test]
fn packet_from_unexpected_gnb_is_reported_once() {
    let v6 = plain_session(2).replace("gnb = \"10.0.3.2\"", "gnb = \"fd00:3::2\"");
    let mut ends = Ends::try_new(&format!("{}{}{v6}", without_gnbs(), plain_session(1))).unwrap();
    let (one, two) = (up_packet(b""), udp("10.45.0.2", SERVER, (1, 2), b""));
    for _ in 0..3 {
        ends.up([from_other("10.0.3.9", 1, &one), from_other("fd00:3::9", 2, &two)]);
    }
    let events = ends.upf.events();
    let texts: Vec<_> = events.iter().map(|event| serde_json::to_string(event).unwrap()).collect();
    let expected = [
        r#"{"event":"wrong_gnb","seid":1,"teid":"0x1","from":"10.0.3.9","expected":["10.0.3.2"]}"#,
        r#"{"event":"wrong_gnb","seid":2,"teid":"0x2","from":"fd00:3::9","expected":["fd00:3::2"]}"#,
    ];
    assert_eq!(texts, expected);
    assert_eq!(dropped(&ends.upf.uplink(), "wrong_gnb"), 6);
}

/// A session with tunnels to two gNBs accepts packets from both, and a session without a gNB
/// accepts packets from any.
#[test]
fn session_may_have_several_gnbs_or_none() {
    let two = plain_session(1)
        .replace(
            "pdrs = [",
            "pdrs = [ { id = 3, precedence = 9, from = \"core\", far = 3, tos = [4, 4] },",
        )
        .replace(
            "fars = [",
            "fars = [ { id = 3, action = \"forward\", tunnel = { gnb = \"10.0.3.7\", teid = 5 } },",
        );
    let forward = "{ id = 2, action = \"forward\", tunnel = { gnb = \"10.0.3.2\", teid = 1002 } }";
    let idle = plain_session(2).replace(forward, "{ id = 2, action = \"buffer\" }");
    let mut ends = Ends::try_new(&format!("{}{two}{idle}", without_gnbs())).unwrap();
    let (one, other) = (up_packet(b""), udp("10.45.0.2", SERVER, (1, 2), b""));
    let right = [
        from_other("10.0.3.2", 1, &one),
        from_other("10.0.3.7", 1, &one),
        from_other("10.0.3.2", 2, &other),
        from_other("fd00:3::9", 2, &other),
    ];
    assert_eq!(ends.up(right).len(), 4);
    assert_eq!(ends.up([from_other("10.0.3.8", 1, &one)]), NOTHING);
    // The session's gNBs change with the session.
    let session = ends::session_of(&plain_session(2));
    ends.upf.apply(&[Operation::Modify { session, end_marker: false }]).unwrap();
    ends.run();
    assert_eq!(ends.up([from_other("fd00:3::9", 2, &other)]), NOTHING);
    assert_eq!(ends.up([from_other("10.0.3.2", 2, &other)]).len(), 1);
}

/// Configured networks of gNBs may send into any tunnel: for handovers, and gNBs with several
/// addresses.
#[test]
fn configured_networks_of_gnbs_are_trusted() {
    let interfaces = without_gnbs()
        .replace("n3 = { mac", "n3 = { gnbs = [\"10.0.3.128/25\", \"fd00:3:1::/48\"], mac");
    let mut ends = Ends::try_new(&format!("{interfaces}{}", plain_session(1))).unwrap();
    for (source, passed) in [
        ("10.0.3.2", 1),
        ("10.0.3.200", 1),
        ("fd00:3:1::5", 1),
        ("10.0.3.100", 0),
        ("fd00:3::2", 0),
    ] {
        assert_eq!(ends.up([from_other(source, 1, &up_packet(b""))]).len(), passed, "{source}");
    }
    let wrong = ends::INTERFACES.replace("n6 = { mac", "n6 = { gnbs = [\"10.0.0.0/8\"], mac");
    let error = Ends::try_new(&wrong).map(drop).unwrap_err().to_string();
    assert!(error.contains("n6.gnbs"), "{error}");
}

/// Packets from a tunnel reach neither the function itself nor addresses that no router forwards
/// to.
#[test]
fn users_cannot_reach_the_function_itself() {
    let mut ends = Ends::new(&plain_session(1));
    let gtp = [0x30, 255, 0, 0, 0, 0, 0, 2];
    let v4 = |dst: &str, ports: (u16, u16)| udp(USER, dst, ports, &gtp);
    let v6 = |dst: &str, ports: (u16, u16)| udp(USER_V6, dst, ports, &gtp);
    let cases = [
        (v4("10.0.3.1", (2152, 2152)), "own_address"),
        (v4("10.0.3.1", (1, 53)), "own_address"),
        (v4("10.0.6.1", (2152, 2152)), "own_address"),
        (changed(v4("10.0.6.1", (1, 2)), 9, 1), "own_address"),
        (v6("fd00:3::1", (2152, 2152)), "own_address"),
        (v6("fd00:6::1", (1, 2)), "own_address"),
        (v4("0.0.0.0", (1, 2)), "martian_destination"),
        (v4("127.0.0.1", (1, 2)), "martian_destination"),
        (v4("240.0.0.1", (1, 2)), "martian_destination"),
        (v6("::1", (1, 2)), "martian_destination"),
        (v6("::", (1, 2)), "martian_destination"),
        (v6("fe80::1", (1, 2)), "link_local"),
        (v6("::ffff:8.8.8.8", (1, 2)), "inner_ip"),
        (v4("224.0.0.1", (1, 2)), "group"),
        (v4("255.255.255.255", (1, 2)), "group"),
        (v6("ff02::1", (1, 2)), "link_local"),
        (v4("169.254.1.1", (1, 2)), "link_local"),
        (v6("ff0e::1", (1, 2)), "group"),
    ];
    for (packet, reason) in cases {
        for qfi in [None, Some(9)] {
            let before = ends.upf.uplink();
            assert_eq!(ends.up([from_gnb(1, qfi, &packet)]), NOTHING, "{packet:x?}");
            let after = ends.upf.uplink();
            assert_eq!(after.drops.total() - before.drops.total(), 1);
            assert_eq!(
                dropped(&after, reason) - dropped(&before, reason),
                1,
                "{reason} {packet:x?}"
            );
            assert_eq!(ends.n3.received(), NOTHING);
        }
    }
    assert_eq!(ends.up([from_gnb(1, None, &up_packet(b""))]), [to_dn(&up_packet(b""))]);
}

/// Packets from an invalid source or from one of our own addresses do not reach users.
#[test]
fn martian_source_is_dropped_on_downlink() {
    let mut ends = Ends::new(&plain_session(1));
    let from = |src: &str| {
        let user = if src.contains(':') { USER_V6 } else { USER };
        udp(src, user, (1, 2), b"")
    };
    for (src, reason) in [
        ("10.0.3.1", "martian_source"),
        ("10.0.6.1", "martian_source"),
        ("fd00:6::1", "martian_source"),
        ("0.0.0.0", "martian_source"),
        ("127.0.0.1", "martian_source"),
        ("224.0.0.1", "martian_source"),
        ("255.255.255.255", "martian_source"),
        ("::", "martian_source"),
        ("::1", "martian_source"),
        ("ff02::1", "martian_source"),
        ("fe80::1", "martian_source"),
        ("::ffff:192.0.2.1", "inner_ip"),
    ] {
        let before = dropped(&ends.upf.downlink(), reason);
        assert_eq!(ends.down([from_dn(&from(src))]), NOTHING, "{src}");
        assert_eq!(dropped(&ends.upf.downlink(), reason), before + 1, "{src}");
        assert_eq!(ends.n6.received(), NOTHING);
    }
    // A multicast address whose first half equals the key of an IPv4 user.
    let group = udp("2001:db8:ff::1", "ff00:0:a2d:1::", (1, 2), b"");
    assert_eq!(ends.down([from_dn(&group)]), NOTHING);
    assert_eq!(dropped(&ends.upf.downlink(), "group"), 1);
    assert_eq!(ends.down([from_dn(&down_packet(b""))]).len(), 1);
}
