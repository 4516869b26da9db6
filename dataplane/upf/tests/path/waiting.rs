//! Packets buffered for a user who cannot be reached.

use std::time::Duration;

use dray_upf::{DropReason, Event, Operation};

use super::NOTHING;
use crate::ends::{Ends, from_dn, plain_session, routed, session_of, to_gnb, udp};

const FORWARD: &str = "action = \"forward\", tunnel";
const SERVERS: [&str; 2] = ["203.0.113.9", "198.51.100.7"];

/// Returns [`plain_session`] with downlink packets buffered.
pub(crate) fn buffering(seid: u8) -> String {
    plain_session(seid).replace(
        &format!("{FORWARD} = {{ gnb = \"10.0.3.2\", teid = 100{seid} }}"),
        "action = \"buffer\"",
    )
}

/// Returns a session with one rule for each of two flows, from [`SERVERS`].
fn two_flows(first: &str, second: &str) -> String {
    let action = |action: &str| match action {
        "forward" => format!("{FORWARD} = {{ gnb = \"10.0.3.2\", teid = 1001 }}"),
        other => format!("action = \"{other}\""),
    };
    format!(
        r#"
[[sessions]]
seid = 1
ue = ["10.45.0.1"]
pdrs = [ {{ id = 1, precedence = 255, from = "access", teid = 1, far = 1 }},
         {{ id = 2, precedence = 255, from = "core", far = 2 }},
         {{ id = 3, precedence = 10, from = "core", far = 3,
            filters = ["permit out ip from 198.51.100.0/24 to assigned"] }} ]
fars = [ {{ id = 1, action = "forward" }}, {{ id = 2, {} }}, {{ id = 3, {} }} ]
"#,
        action(first),
        action(second),
    )
}

fn to_user(seid: u8, number: u8) -> Vec<u8> {
    udp(SERVERS[0], &format!("10.45.0.{seid}"), (80, 5000), &[number])
}

fn of_flow(flow: usize, number: u8) -> Vec<u8> {
    udp(SERVERS[flow], "10.45.0.1", (80, 5000), &[number])
}

/// Changes a session, and returns the frames that leave.
pub(crate) fn modify_with(ends: &mut Ends, text: &str, end_marker: bool) -> Vec<Vec<u8>> {
    let session = session_of(text);
    ends.upf.apply(&[Operation::Modify { session, end_marker }]).unwrap();
    ends.run();
    ends.n3.received()
}

fn modify(ends: &mut Ends, text: &str) -> Vec<Vec<u8>> {
    modify_with(ends, text, false).iter().map(|frame| to_gnb(frame).2).collect()
}

fn paged(ends: &Ends) -> Vec<u64> {
    let seid = |event| match event {
        Event::DownlinkData { seid, .. } => seid,
        other => panic!("{other:?}"),
    };
    ends.upf.events().into_iter().map(seid).collect()
}

#[test]
fn full_store_does_not_suppress_paging() {
    for room in [0, 2] {
        let sessions: String = (1..=3).map(buffering).collect();
        let mut ends = Ends::new(&format!("buffer_packets = {room}\n{sessions}"));
        for seid in 1..=3 {
            ends.down([from_dn(&to_user(seid, 0)), from_dn(&to_user(seid, 1))]);
        }
        assert_eq!(paged(&ends), [1, 2, 3], "one report for each session");
        assert_eq!(ends.upf.downlink().buffered, room);
        assert_eq!(ends.upf.downlink().drops.total(), 6 - room);
    }
}

#[test]
fn buffers_of_unreachable_users_leave_room() {
    let sessions: String = (1..=9).map(buffering).collect();
    let mut ends = Ends::new(&format!("buffer_packets = 64\nbuffer_per_session = 16\n{sessions}"));
    for seid in 1..=8 {
        ends.down((0..100).map(|number| from_dn(&to_user(seid, number))));
    }
    ends.down([from_dn(&to_user(9, 0))]);
    assert_eq!(modify(&mut ends, &plain_session(9)), [routed(&to_user(9, 0))]);
    // A session's buffered packets are its first ones, in order.
    let kept = modify(&mut ends, &plain_session(1));
    assert!(!kept.is_empty());
    let expected: Vec<_> = (0..kept.len() as u8).map(|it| routed(&to_user(1, it))).collect();
    assert_eq!(kept, expected);
}

#[test]
fn buffered_packets_expire() {
    let mut ends = Ends::new(&format!("buffer_ms = 300\n{}{}", buffering(1), buffering(2)));
    ends.down([from_dn(&to_user(1, 0)), from_dn(&to_user(2, 0)), from_dn(&to_user(1, 1))]);
    assert_eq!(paged(&ends), [1, 2]);
    std::thread::sleep(Duration::from_millis(400));
    ends.run();
    ends.assert_drops(&ends.upf.downlink(), &[(DropReason::BufferExpired, 3)]);
    // The next packet is buffered again, and the control plane gets another report.
    ends.down([from_dn(&to_user(1, 2))]);
    assert_eq!(paged(&ends), [1]);
    assert_eq!(modify(&mut ends, &plain_session(1)), [routed(&to_user(1, 2))]);
    assert_eq!(modify(&mut ends, &plain_session(2)), NOTHING);
}

#[test]
fn paging_is_reported_again_after_the_session_forwarded() {
    let mut ends = Ends::new(&format!("buffer_packets = 0\n{}", buffering(1)));
    for _ in 0..2 {
        ends.down([from_dn(&to_user(1, 0)), from_dn(&to_user(1, 0))]);
        assert_eq!(paged(&ends), [1]);
        modify(&mut ends, &plain_session(1));
        modify(&mut ends, &buffering(1));
    }
}

#[test]
fn one_flow_forwards_while_another_buffers() {
    let mut ends = Ends::new(&two_flows("buffer", "buffer"));
    let all = (0..8).flat_map(|number| [of_flow(0, number), of_flow(1, number)]);
    assert_eq!(ends.down(all.map(|packet| from_dn(&packet))), NOTHING);
    let flow = |flow: usize, numbers: std::ops::Range<u8>| -> Vec<_> {
        numbers.map(|number| routed(&of_flow(flow, number))).collect()
    };
    // Buffered packets of the flow come before new ones.
    ends.n6.send((8..10).map(|number| from_dn(&of_flow(0, number))));
    let out = modify(&mut ends, &two_flows("forward", "buffer"));
    assert_eq!(out, flow(0, 0..10));
    assert_eq!(ends.down([from_dn(&of_flow(1, 8))]), NOTHING);
    let events = ends.upf.events();
    assert_eq!(events.len(), 1, "one report for the session: {events:?}");
    let out = modify(&mut ends, &two_flows("buffer", "forward"));
    assert_eq!(out, flow(1, 0..9));
    ends.assert_drops(&ends.upf.downlink(), &[]);
    let down = ends.upf.downlink();
    assert_eq!((down.buffering, down.buffered), (17, 0), "each buffered packet is counted once");
    // A rule that drops also drops buffered packets.
    ends.down([from_dn(&of_flow(0, 0)), from_dn(&of_flow(1, 0))]);
    assert_eq!(modify(&mut ends, &two_flows("drop", "forward")), NOTHING);
    ends.assert_drops(&ends.upf.downlink(), &[(DropReason::Rule, 1)]);
}

#[test]
fn buffer_ms_outside_limits_is_refused() {
    for ms in ["0", "3600001"] {
        let text = format!("buffer_ms = {ms}\n{}", crate::ends::INTERFACES);
        let error = Ends::try_new(&text).err().map(|error| error.to_string());
        assert_eq!(error, Some(format!("buffer_ms: {ms}: give 1 to 3600000")));
    }
    let none = format!("buffer_per_session = 0\n{}", buffering(1));
    let mut ends = Ends::new(&none);
    assert_eq!(ends.down([from_dn(&to_user(1, 0))]), NOTHING);
    ends.assert_drops(&ends.upf.downlink(), &[(DropReason::BufferSession, 1)]);
}
