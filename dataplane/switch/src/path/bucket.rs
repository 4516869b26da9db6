//! Token buckets.
//!
//! Implements the generic cell rate algorithm (ITU-T I.371): a token bucket kept as one number, the
//! time at which everything passed so far would have passed at the rate. All workers that receive
//! from a port, or transmit to it, share that number, so that the port as a whole keeps its rate
//! whatever its number of queues and workers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use dray_port::clock;

use crate::config::{Burst, FrameRate};

/// Number of fractional bits in the ticks per unit.
const PLACES: u32 = 20;
/// Number of frames that a `storm` limit lets pass at once at any rate.
const FRAMES_LEAST: u64 = 32;

/// Token bucket for a rate in units, frames or bytes, per second.
#[derive(Debug)]
pub(super) struct Bucket {
    /// Ticks per unit, with [`PLACES`] fractional bits.
    cost: u64,
    /// How far ahead of the rate the passed units may be, in ticks.
    depth: u64,
    /// Time at which all passed units would have passed at the rate, in ticks.
    due: AtomicU64,
}

impl Bucket {
    pub(super) fn new(per_second: f64, burst: Duration) -> Self {
        let cost = (clock::ticks_per_second() as f64 * f64::from(1 << PLACES) / per_second) as u64;
        Self { cost: cost.max(1), depth: clock::to_ticks(burst), due: AtomicU64::new(0) }
    }

    /// Creates a bucket for a `storm` limit.
    pub(super) fn of_storm(rate: FrameRate, burst: Burst) -> Self {
        let bucket = Self::new(rate.per_second() as f64, burst.time());
        // Rounded up, so that all of them fit.
        let least = bucket.ticks(FRAMES_LEAST) + 1;
        Self { depth: bucket.depth.max(least), ..bucket }
    }

    /// Takes up to `wanted` units at the tick `now`; returns how many were available.
    pub(super) fn take(&self, wanted: u64, now: u64) -> u64 {
        let mut due = self.due.load(Relaxed);
        loop {
            let start = due.max(now);
            let room = (now + self.depth).saturating_sub(start);
            let taken = wanted.min((room << PLACES) / self.cost);
            let next = start + self.ticks(taken);
            match self.due.compare_exchange_weak(due, next, Relaxed, Relaxed) {
                Ok(_) => return taken,
                Err(other) => due = other,
            }
        }
    }

    /// Takes `units` that may pass later; returns the tick from which they may, at most `patience`
    /// after `now`. If they would have to wait longer, nothing is taken. More units than the bucket
    /// holds pass when it is full.
    #[inline]
    pub(super) fn reserve(&self, units: u64, now: u64, patience: u64) -> Option<u64> {
        let ticks = self.ticks(units);
        let ahead = self.depth.saturating_sub(ticks);
        let latest = now + ahead + patience;
        let next = |due: u64| (due <= latest).then(|| due.max(now) + ticks);
        let due = self.due.fetch_update(Relaxed, Relaxed, next).ok()?;
        Some(due.saturating_sub(ahead))
    }

    /// Returns units that were taken and not used.
    pub(super) fn give_back(&self, units: u64) {
        self.due.fetch_sub(self.ticks(units), Relaxed);
    }

    /// Returns the time that `units` take at the rate, in ticks.
    #[inline]
    pub(super) fn ticks(&self, units: u64) -> u64 {
        (units * self.cost) >> PLACES
    }

    /// Returns the units that pass in so many ticks.
    pub(super) fn units(&self, ticks: u64) -> u64 {
        (u128::from(ticks) << PLACES).div_euclid(self.cost.into()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storm(rate: &str, burst: &str) -> Bucket {
        Bucket::of_storm(rate.parse().unwrap(), burst.parse().unwrap())
    }

    #[test]
    fn storm_passes_rate_plus_one_burst() {
        for (rate, burst, batch, per_second, ahead) in [
            ("100kpps", "1ms", 1, 100_000, 100),
            ("100kpps", "1ms", 64, 100_000, 100),
            ("1Mpps", "10ms", 256, 1_000_000, 10_000),
            ("100kpps", "1us", 1, 100_000, 32),
        ] {
            let bucket = storm(rate, burst);
            let start = clock::ticks();
            let batches = 2 * per_second / batch;
            let mut passed = 0;
            for number in 0..batches {
                let span = u128::from(clock::ticks_per_second());
                let now = start + (span * u128::from(number) / u128::from(batches)) as u64;
                passed += bucket.take(batch, now);
            }
            let expected = per_second + ahead;
            let error = passed.abs_diff(expected) as f64 / expected as f64;
            assert!(error < 0.002, "{rate} {burst} {batch}: {passed}, not {expected}");
        }
    }

    /// Several workers together get what one would get.
    #[test]
    fn workers_share_one_bucket() {
        let bucket = storm("1kpps", "1s");
        let now = clock::ticks();
        let passed: u64 = std::thread::scope(|scope| {
            let worker = || (0..500).map(|_| bucket.take(3, now)).sum::<u64>();
            let workers: Vec<_> = (0..3).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert!((999..=1001).contains(&passed), "{passed}");
    }

    /// Offers frames of changing lengths at changing times; in no window do more pass than the rate
    /// and one burst, and a bucket that is always asked passes its rate.
    #[test]
    fn reserved_bytes_keep_rate_in_every_window() {
        let second = clock::ticks_per_second();
        for (rate, burst, longest) in [
            (1e5, 10, 1514),
            (1.25e6, 10, 9018),
            (1.25e6, 10, 65_226),
            (1.25e7, 1, 65_226),
            (1.25e8, 50, 65_226),
            (1.25e8, 1000, 1514),
        ] {
            let bucket = Bucket::new(rate, Duration::from_millis(burst));
            let mut random = 1_u64;
            let mut draw = |below: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) % below
            };
            let start = clock::ticks();
            let (mut now, mut sent) = (start, Vec::new());
            while now - start < 3 * second {
                // Now and then silence.
                let pause = if draw(500) == 0 { second / 5 } else { bucket.ticks(2 * longest) };
                now += draw(pause);
                for _ in 0..draw(8) {
                    let bytes = 14 + draw(longest - 13);
                    if let Some(at) = bucket.reserve(bytes, now, second / 40) {
                        assert!(at <= now + second / 40);
                        assert!(sent.last().is_none_or(|(last, _)| at.max(now) >= *last));
                        sent.push((at.max(now), bytes));
                    }
                }
            }
            assert!(sent.len() > 50, "{}", sent.len());
            let most = (rate * burst as f64 / 1000.0).max(longest as f64);
            // Long windows from each frame on, and short ones.
            for from in (0..sent.len()).step_by(1 + sent.len() / 400) {
                let mut bytes = 0;
                for (at, len) in &sent[from..] {
                    bytes += len;
                    let window = (at - sent[from].0) as f64 / second as f64;
                    let allowed = rate * window + most;
                    // Ticks are whole.
                    assert!(bytes as f64 <= allowed * 1.0001 + 1.0, "{rate} {bytes} {allowed}");
                }
            }
        }
    }

    #[test]
    fn reserve_passes_the_whole_rate() {
        let second = clock::ticks_per_second();
        for len in [60, 1514, 65_226] {
            let bucket = Bucket::new(1.25e6, Duration::from_millis(10));
            let start = clock::ticks();
            let mut bytes = 0;
            for now in (start..start + 10 * second).step_by(second as usize / 1000) {
                while bucket.reserve(len, now, second / 40).is_some() {
                    bytes += len;
                }
            }
            // And what waits in the end.
            let part = bytes as f64 / 1.25e7;
            assert!((0.999..1.009).contains(&part), "{len}: {part}");
        }
    }

    #[test]
    fn units_given_back_can_pass_again() {
        let bucket = Bucket::new(1e6, Duration::from_millis(1));
        let now = clock::ticks();
        assert!(bucket.reserve(1000, now, 0).is_some_and(|at| at <= now));
        assert_eq!(bucket.reserve(1000, now, 0), None);
        bucket.give_back(1000);
        assert!(bucket.reserve(1000, now, 0).is_some_and(|at| at <= now));
    }

    #[test]
    fn extreme_rates_do_not_overflow() {
        for (rate, most) in [(1.0, 1), (1e9, 1), (125.0, 65_600), (1.25e11, 65_600)] {
            for burst in [Duration::from_micros(1), Duration::from_secs(10)] {
                let bucket = Bucket::new(rate, burst);
                let now = clock::ticks();
                for _ in 0..100 {
                    bucket.reserve(most, now, clock::to_ticks(Duration::from_millis(25)));
                    bucket.take(most.min(256), now);
                }
                let later = now + 3600 * 1000 * clock::ticks_per_second();
                assert!(bucket.reserve(most, later, 0).is_some(), "{rate} {burst:?}");
            }
        }
    }
}
