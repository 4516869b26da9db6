//! The clock that times frames, the time-stamp counter: the cost of a reading and its error.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use dray_lab::Placement;
use dray_port::clock::{self, ticks};
use dray_results::{ClockFacts, Offset};
use rustix::thread::{CpuSet, sched_setaffinity};

const READS: u64 = 100_000;
/// Round trips between two CPUs: enough that some are undisturbed.
const EXCHANGES: usize = 10_000;
/// Long compared with the error of the clock's own rate measurement.
const SPAN: Duration = Duration::from_millis(200);

/// Measures the clock on the CPUs that `placement` gives to senders and receivers. Takes a
/// quarter of a second.
pub(crate) fn measure(placement: &Placement) -> ClockFacts {
    let apart = placement.assign(2);
    let (_, around_switch) = placement.assign_around_switch(2);
    let mut pairs: Vec<[usize; 2]> = Vec::new();
    for pair in [apart, around_switch] {
        let pair = [pair[0].id, pair[1].id];
        if pair[0] != pair[1] && !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    let (read_ns, step_ns) = reading();
    let offsets = pairs.into_iter().map(offset).collect();
    ClockFacts { read_ns, step_ns, rate_ppm: clock::rate_error(SPAN) * 1e6, offsets }
}

/// Duration of a reading and smallest difference between two, in nanoseconds.
fn reading() -> (f64, f64) {
    let (start, mut step) = (ticks(), u64::MAX);
    let mut last = start;
    for _ in 0..READS {
        let now = ticks();
        step = step.min((now - last).max(1));
        last = now;
    }
    let ns = 1e9 / clock::ticks_per_second() as f64;
    ((last - start) as f64 * ns / READS as f64, step as f64 * ns)
}

/// Exchanges messages between two CPUs. At best, a message takes the same time both ways, so in the
/// quickest exchange, the apparent time of one way minus half the round trip is the counters'
/// offset.
fn offset(cpus: [usize; 2]) -> Offset {
    /// Occupies a cache line of its own.
    #[derive(Default)]
    #[repr(align(128))]
    struct Slot(AtomicU64);
    let (ping, pong) = (Slot::default(), Slot::default());
    let quickest = thread::scope(|scope| {
        scope.spawn(|| {
            pin(cpus[1]);
            let mut last = 0;
            for _ in 0..EXCHANGES {
                last = wait_for_other(&ping.0, last);
                pong.0.store(ticks(), Ordering::Release);
            }
        });
        let asking = scope.spawn(|| {
            pin(cpus[0]);
            let mut last = 0;
            let exchange = |_| {
                let sent = ticks();
                ping.0.store(sent, Ordering::Release);
                last = wait_for_other(&pong.0, last);
                (ticks() - sent, sent, last)
            };
            (0..EXCHANGES).map(exchange).min()
        });
        asking.join().unwrap_or_default()
    });
    let (took, sent, there) = quickest.unwrap_or_default();
    let ns = 1e9 / clock::ticks_per_second() as f64;
    let half = took as f64 / 2.0;
    let ahead = there.wrapping_sub(sent) as i64 as f64 - half;
    Offset { cpus, ahead_ns: ahead * ns, within_ns: half * ns }
}

/// Waits until the value of `slot` differs from `last`, and returns it.
fn wait_for_other(slot: &AtomicU64, last: u64) -> u64 {
    loop {
        match slot.load(Ordering::Acquire) {
            same if same == last => std::hint::spin_loop(),
            other => return other,
        }
    }
}

/// Pins this thread to `cpu`. Failure is ignored: the process then has no two CPUs, and the result
/// is no worse.
fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = sched_setaffinity(None, &set);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_cost_and_offsets_are_plausible() {
        let placement = Placement::of_this_process();
        let facts = measure(&placement);
        assert!(facts.read_ns > 0.0 && facts.read_ns < 1e6, "{facts:?}");
        assert!(facts.step_ns > 0.0 && facts.step_ns <= facts.read_ns * 1.01, "{facts:?}");
        let cpus = placement.assign(2);
        assert_eq!(facts.offsets.is_empty(), cpus[0].id == cpus[1].id, "{facts:?}");
        for offset in &facts.offsets {
            // A message must arrive after it was sent.
            assert!(offset.within_ns > 0.0, "{offset:?}");
            assert!(offset.ahead_ns.abs() <= offset.within_ns, "{offset:?}");
        }
        assert!(facts.error_ns() >= facts.read_ns);
    }
}
