//! Frames that pass from one port to another while something disturbs the switch between them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use dray_port::{Frame, Port, Receive, Transmit, scratch};

use crate::ends::{self, Frames};

/// Number of frames that are sent on one queue, before as many on the next.
const BATCH: u32 = 64;
/// Pause between two looks at a queue.
const PAUSE: Duration = Duration::from_micros(20);
/// Much longer than the switch is away.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time after which no frame is on its way any more.
const SILENCE: Duration = Duration::from_millis(300);

/// Numbers of frames.
#[derive(Debug)]
pub(crate) struct Passed {
    pub(crate) sent: u64,
    pub(crate) lost: u64,
}

/// Returns the value of `--cpus` for `workers` workers, or fewer on a machine with fewer CPUs.
pub(crate) fn cpus(workers: usize) -> String {
    let cpus: Vec<_> = ends::cpus().iter().take(workers).map(u32::to_string).collect();
    cpus.join(",")
}

/// Sends numbered frames from one port to another, over all its queues in turn, while `disturb`
/// runs, which gets the longest pause in microseconds. None may arrive twice, changed, or after a
/// later one of its queue.
pub(crate) fn exchange(
    (from, to): (&mut Port, &mut Port),
    disturb: impl FnOnce(&AtomicU64),
) -> Passed {
    let [is_enough, is_all] = [AtomicBool::new(false), AtomicBool::new(false)];
    let (longest, frames) = (AtomicU64::new(0), Frames::between(1, 2));
    let (tx, rx) = (&mut from.tx, &mut to.rx);
    let queues = tx.len() as u32;
    scope(|scope| {
        let sends = scope.spawn(|| send(tx, &frames, &is_enough));
        let receives = scope.spawn(|| receive(rx, queues, &frames, &is_all, &longest));
        // Both threads end if this one fails.
        let (all, enough) = (Sets(&is_all), Sets(&is_enough));
        disturb(&longest);
        drop(enough);
        let sent = sends.join().expect("the sender");
        drop(all);
        let received = receives.join().expect("the receiver");
        Passed { sent, lost: sent - received }
    })
}

/// Exchanges frames, all of which must arrive. Returns their number.
pub(crate) fn exchange_all(ports: (&mut Port, &mut Port), disturb: impl FnOnce(&AtomicU64)) -> u64 {
    let passed = exchange(ports, disturb);
    assert_eq!(passed.lost, 0, "{passed:?}");
    passed.sent
}

/// Sets a flag when it is dropped.
struct Sets<'a>(&'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Returns the queue that a frame is sent on.
fn queue_of(number: u32, queues: u32) -> usize {
    (number / BATCH % queues) as usize
}

/// Sends until it is enough; returns the number of frames.
fn send(tx: &mut [Box<dyn Transmit>], frames: &Frames, is_enough: &AtomicBool) -> u64 {
    let (mut number, queues) = (0, tx.len() as u32);
    while !is_enough.load(Relaxed) {
        let tx = &mut tx[queue_of(number, queues)];
        let bytes: Vec<_> = (number..number + BATCH).map(|number| frames.make(number)).collect();
        let batch: Vec<_> = bytes.iter().map(|bytes| Frame::from(&bytes[..])).collect();
        let (mut taken, began) = (0, Instant::now());
        while taken < batch.len() {
            taken += tx.transmit(&batch[taken..]).unwrap();
            let is_late = is_enough.load(Relaxed) && began.elapsed() > PATIENCE;
            assert!(!is_late, "the switch takes no frame after {number}");
            sleep(PAUSE);
        }
        number += BATCH;
    }
    u64::from(number)
}

/// Receives until all have been sent; returns the number of frames.
fn receive(
    rx: &mut [Box<dyn Receive>],
    queues: u32,
    frames: &Frames,
    is_all: &AtomicBool,
    longest: &AtomicU64,
) -> u64 {
    let (mut received, mut last) = (0, Instant::now());
    let mut next = vec![0; queues as usize];
    let mut room = scratch();
    loop {
        let was_all = is_all.load(Relaxed);
        let before = received;
        let take = &mut |lent: &[Frame<'_>]| {
            for frame in lent {
                let bytes = frame.bytes(&mut room);
                let number = u32::from_be_bytes(bytes[18..22].try_into().unwrap());
                let next = &mut next[queue_of(number, queues)];
                assert!(number >= *next, "frame {number} after {next}");
                assert_eq!(bytes, frames.make(number), "frame {number}");
                *next = number + 1;
                received += 1;
            }
            lent.len()
        };
        for rx in &mut *rx {
            rx.receive(take).unwrap();
        }
        if received > before {
            longest.fetch_max(last.elapsed().as_micros() as u64, Relaxed);
            last = Instant::now();
        } else if was_all && last.elapsed() > SILENCE {
            return received;
        }
        sleep(PAUSE);
    }
}

/// Passes frames both ways, once each port knows of the other.
pub(crate) fn pass_both_ways(a: &mut Port, b: &mut Port) {
    let there = Frames::between(1, 2);
    let back = there.clone().swapped();
    ends::reach((&mut a.tx, &mut b.rx), &there);
    ends::reach((&mut b.tx, &mut a.rx), &back);
    ends::pass((&mut a.tx, &mut b.rx), &there, &there, 300);
    ends::pass((&mut b.tx, &mut a.rx), &back, &back, 300);
}

/// Returns true if the port has had the same connection since it was opened.
pub(crate) fn never_reconnected(port: &Port) -> bool {
    let status = port.link.as_ref().expect("a peer").status();
    status.ends.is_empty() && status.last_end.is_none()
}
