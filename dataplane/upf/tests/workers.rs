//! Two workers for each direction, and packets of one session at both.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dray_port::Port;
use dray_port::memory::Peer;
use dray_upf::{Event, Operation, Upf, UpfConfig, Worker};

use crate::ends::{
    INTERFACES, Threads, from_dn, from_gnb, plain_session, session, session_of, to_dn, to_gnb, udp,
};

const SERVER: &str = "203.0.113.9";
const USER: &str = "10.45.0.1";
/// Length of a packet and of its payload in bytes.
const LEN: usize = 1000;
const PAYLOAD: usize = LEN - 28;

/// A user plane function with two queues at each port.
struct Pair {
    n3: [Peer; 2],
    n6: [Peer; 2],
    upf: Arc<Upf>,
    workers: [Vec<Worker>; 2],
}

fn port(queues: &[Peer; 2]) -> Port {
    let [mut port, other] = queues.each_ref().map(Peer::port);
    port.rx.extend(other.rx);
    port.tx.extend(other.tx);
    port
}

impl Pair {
    fn new(sessions: &str) -> Self {
        let [n3, n6] = [(); 2].map(|()| [Peer::default(), Peer::default()]);
        let config = UpfConfig::from_toml(&format!("{INTERFACES}{sessions}")).unwrap();
        let (upf, workers) = Upf::create(&config, [port(&n3), port(&n6)], 2, None, &|| ()).unwrap();
        Self { n3, n6, upf: Arc::new(upf), workers }
    }

    fn start(&mut self) -> Threads {
        Threads::of_workers(self.workers.each_mut().map(std::mem::take).into_iter().flatten())
    }

    /// Polls the downlink's workers one after the other, and returns what each queue of N3
    /// received.
    fn down(&mut self) -> [Vec<Vec<u8>>; 2] {
        self.workers[1].iter_mut().for_each(|worker| while worker.poll().unwrap() {});
        self.n3.each_ref().map(Peer::received)
    }
}

/// Returns a session with `rule` added to its uplink rule, and with `more` rules.
fn with(rule: &str, more: &str) -> String {
    let plain =
        plain_session(1).replace("teid = 1, far = 1", &format!("teid = 1, far = 1, {rule}"));
    plain.replace(
        "qers = [ {",
        &format!("{more}\nqers = [ {{ id = 2, mbr_uplink_kbps = 10000 }}, {{"),
    )
}

fn up_frame(port: u16, payload: &[u8]) -> Vec<u8> {
    from_gnb(1, None, &udp(USER, SERVER, (port, 80), payload))
}

#[test]
fn workers_keep_flow_order_without_loss() {
    let sessions: String = (1..=8).map(plain_session).collect();
    let mut pair = Pair::new(&sessions);
    let threads = pair.start();
    let (mut sent, mut received) = (Vec::new(), [Vec::new(), Vec::new()]);
    let mut gather = |pair: &Pair| {
        let all = received.iter_mut().zip(&pair.n6);
        all.for_each(|(frames, queue): (&mut Vec<Vec<u8>>, _)| frames.extend(queue.received()));
        received.iter().map(Vec::len).sum::<usize>()
    };
    for number in 0..2000u16 {
        for seid in 1..=8 {
            let ue = Ipv4Addr::new(10, 45, 0, seid).to_string();
            for (queue, flow) in [5000u16, 5001].into_iter().enumerate() {
                let packet = udp(&ue, SERVER, (flow, 80), &number.to_be_bytes());
                pair.n3[queue].send([from_gnb(seid.into(), None, &packet)]);
                sent.push((queue, to_dn(&packet)));
            }
        }
        // Other sessions change meanwhile.
        if number % 100 == 0 {
            pair.upf.apply(&[Operation::Add(session(9))]).unwrap();
            pair.upf.apply(&[Operation::Remove(9)]).unwrap();
        }
    }
    let patience = Instant::now() + Duration::from_secs(30);
    while gather(&pair) < sent.len() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(threads);
    for (queue, received) in received.into_iter().enumerate() {
        let expected = sent.iter().filter(|(of, _)| *of == queue).map(|(_, frame)| frame);
        assert!(received.iter().eq(expected), "queue {queue}");
    }
}

/// With a limit of 10 Mb/s, two queues that are offered far more pass together what one would.
/// Counters match what passed, to the byte, and each threshold is reported once.
#[test]
fn workers_share_session_limits_and_counts() {
    let mut pair = Pair::new(&with(
        "qers = [2], urrs = [1, 2]",
        "urrs = [ { id = 1, threshold = { uplink = 10000 } }, { id = 2 } ]",
    ));
    let threads = pair.start();
    let frames = [5000, 5001].map(|port| up_frame(port, &[7; PAYLOAD]));
    let start = Instant::now();
    let mut passed = 0u64;
    let gather = || pair.n6.iter().map(|queue| queue.received().len() as u64).sum::<u64>();
    while start.elapsed() < Duration::from_millis(500) {
        for (queue, frame) in pair.n3.iter().zip(&frames) {
            queue.send((0..32).map(|_| frame.clone()));
        }
        passed += gather();
        std::thread::sleep(Duration::from_millis(1));
    }
    // Frames may still wait at the port, and packets for their rate.
    let (mut last, patience) = (Instant::now(), Instant::now() + Duration::from_secs(30));
    while last.elapsed() < Duration::from_millis(300) && Instant::now() < patience {
        let more = gather();
        if more > 0 {
            (passed, last) = (passed + more, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(threads);
    let elapsed = last.duration_since(start).as_secs_f64();
    passed += gather();
    // At most 15 ms ahead, plus the packet that reaches this limit.
    let most = 10e6 * (elapsed + 0.015) / 8.0 + LEN as f64;
    let octets = passed * LEN as u64;
    assert!(octets as f64 <= most && octets > 62_000, "{octets} of {most}");
    for usage in &pair.upf.session(1).unwrap().usage {
        assert_eq!(usage.counted.uplink_octets, octets, "{usage:?}");
        assert_eq!(usage.counted.uplink_packets, passed, "{usage:?}");
    }
    assert!(pair.upf.uplink().drops.total() > 0);
    let reports =
        pair.upf.events().into_iter().filter(|event| matches!(event, Event::Usage { .. }));
    let reports = reports.count() as u64;
    // A report is due every ten packets; the next threshold counts from where the report was made.
    assert!(reports <= octets / 10_000 && reports > octets / 10_000 / 2, "{reports} of {octets}");
}

#[test]
fn workers_share_one_quota() {
    let mut pair =
        Pair::new(&with("urrs = [1]", "urrs = [ { id = 1, quota = { total = 20000 } } ]"));
    let threads = pair.start();
    for (queue, port) in pair.n3.iter().zip([5000, 5001]) {
        queue.send((0..100).map(|_| up_frame(port, &[7; PAYLOAD])));
    }
    let patience = Instant::now() + Duration::from_secs(30);
    while pair.upf.uplink().rx_packets < 200 && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(threads);
    let passed: usize = pair.n6.iter().map(|queue| queue.received().len()).sum();
    // Each worker may have let one packet pass before the other had counted its own.
    assert!((20..=21).contains(&passed), "{passed}");
    let quotas = pair.upf.events();
    assert!(matches!(quotas[..], [Event::Usage { quota: true, .. }]), "{quotas:?}");
}

/// Packets buffered at both workers share one limit and one report, and the end marker is sent
/// once, when neither worker sends into the tunnel any more.
#[test]
fn workers_share_buffer_and_end_marker() {
    let mut pair = Pair::new(&plain_session(1));
    let down = |port: u16, payload: &[u8]| from_dn(&udp(SERVER, USER, (80, port), payload));
    let modify = |pair: &Pair, text: &str| {
        let session = session_of(text);
        pair.upf.apply(&[Operation::Modify { session, end_marker: true }]).unwrap();
    };
    let buffering = plain_session(1).replace(
        "{ id = 2, action = \"forward\", tunnel = { gnb = \"10.0.3.2\", teid = 1001 } }",
        "{ id = 2, action = \"buffer\" }",
    );
    modify(&pair, &buffering);
    // The first worker applies the change and sends packets; the second has not applied it yet.
    while pair.workers[1][0].poll().unwrap() {}
    assert!(pair.n3[0].received().is_empty(), "end marker sent too early");
    let [first, second] = pair.down();
    assert!(first.is_empty());
    let [marker] = &second[..] else { panic!("{second:?}") };
    let (_, header, _) = to_gnb(marker);
    assert_eq!((header.message, header.teid), (254, 1001));
    for (queue, port) in pair.n6.iter().zip([5000, 5001]) {
        queue.send((0..40u8).map(|number| down(port, &[number])));
    }
    assert!(pair.down().concat().is_empty());
    let events = pair.upf.events();
    assert!(matches!(events[..], [Event::DownlinkData { seid: 1, .. }]), "{events:?}");
    modify(&pair, &plain_session(1));
    let all = pair.down();
    // A session buffers at most 64 packets.
    assert_eq!(all.iter().map(Vec::len).sum::<usize>(), 64);
    for frames in all {
        let inner = frames.iter().map(|frame| to_gnb(frame).2);
        assert!(inner.enumerate().all(|(number, packet)| packet[28] == number as u8));
    }
}
