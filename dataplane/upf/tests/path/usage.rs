//! Usage reporting rules while their session changes (TS 29.244, sections 5.2.2 and 7.5.4).

use dray_upf::{DropReason, Event, Operation};

use super::{down_packet, up_packet};
use crate::ends::{Ends, from_dn, from_gnb, plain_session, session_of};

/// Returns a session whose rules count in two usage rules, the first with these keys.
fn counting(first: &str) -> String {
    plain_session(1)
        .replace("teid = 1, far = 1 }", "teid = 1, far = 1, urrs = [4, 5] }")
        .replace("qers = [1] }", "qers = [1], urrs = [4, 5] }")
        + &format!("urrs = [ {{ id = 4, {first} }}, {{ id = 5, threshold = {{ total = 1000 }} }} ]")
}

fn modify(ends: &mut Ends, text: &str) {
    let session = session_of(text);
    ends.upf.apply(&[Operation::Modify { session, end_marker: false }]).unwrap();
    ends.run();
}

/// Sends a packet of 60 bytes each way in turn; returns true for each that passed.
fn pass(ends: &mut Ends, ways: &[&str]) -> Vec<bool> {
    let passes = |way: &&str| match *way {
        "up" => ends.up([from_gnb(1, None, &up_packet(&[7; 32]))]).len() == 1,
        _ => ends.down([from_dn(&down_packet(&[7; 32]))]).len() == 1,
    };
    ways.iter().map(passes).collect()
}

/// Returns the usage reports since the last call: the rule, if its quota is used up, and bytes.
fn reports(ends: &Ends) -> Vec<(u32, bool, u64)> {
    let report = |event| match event {
        Event::Usage { seid: 1, urr, quota, counted } => {
            (urr, quota, counted.uplink_octets + counted.downlink_octets)
        }
        other => panic!("{other:?}"),
    };
    ends.upf.events().into_iter().map(report).collect()
}

#[test]
fn modification_does_not_restart_threshold() {
    let text = counting("threshold = { total = 100 }");
    let mut ends = Ends::new(&text);
    pass(&mut ends, &["up"]);
    modify(&mut ends, &text);
    // A handover, and a rate, leave the usage rules alone, too.
    modify(&mut ends, &text.replace("teid = 1001", "teid = 77"));
    modify(&mut ends, &text.replace("id = 1, qfi = 9", "id = 1, qfi = 9, mbr_uplink_kbps = 1000"));
    assert_eq!(reports(&ends), []);
    pass(&mut ends, &["up"]);
    assert_eq!(reports(&ends), [(4, false, 120)]);
    // The other rule changes; both go on.
    pass(&mut ends, &["up"]);
    modify(&mut ends, &text.replace("total = 1000", "total = 170"));
    assert_eq!(reports(&ends), [(5, false, 180)]);
    pass(&mut ends, &["down"]);
    assert_eq!(reports(&ends), [(4, false, 240)]);
}

#[test]
fn quota_counts_from_its_grant() {
    let text = counting("quota = { total = 100 }");
    let mut ends = Ends::new(&text);
    for round in 1..=3 {
        assert_eq!(pass(&mut ends, &["up", "down", "up", "down"]), [true, true, false, false]);
        assert_eq!(reports(&ends), [(4, true, round * 120)]);
        // While other rules change, it stays used up.
        modify(&mut ends, &text.replace("teid = 1001", "teid = 77"));
        modify(&mut ends, &text);
        assert_eq!(pass(&mut ends, &["up"]), [false]);
        // A modification to the same session is a new grant.
        modify(&mut ends, &text);
    }
    let counted = |ends: &Ends| ends.upf.session(1).unwrap().usage[0].counted;
    assert_eq!((counted(&ends).uplink_octets, counted(&ends).downlink_octets), (180, 180));
    assert_eq!(pass(&mut ends, &["up"]), [true]);
    // A grant that is not used up goes on when it is given again, and another one replaces it.
    modify(&mut ends, &text);
    assert_eq!(pass(&mut ends, &["up", "up"]), [true, false]);
    modify(&mut ends, &counting("quota = { total = 70 }"));
    assert_eq!(pass(&mut ends, &["up", "up", "up"]), [true, true, false]);
    modify(&mut ends, &counting("quota = { total = 1000 }"));
    assert_eq!(reports(&ends).len(), 2);
    assert_eq!(pass(&mut ends, &["up", "up"]), [true, true]);
    modify(&mut ends, &counting("quota = { total = 10 }"));
    assert_eq!(pass(&mut ends, &["up", "up"]), [true, false]);
    assert_eq!(reports(&ends), [(4, true, 780)]);
}

#[test]
fn quota_of_zero_is_reported_before_packets_are_dropped() {
    let mut ends = Ends::new(&counting("quota = { total = 1000 }"));
    assert_eq!(pass(&mut ends, &["up", "up"]), [true, true]);
    modify(&mut ends, &counting("quota = { uplink = 0 }"));
    assert_eq!(reports(&ends), [(4, true, 120)]);
    assert_eq!(pass(&mut ends, &["up", "down"]), [false, true]);
    ends.assert_drops(&ends.upf.uplink(), &[(DropReason::Quota, 1)]);
    assert_eq!(reports(&ends), []);
    // Each direction reports its own.
    modify(&mut ends, &counting("quota = { uplink = 60, downlink = 60 }"));
    assert_eq!(pass(&mut ends, &["up", "down", "up", "down"]), [true, true, false, false]);
    assert_eq!(reports(&ends).len(), 2);
    // A rule that is removed, and added again, begins anew.
    let without = counting("").replace("id = 4, ", "id = 6").replace("[4, 5]", "[6, 5]");
    modify(&mut ends, &without);
    assert_eq!(pass(&mut ends, &["up", "down"]), [true, true]);
    modify(&mut ends, &counting("quota = { total = 100 }"));
    assert_eq!(pass(&mut ends, &["up", "down", "up"]), [true, true, false]);
    assert_eq!(reports(&ends), [(4, true, 120)]);
}
