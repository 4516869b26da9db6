//! Time that a cache line takes from one CPU to another and back.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use dray_port::clock;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Round trips that are timed together.
const TRIPS: u64 = 100;
/// Number of times that they are timed.
const TIMES: usize = 64;
/// Maximum duration of the measurement, on CPUs that other programs keep busy.
const PATIENCE: Duration = Duration::from_millis(100);

/// Measures how long a cache line takes from CPU `here` to CPU `there` and back, in nanoseconds.
/// Takes a few milliseconds on idle CPUs. Returns `None` if that is one CPU, or if other programs
/// keep one of them busy.
///
/// # Errors
/// If this process may not use one of the CPUs.
pub fn round_trip_ns(here: usize, there: usize) -> io::Result<Option<f64>> {
    if here == there {
        return Ok(None);
    }
    let line = CachePadded::new(AtomicU64::new(0));
    let ended = CachePadded::new(AtomicBool::new(false));
    let pin = |cpu: usize| {
        let mut only = CpuSet::new();
        only.set(cpu);
        // Affects only this thread, which ends here.
        sched_setaffinity(None, &only)
    };
    let mut times = std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            let pinned = pin(there);
            echo(&line, &ended);
            pinned
        });
        let timer = scope.spawn(|| {
            let times = pin(here).map(|()| time(&line));
            ended.store(true, Ordering::Release);
            times
        });
        let times = timer.join().map_err(|_| io::Error::other("a thread panicked"))??;
        echo.join().map_err(|_| io::Error::other("a thread panicked"))??;
        io::Result::Ok(times)
    })?;
    times.sort_unstable();
    // Times during which one of the threads did not run are longer.
    let typical = times
        .get(times.len() / 4)
        .map(|ticks| *ticks as f64 / TRIPS as f64 * 1e9 / clock::ticks_per_second() as f64);
    Ok(typical)
}

/// Returns the durations of [`TRIPS`] round trips each, in ticks.
fn time(line: &AtomicU64) -> Vec<u64> {
    let end = clock::ticks() + clock::to_ticks(PATIENCE);
    let mut times = Vec::with_capacity(TIMES);
    let mut value = 0;
    while times.len() < TIMES {
        let start = clock::ticks();
        for _ in 0..TRIPS {
            line.store(value + 1, Ordering::Release);
            value += 2;
            let mut looks = 0_u32;
            while line.load(Ordering::Acquire) != value {
                looks += 1;
                if looks.is_multiple_of(1024) && clock::ticks() > end {
                    return times;
                }
            }
        }
        times.push(clock::ticks() - start);
    }
    times
}

/// Answers each odd value with the next even one until `ended`.
///
/// The end is not a value of `line`: the timer may give up between this thread's load and store,
/// and the store would overwrite that value.
fn echo(line: &AtomicU64, ended: &AtomicBool) {
    let mut expected = 1;
    loop {
        if line.load(Ordering::Acquire) == expected {
            line.store(expected + 1, Ordering::Release);
            expected += 2;
        } else if ended.load(Ordering::Acquire) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cpu_has_no_distance() {
        assert_eq!(round_trip_ns(0, 0).unwrap(), None);
    }

    /// On busy CPUs the timer gives up while a value is unanswered.
    #[test]
    fn echo_ends_after_late_answer() {
        let (sender, done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let line = AtomicU64::new(1);
            echo(&line, &AtomicBool::new(true));
            sender.send(line.into_inner())
        });
        assert_eq!(done.recv_timeout(Duration::from_secs(20)), Ok(2));
    }

    #[test]
    fn missing_cpu_is_an_error() {
        assert!(round_trip_ns(0, CpuSet::MAX_CPU - 1).is_err());
        assert!(round_trip_ns(CpuSet::MAX_CPU - 1, 0).is_err());
    }

    #[test]
    fn line_takes_nanoseconds_between_two_cpus() {
        let all = rustix::thread::sched_getaffinity(None).unwrap();
        let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu));
        let (Some(here), Some(there)) = (cpus.next(), cpus.next()) else { return };
        // On a busy machine both threads may never run at the same time.
        if let Some(ns) = round_trip_ns(here, there).unwrap() {
            assert!((5.0..100_000.0).contains(&ns), "{ns}");
        }
    }
}
