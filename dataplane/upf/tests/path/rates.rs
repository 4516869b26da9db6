//! Maximum bit rates: packets that were kept for another reason leave at the rate, too.

use std::time::{Duration, Instant};

use dray_upf::Operation;

use super::neighbours::reply;
use super::{down_packet, waiting};
use crate::ends::{Ends, from_dn, plain_session, routed, session_of, to_gnb};

/// Length of the packets in bytes, as the rate counts them.
const LEN: usize = 28 + 972;
/// Rate, in bytes per second.
const RATE: f64 = 125_000.0;
/// Maximum bytes that are ahead of the rate: 3000, after a pause of the thread 20 ms more, and 3000
/// when nothing waits any more.
const BURST: f64 = 6000.0 + 0.020 * RATE;

fn limited(session: &str) -> String {
    session.replace("qfi = 9", "qfi = 9, mbr_downlink_kbps = 1000")
}

fn numbered(number: u16) -> Vec<u8> {
    let mut payload = number.to_be_bytes().to_vec();
    payload.resize(972, 0);
    down_packet(&payload)
}

/// Users' packets as they left, each with the time before and after it did.
struct Departures {
    began: Instant,
    seen: Vec<(f64, f64, Vec<u8>)>,
}

impl Departures {
    fn new() -> Self {
        Self { began: Instant::now(), seen: Vec::new() }
    }

    /// Lets the user plane function run once more.
    fn run(&mut self, ends: &mut Ends) {
        let before = self.began.elapsed().as_secs_f64();
        ends.run();
        let after = self.began.elapsed().as_secs_f64();
        let frames = ends.n3.received();
        self.seen.extend(frames.iter().map(|frame| (before, after, to_gnb(frame).2)));
    }

    /// Waits for at least `count` packets in all.
    fn wait_for(&mut self, ends: &mut Ends, count: usize) {
        while self.seen.len() < count && self.began.elapsed() < Duration::from_secs(15) {
            self.run(ends);
            std::thread::sleep(Duration::from_micros(200));
        }
        assert!(self.seen.len() >= count, "{} of {count}", self.seen.len());
    }

    /// Checks that in no window more left than the rate and a burst, and the order.
    fn check(&self) {
        for (from, (begin, ..)) in self.seen.iter().enumerate() {
            for (to, (_, end, _)) in self.seen.iter().enumerate().skip(from) {
                let bytes = ((to - from + 1) * LEN) as f64;
                let allowed = BURST + RATE * (1.0 + 1.0 / 128.0) * (end - begin);
                assert!(bytes <= allowed + 1.0, "{from} to {to}: {bytes} of {allowed}");
            }
        }
        let left: Vec<_> = self.seen.iter().map(|(.., packet)| packet.clone()).collect();
        let expected: Vec<_> = (0..left.len() as u16).map(|it| routed(&numbered(it))).collect();
        assert_eq!(left, expected);
    }
}

#[test]
fn released_paging_buffer_keeps_the_rate() {
    let mut ends = Ends::new(&limited(&waiting::buffering(1)));
    ends.down((0..60).map(|number| from_dn(&numbered(number))));
    assert_eq!(ends.upf.buffered(), 60);
    let modify = |ends: &mut Ends, text: &str| {
        let session = session_of(&limited(text));
        ends.upf.apply(&[Operation::Modify { session, end_marker: false }]).unwrap();
    };
    let mut departures = Departures::new();
    modify(&mut ends, &plain_session(1));
    departures.wait_for(&mut ends, 10);
    // A handover does not release them.
    modify(&mut ends, &plain_session(1).replace("teid = 1001", "teid = 2001"));
    departures.wait_for(&mut ends, 60);
    ends.n6.send((60..64).map(|number| from_dn(&numbered(number))));
    departures.wait_for(&mut ends, 64);
    departures.check();
    ends.assert_drops(&ends.upf.downlink(), &[]);
}

#[test]
fn packets_for_a_new_neighbour_keep_the_rate() {
    for gnb in ["10.0.3.7", "fd00:3::7"] {
        let text = plain_session(1).replace("gnb = \"10.0.3.2\"", &format!("gnb = \"{gnb}\""));
        let mut ends = Ends::new(&limited(&text));
        // Far more than may wait for the rate alone.
        ends.down((0..60).map(|number| from_dn(&numbered(number))));
        assert_eq!(ends.upf.buffered(), 60, "{gnb}");
        let mut departures = Departures::new();
        ends.n3.send([reply(gnb)]);
        departures.wait_for(&mut ends, 60);
        ends.n6.send((60..64).map(|number| from_dn(&numbered(number))));
        departures.wait_for(&mut ends, 64);
        departures.check();
        ends.assert_drops(&ends.upf.downlink(), &[]);
        assert_eq!(ends.upf.buffered(), 0);
    }
}

/// After a pause of the thread, what waited meanwhile does not leave all at once.
#[test]
fn pause_leads_to_no_burst() {
    let mut ends = Ends::new(&limited(&plain_session(1)));
    let mut departures = Departures::new();
    let mut sent = 0;
    for (count, pause_ms) in [(5, 20), (5, 120), (4, 60), (1, 20)] {
        let more = sent + count;
        ends.n6.send((sent..more).map(|number| from_dn(&numbered(number))));
        departures.run(&mut ends);
        sent = more;
        std::thread::sleep(Duration::from_millis(pause_ms));
    }
    ends.assert_drops(&ends.upf.downlink(), &[]);
    departures.wait_for(&mut ends, sent.into());
    departures.check();
}

/// A packet waits for at most a second, however low the rate.
#[test]
fn packet_waits_for_at_most_a_second() {
    let text = plain_session(1).replace("qfi = 9", "qfi = 9, mbr_downlink_kbps = 8");
    let mut ends = Ends::new(&text);
    let out = ends.down((0..50).map(|number| from_dn(&numbered(number))));
    let counters = ends.upf.downlink();
    // A packet takes a second, and three pass at once.
    assert!((2..=3).contains(&out.len()), "{}", out.len());
    assert!((1..=2).contains(&counters.delayed), "{}", counters.delayed);
    let mut departures = Departures::new();
    departures.wait_for(&mut ends, counters.delayed as usize);
    assert!(departures.began.elapsed() < Duration::from_secs(6));
}
