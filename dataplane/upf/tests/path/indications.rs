//! Error indications: which ones are accepted, and how many of them affect other reports.

use dray_upf::{Counters, Event};
use dray_wire::gtpu;

use super::{SERVER, down_packet, dropped, up_packet};
use crate::ends::{self, Ends, from_dn, from_gnb, message_from_gnb, plain_session, udp};

/// Builds an error indication from `source`: `gnb` has no tunnel `teid`.
fn indication(source: &str, teid: u32, gnb: &str) -> Vec<u8> {
    let own = if source.contains(':') { "fd00:3::1" } else { "10.0.3.1" };
    let message = gtpu::error_indication(teid, gnb.parse().unwrap(), 2152);
    ends::frame(ends::GNB_MAC, ends::N3_MAC, &udp(source, own, (2152, 2152), &message))
}

fn uplink(ends: &Ends) -> Counters {
    ends.upf.uplink()
}

#[test]
fn error_indication_is_accepted_only_from_its_gnb() {
    let v6 = plain_session(2).replace("gnb = \"10.0.3.2\"", "gnb = \"fd00:3::2\"");
    let mut ends = Ends::new(&(plain_session(1) + &v6));
    let refused = [
        indication("10.0.3.9", 1001, "10.0.3.2"),
        indication("fd00:3::2", 1001, "10.0.3.2"),
        indication("10.0.3.2", 1002, "fd00:3::2"),
        // A gNB may report only tunnels that are its own and exist.
        indication("10.0.3.9", 1001, "10.0.3.9"),
        indication("10.0.3.2", 1002, "10.0.3.2"),
        indication("10.0.3.2", 1, "10.0.3.2"),
    ];
    let count = refused.len() as u64;
    ends.up(refused);
    assert_eq!(ends.upf.events(), []);
    assert_eq!(dropped(&uplink(&ends), "wrong_gnb"), count);
    let right = [("10.0.3.2", 1001), ("fd00:3::2", 1002)];
    ends.up(right.map(|(gnb, teid)| indication(gnb, teid, gnb)));
    let gone = right.map(|(gnb, teid)| Event::TunnelGone { gnb: gnb.parse().unwrap(), teid });
    assert_eq!(ends.upf.events(), gone);
    // Tunnels that no longer exist are not reported.
    let moved = ends::session_of(&plain_session(1).replace("teid = 1001", "teid = 77"));
    let modify = dray_upf::Operation::Modify { session: moved, end_marker: false };
    ends.upf.apply(&[modify, dray_upf::Operation::Remove(2)]).unwrap();
    ends.run();
    ends.up(right.map(|(gnb, teid)| indication(gnb, teid, gnb)));
    assert_eq!(ends.upf.events(), []);
    ends.up([indication("10.0.3.2", 77, "10.0.3.2")]);
    assert_eq!(ends.upf.events().len(), 1);
}

/// Sends the maximum number of indications: other reports are still delivered.
#[test]
fn error_indications_cannot_displace_other_reports() {
    let counting = plain_session(1)
        .replace("far = 1 }", "far = 1, urrs = [1] }")
        .replace("[[sessions]]", "[[sessions]]\nurrs = [ { id = 1, threshold = { total = 1 } } ]");
    let forward = "{ id = 2, action = \"forward\", tunnel = { gnb = \"10.0.3.2\", teid = 1002 } }";
    let buffering = plain_session(2).replace(forward, "{ id = 2, action = \"buffer\" }");
    let mut ends = Ends::new(&(counting + &buffering));
    for _ in 0..200 {
        ends.up((0..100).map(|_| indication("10.0.3.2", 1001, "10.0.3.2")));
    }
    ends.up([from_gnb(1, None, &up_packet(b"counted"))]);
    ends.down([from_dn(&udp(SERVER, "10.45.0.2", (1, 2), b"kept"))]);
    let events = ends.upf.events();
    let has = |kind: fn(&Event) -> bool| events.iter().filter(|event| kind(event)).count();
    assert_eq!(has(|event| matches!(event, Event::Usage { seid: 1, urr: 1, .. })), 1);
    assert_eq!(has(|event| matches!(event, Event::DownlinkData { seid: 2, .. })), 1);
    let gone = has(|event| matches!(event, Event::TunnelGone { .. }));
    assert!((1..10_000).contains(&gone), "{gone}");
    assert!(dropped(&uplink(&ends), "limited") > 10_000);
    // Forwarding continues, and so do replies.
    assert_eq!(ends.up([from_gnb(1, None, &up_packet(b""))]).len(), 1);
    assert_eq!(ends.down([from_dn(&down_packet(b""))]).len(), 1);
    ends.up([message_from_gnb(&gtpu::echo_request(1))]);
    assert_eq!(ends.n3.received().len(), 1);
}
