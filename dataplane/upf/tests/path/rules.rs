//! A session's rules, also while they change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dray_upf::config::SessionConfig;
use dray_upf::{DropReason, Event, Operation};
use dray_wire::gtpu;

use super::{NOTHING, SERVER, changed, down_packet, up_packet};
use crate::ends::{
    Ends, Threads, from_dn, from_gnb, plain_session, routed, session, session_of, to_dn, to_gnb,
    udp,
};

#[test]
fn matching_rule_of_lowest_precedence_wins() {
    let session = r#"
[[applications]]
name = "video"
servers = ["198.51.100.0/24", "198.51.100.7"]
ports = [443]
[[sessions]]
seid = 1
ue = ["10.45.0.1"]
pdrs = [
  { id = 1, precedence = 30, from = "access", teid = 1, far = 1 },
  { id = 2, precedence = 10, from = "access", teid = 1, far = 3, filters = ["permit out 17 from 203.0.113.9 80 to assigned 6000-6010"] },
  { id = 3, precedence = 30, from = "core", far = 2, qers = [1] },
  { id = 4, precedence = 20, from = "core", far = 2, qers = [2], application = "video" },
  { id = 5, precedence = 10, from = "core", far = 3, tos = [0xb8, 0xfc] },
  { id = 6, precedence = 20, from = "access", teid = 1, far = 3, qfis = [5] },
]
fars = [ { id = 1, action = "forward" }, { id = 3, action = "drop" },
  { id = 2, action = "forward", tunnel = { gnb = "10.0.3.2", teid = 7 } } ]
qers = [ { id = 1, qfi = 1 }, { id = 2, qfi = 2 } ]
"#;
    let mut ends = Ends::new(session);
    let mut passes = |qfi, port: u16| {
        ends.up([from_gnb(1, Some(qfi), &udp("10.45.0.1", SERVER, (port, 80), b""))]).len() == 1
    };
    assert!(passes(1, 5999) && !passes(1, 6000) && !passes(1, 6010) && passes(1, 6011));
    assert!(!passes(5, 5999), "another QoS flow");
    let mut qfi = |server: &str, port: u16, tos: u8| {
        let packet = changed(udp(server, "10.45.0.1", (port, 1), b""), 1, tos);
        let frames = ends.down([from_dn(&packet)]);
        frames.first().map(|frame| to_gnb(frame).1.container.unwrap().qfi)
    };
    assert_eq!(qfi("198.51.100.7", 443, 0), Some(2));
    assert_eq!(qfi("198.51.100.7", 80, 0), Some(1));
    assert_eq!(qfi("198.51.101.7", 443, 0), Some(1));
    assert_eq!(qfi("198.51.101.7", 443, 0xb8), None);
    assert_eq!(qfi("198.51.101.7", 443, 0xb9), None, "the mask leaves two bits out");
    ends.assert_drops(&ends.upf.downlink(), &[(DropReason::Rule, 2)]);
}

/// A later fragment has no ports, so it does not match a rule with ports.
#[test]
fn later_fragments_match_rules_without_ports() {
    let rule = "{ id = 3, precedence = 1, from = \"access\", teid = 1, far = 3, \
                filters = [\"permit out 17 from 203.0.113.9 80 to assigned\"] }, { id = 2,";
    let session = plain_session(1)
        .replace("{ id = 2, precedence", &format!("{rule} precedence"))
        .replace("fars = [", "fars = [ { id = 3, action = \"drop\" },");
    let mut ends = Ends::new(&session);
    let mut out =
        |at, value| ends.up([from_gnb(1, None, &changed(up_packet(&[7; 64]), at, value))]);
    assert_eq!((out(6, 0x00), out(6, 0x20)), (vec![], vec![]), "fragments with ports match");
    let later = changed(up_packet(&[7; 64]), 7, 3);
    assert_eq!(out(7, 3), [to_dn(&later)]);
    ends.assert_drops(&ends.upf.uplink(), &[(DropReason::Rule, 2)]);
    // In the downlink, the user is found by address alone.
    let later = changed(down_packet(&[7; 64]), 7, 3);
    assert_eq!(to_gnb(&ends.down([from_dn(&later)])[0]).2, routed(&later));
}

#[test]
fn closed_gate_and_spent_quota_drop() {
    let session = plain_session(1)
        .replace("far = 1 }", "far = 1, urrs = [4] }")
        .replace("qers = [1] }", "qers = [1], urrs = [4] }")
        + "urrs = [ { id = 4, threshold = { total = 100 }, quota = { total = 200 } } ]";
    let mut ends = Ends::new(&session);
    // 28 bytes of headers each.
    assert_eq!(ends.up([from_gnb(1, None, &up_packet(&[0; 32]))]).len(), 1);
    assert_eq!(ends.upf.events(), []);
    assert_eq!(ends.down([from_dn(&down_packet(&[0; 32]))]).len(), 1);
    let events = ends.upf.events();
    let [Event::Usage { seid: 1, urr: 4, quota: false, counted }] = events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((counted.uplink_octets, counted.downlink_octets), (60, 60));
    assert_eq!(ends.up([from_gnb(1, None, &up_packet(&[0; 72]))]).len(), 1);
    assert!(matches!(ends.upf.events()[..], [Event::Usage { quota: true, .. }]));
    assert_eq!(ends.up([from_gnb(1, None, &up_packet(b""))]).len(), 0);
    assert_eq!(ends.down([from_dn(&down_packet(b""))]).len(), 0);
    ends.assert_drops(&ends.upf.uplink(), &[(DropReason::Quota, 1)]);
    let counted = ends.upf.session(1).unwrap().usage[0].counted;
    assert_eq!((counted.uplink_packets, counted.downlink_packets), (2, 1));

    let closed = plain_session(1).replace("qfi = 9", "qfi = 9, gate_downlink = \"closed\"");
    let mut ends = Ends::new(&closed);
    assert_eq!(ends.down([from_dn(&down_packet(b""))]).len(), 0);
    ends.assert_drops(&ends.upf.downlink(), &[(DropReason::GateClosed, 1)]);
    assert_eq!(ends.up([from_gnb(1, None, &up_packet(b""))]).len(), 1, "the uplink gate is open");
}

/// Returns the packets of 1000 bytes for which a rate has made room since `began`, at most: a busy
/// machine takes its time between them.
fn refilled(kbps: usize, began: Instant) -> usize {
    let bytes = began.elapsed().as_secs_f64() * (kbps * 125) as f64;
    (bytes / 1000.0).ceil() as usize
}

/// Returns the number of packets that have waited for their rate, once all have left.
fn waited(ends: &mut Ends) -> usize {
    let (patience, mut seen) = (Instant::now() + Duration::from_secs(30), 0);
    while ends.upf.uplink().buffered + ends.upf.downlink().buffered > 0 {
        assert!(Instant::now() < patience, "packets wait for their rate after 30 s");
        ends.run();
        seen += ends.n3.received().len() + ends.n6.received().len();
    }
    seen
}

/// Packets beyond the rate and a burst wait, or are dropped; those that are dropped do not count as
/// used.
#[test]
fn rate_limit_polices_only_its_session() {
    let session = plain_session(1)
        .replace("far = 1 }", "far = 1, qers = [1, 2], urrs = [1] }")
        .replace("qfi = 9 }", "qfi = 9 }, { id = 2, mbr_uplink_kbps = 1000 }")
        + "urrs = [ { id = 1 } ]"
        + &plain_session(2);
    let mut ends = Ends::new(&session);
    let packet = up_packet(&[0; 972]);
    let began = Instant::now();
    let mut passed = ends.up((0..100).map(|_| from_gnb(1, None, &packet))).len();
    // 3000 bytes are three packets.
    let refilled = refilled(1000, began);
    assert!((3..4 + refilled).contains(&passed), "{passed}");
    let waited = waited(&mut ends);
    // 16 KiB.
    assert!((15..18 + refilled).contains(&waited), "{waited}");
    passed += waited;
    // Some may have left among the first.
    let delayed = ends.upf.uplink().delayed as usize;
    assert!((waited..=waited + refilled).contains(&delayed), "{delayed}, {waited}");
    ends.assert_drops(&ends.upf.uplink(), &[(DropReason::Policed, 100 - passed as u64)]);
    assert_eq!(ends.upf.session(1).unwrap().usage[0].counted.uplink_packets, passed as u64);
    let other = udp("10.45.0.2", SERVER, (5000, 80), &[0; 972]);
    assert_eq!(
        ends.up((0..100).map(|_| from_gnb(2, None, &other))).len(),
        100,
        "session 2 has no limit"
    );
}

/// A packet passes if every rate of its rule has room; one that a rate refuses counts for none of
/// them.
#[test]
fn every_rate_of_a_rule_applies() {
    let session = plain_session(1)
        .replace(
            "qers = [1] }",
            "qers = [1, 3, 2] }, { id = 3, precedence = 1, from = \"core\", far = 2, \
             qers = [1, 3], filters = [\"permit out 17 from 203.0.113.9 81 to assigned\"] }",
        )
        .replace(
            "qfi = 9 }",
            "qfi = 9 }, { id = 2, mbr_downlink_kbps = 1000 }, \
             { id = 3, mbr_downlink_kbps = 10000 }",
        );
    let mut ends = Ends::new(&session);
    let packets =
        |port| (0..200).map(move |_| from_dn(&udp(SERVER, "10.45.0.1", (port, 5000), &[0; 972])));
    let began = Instant::now();
    // As above: 3000 bytes pass, and 16 KiB wait.
    let mut slow = ends.down(packets(80)).len();
    let most = refilled(1000, began);
    slow += waited(&mut ends);
    assert!((19..22 + most).contains(&slow), "{slow}");
    let began = Instant::now();
    // 10 ms of 10 Mb/s pass, and 75 ms wait; the bucket is full again.
    let mut fast = ends.down(packets(81)).len();
    let most = refilled(10_000, began);
    fast += waited(&mut ends);
    assert!((105..109 + most).contains(&fast), "{fast}");
    let policed = 400 - (slow + fast) as u64;
    ends.assert_drops(&ends.upf.downlink(), &[(DropReason::Policed, policed)]);
}

#[test]
fn buffered_packets_are_forwarded_in_order() {
    let forward = plain_session(1);
    let tunnel = "action = \"forward\", tunnel = { gnb = \"10.0.3.2\", teid = 1001 }";
    let buffer = forward.replace(tunnel, "action = \"buffer\"");
    assert_ne!(forward, buffer);
    let mut ends = Ends::new(&format!("buffer_per_session = 40\n{buffer}"));
    let packets: Vec<_> = (0..50u8).map(|number| down_packet(&[number; 100])).collect();
    assert_eq!(ends.down(packets.iter().map(|packet| from_dn(packet))), NOTHING);
    assert_eq!(ends.upf.downlink().buffered, 40);
    ends.assert_drops(&ends.upf.downlink(), &[(DropReason::BufferSession, 10)]);
    assert_eq!(ends.upf.events(), [Event::DownlinkData { seid: 1, pdr: 2 }]);

    let modify =
        |text: &str, end_marker| Operation::Modify { session: session_of(text), end_marker };
    ends.upf.apply(&[modify(&forward, false)]).unwrap();
    ends.run();
    let frames = ends.n3.received();
    let inner: Vec<_> = frames.iter().map(|frame| to_gnb(frame).2).collect();
    assert_eq!(inner, packets[..40].iter().map(|packet| routed(packet)).collect::<Vec<_>>());

    // To another gNB's tunnel: the old one gets its end marker, then packets take the new one.
    ends.upf.apply(&[modify(&forward.replace("teid = 1001", "teid = 77"), true)]).unwrap();
    let frames = ends.down([from_dn(&packets[0])]);
    let headers: Vec<_> = frames.iter().map(|frame| to_gnb(frame).1).collect();
    let said: Vec<_> = headers.iter().map(|header| (header.message, header.teid)).collect();
    assert_eq!(said, [(gtpu::message::END_MARKER, 1001), (gtpu::message::G_PDU, 77)]);

    // Removing a session drops its buffered packets.
    ends.upf.apply(&[modify(&buffer, false)]).unwrap();
    ends.down([from_dn(&packets[0]), from_dn(&packets[1])]);
    ends.upf.apply(&[Operation::Remove(1)]).unwrap();
    ends.run();
    assert_eq!(ends.upf.downlink().drops.get(DropReason::SessionGone), 2);
    assert_eq!(ends.down([from_dn(&packets[0])]), NOTHING);
    ends.n6.received();
    assert_eq!(ends.up([from_gnb(1, None, &up_packet(b""))]), NOTHING);
}

#[test]
fn transaction_applies_as_whole_or_not() {
    let mut ends = Ends::new(&(plain_session(1) + &plain_session(2)));
    let put = |text: &str| Operation::Add(session_of(text));
    let three = plain_session(3);
    for (operations, part) in [
        (
            vec![put(&three), put(&plain_session(4).replace("teid = 4,", "teid = 2,"))],
            "session 4: pdrs[0].teid: 0x2: already in use by session 2",
        ),
        (
            vec![put(&three), put(&plain_session(4).replace("teid = 4,", "teid = 3,"))],
            "already in use by session 3",
        ),
        (
            vec![put(&three), put(&plain_session(4).replace("10.45.0.4", "10.45.0.1"))],
            "session 4: ue[0]: 10.45.0.1",
        ),
        (vec![put(&three), Operation::Remove(9)], "session 9: seid: no such session"),
        (vec![put(&three), put(&three)], "twice"),
        (
            vec![put(&three), put(&plain_session(4).replace("qers = [1] }", "qers = [8] }"))],
            "session 4: pdrs[1].qers: QER 8",
        ),
    ] {
        let error = ends.upf.apply(&operations).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert_eq!(ends.upf.session_count(), 2);
    }
    ends.run();
    let of = |n: u8| from_gnb(n.into(), None, &udp(&format!("10.45.0.{n}"), SERVER, (1, 2), b""));
    assert_eq!(ends.up([of(1), of(2), of(3)]).len(), 2);
    // A session can take what another one releases in the same transaction.
    let moved =
        plain_session(4).replace("teid = 4,", "teid = 1,").replace("10.45.0.4", "10.45.0.1");
    ends.upf.apply(&[Operation::Remove(1), put(&moved), put(&three)]).unwrap();
    assert_eq!(ends.up([of(1), of(2), of(3)]).len(), 3);
    assert_eq!(ends.upf.session_count(), 3);
}

/// A session changes while its packets pass, with a new tunnel and flow each time: every packet
/// sees either the old or the new session, and nothing in between.
#[test]
fn packet_sees_old_or_new_session() {
    let ends = Ends::new(&plain_session(1));
    let (upf, n3, n6) = (ends.upf.clone(), ends.n3.clone(), ends.n6.clone());
    let running = Threads::of(ends);
    let moved =
        plain_session(1).replace("teid = 1001", "teid = 2002").replace("qfi = 9", "qfi = 5");
    let kinds = [session(1), session_of(&moved)];
    let stop = Arc::<AtomicBool>::default();
    let change = std::thread::spawn({
        let stop = stop.clone();
        move || {
            let change = |session: &SessionConfig| {
                let (session, end_marker) = (session.clone(), false);
                upf.apply(&[Operation::Modify { session, end_marker }]).unwrap();
            };
            while !stop.load(Ordering::Relaxed) {
                kinds.iter().rev().for_each(change);
            }
            upf
        }
    });
    let frame = from_dn(&udp(SERVER, "10.45.0.1", (80, 5000), b"hand over"));
    let mut seen = [0u64; 2];
    let mut take = || {
        for frame in n3.received() {
            let (_, header, _) = to_gnb(&frame);
            match (header.teid, header.container.unwrap().qfi) {
                (1001, 9) => seen[0] += 1,
                (2002, 5) => seen[1] += 1,
                other => panic!("neither the old nor the new session: {other:?}"),
            }
        }
        seen
    };
    let mut sent = 0;
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        n6.send((0..64).map(|_| frame.clone()));
        sent += 64;
        take();
        std::thread::sleep(Duration::from_micros(200));
    }
    stop.store(true, Ordering::Relaxed);
    let upf = change.join().unwrap();
    let patience = Instant::now() + Duration::from_secs(30);
    while take().iter().sum::<u64>() < sent && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(running);
    let seen = take();
    assert_eq!(seen.iter().sum::<u64>(), sent, "{:?}", upf.downlink());
    assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
}
