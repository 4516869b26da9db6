//! Sessions that are added and removed while other sessions' packets pass. This is a separate
//! program, because it measures its own memory.

mod ends;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dray_upf::{Operation, Upf};
use ends::{Ends, Threads, from_gnb, plain_session, session, to_dn, udp};

const SERVER: &str = "203.0.113.9";

/// Sessions are added and removed while other sessions' packets pass: none of those packets is lost
/// or altered, and removed sessions leave nothing behind.
#[test]
fn session_churn_loses_no_packet_or_memory() {
    let ends = Ends::new(&plain_session(1));
    let (upf, n3, n6) = (ends.upf.clone(), ends.n3.clone(), ends.n6.clone());
    let running = Threads::of(ends);
    let stop = Arc::<AtomicBool>::default();
    let churn = std::thread::spawn({
        let (upf, stop) = (upf.clone(), stop.clone());
        move || churn(&upf, &stop)
    });
    let packet = udp("10.45.0.1", SERVER, (5000, 80), b"stays");
    let (frame, expected) = (from_gnb(1, None, &packet), to_dn(&packet));
    let mut sent = 0;
    let mut received = 0;
    let take = |received: &mut u64| {
        for frame in n6.received() {
            assert_eq!(frame, expected);
            *received += 1;
        }
    };
    let until = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < until {
        // Frames in flight take memory, too: a busy machine must not let them pile up.
        if sent - received < 10_000 {
            n3.send((0..64).map(|_| frame.clone()));
            sent += 64;
        }
        take(&mut received);
        std::thread::sleep(Duration::from_micros(200));
    }
    stop.store(true, Ordering::Relaxed);
    let (changes, before, after) = churn.join().unwrap();
    let patience = Instant::now() + Duration::from_secs(30);
    while received < sent && Instant::now() < patience {
        take(&mut received);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(received, sent);
    drop(running);
    assert_eq!(upf.uplink().drops.total(), 0, "{:?}", upf.uplink());
    assert_eq!(upf.session_count(), 1);
    assert!(changes > 1000, "{changes}");
    // The difference includes frames in flight; if each change leaked a session, it would be far
    // larger.
    assert!(after < before + (8 << 20), "{before} to {after} bytes over {changes} changes");
}

/// Adds and removes 30 sessions until stopped. Returns the number of changes, and the process's
/// memory in bytes after the first 600 changes and at the end.
fn churn(upf: &Upf, stop: &AtomicBool) -> (usize, usize, usize) {
    let sessions: Vec<_> = (2..32).map(session).collect();
    let (mut changes, mut before) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let add: Vec<_> = sessions.iter().cloned().map(Operation::Add).collect();
        let remove: Vec<_> = sessions.iter().map(|it| Operation::Remove(it.seid)).collect();
        upf.apply(&add).unwrap();
        upf.apply(&remove).unwrap();
        changes += add.len() + remove.len();
        if before == 0 && changes > 600 {
            before = resident();
        }
    }
    (changes, before, resident())
}

/// Returns the resident memory of this process in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}
