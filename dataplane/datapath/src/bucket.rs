//! Token buckets.
//!
//! Implements the generic cell rate algorithm (ITU-T I.371): a token bucket kept as one number,
//! `due`, the tick at which everything passed so far would have passed at the rate. All threads
//! that share the number share the rate. From `due` also follows when a unit that exceeds the rate
//! may pass.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use dray_port::clock;

/// Number of fractional bits in the ticks per unit: a byte at 400 Gb/s is a twentieth of a tick.
const PLACES: u32 = 20;

/// Sharing of a number among data threads. A shared number is updated atomically, which costs about
/// as much as the rest of a packet's accounting; another one with plain loads and stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Only one thread writes.
    Alone,
    /// Several threads write.
    Shared,
}

/// A rate in units (bytes or frames) per second, and the time that passed units may be ahead of it.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Ticks per unit, with `PLACES` fractional bits.
    pub cost: u64,
    /// Maximum time that the passed units may be ahead of the rate, in ticks.
    pub depth: u64,
}

impl Limit {
    /// Creates a limit; `burst` is the size of a burst as its duration at the rate.
    pub fn new(per_second: f64, burst: Duration) -> Self {
        let cost = (clock::ticks_per_second() as f64 * f64::from(1 << PLACES) / per_second) as u64;
        Self { cost: cost.max(1), depth: clock::to_ticks(burst) }
    }

    /// Raises the burst to at least `units`.
    #[must_use]
    pub fn at_least(self, units: u64) -> Self {
        // Rounded up, so that all of them fit.
        Self { depth: self.depth.max(self.ticks(units) + 1), ..self }
    }

    /// Returns the time that `units` take at the rate, in ticks.
    #[inline(always)]
    pub fn ticks(self, units: u64) -> u64 {
        (units * self.cost) >> PLACES
    }

    /// Returns the units that pass in `ticks`.
    pub fn units(self, ticks: u64) -> u64 {
        let units = (u128::from(ticks) << PLACES).div_euclid(self.cost.into());
        units.try_into().unwrap_or(u64::MAX)
    }

    /// Reserves `units` at the tick `now`, unless they would have to wait longer than `patience`,
    /// which is called only if they have to wait. Returns the tick from which they may pass, which
    /// may be before `now`. More units than a burst pass when nothing is ahead of the rate.
    #[inline(always)]
    pub fn reserve(
        self,
        (due, sharing): (&AtomicU64, Sharing),
        units: u64,
        now: u64,
        patience: impl Fn() -> u64,
    ) -> Option<u64> {
        let ticks = self.ticks(units);
        let ahead = self.depth.saturating_sub(ticks);
        let may = |due: u64| due <= now + ahead || due - now - ahead <= patience();
        let before = match sharing {
            Sharing::Alone => {
                let before = due.load(Relaxed);
                if !may(before) {
                    return None;
                }
                due.store(before.max(now) + ticks, Relaxed);
                before
            }
            Sharing::Shared => {
                let next = |due: u64| may(due).then(|| due.max(now) + ticks);
                due.fetch_update(Relaxed, Relaxed, next).ok()?
            }
        };
        Some(before.saturating_sub(ahead))
    }

    /// Returns reserved `units` that do not pass.
    pub fn refund(self, due: &AtomicU64, units: u64) {
        due.fetch_sub(self.ticks(units), Relaxed);
    }
}

/// A token bucket that several threads share.
#[derive(Debug)]
pub struct Bucket {
    limit: Limit,
    due: AtomicU64,
}

impl Bucket {
    /// Creates a full bucket.
    pub fn new(limit: Limit) -> Self {
        Self { limit, due: AtomicU64::new(0) }
    }

    /// Returns the bucket's limit.
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// Takes up to `wanted` units at the tick `now`; returns how many were available.
    pub fn take(&self, wanted: u64, now: u64) -> u64 {
        let Limit { cost, depth } = self.limit;
        let mut due = self.due.load(Relaxed);
        loop {
            let start = due.max(now);
            let room = (now + depth).saturating_sub(start);
            let taken = wanted.min((room << PLACES) / cost);
            let next = start + self.limit.ticks(taken);
            match self.due.compare_exchange_weak(due, next, Relaxed, Relaxed) {
                Ok(_) => return taken,
                Err(other) => due = other,
            }
        }
    }

    /// See [`Limit::reserve`].
    #[inline]
    pub fn reserve(&self, units: u64, now: u64, patience: u64) -> Option<u64> {
        self.limit.reserve((&self.due, Sharing::Shared), units, now, || patience)
    }

    /// See [`Limit::refund`].
    pub fn refund(&self, units: u64) {
        self.limit.refund(&self.due, units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(per_second: f64, burst: Duration) -> Bucket {
        Bucket::new(Limit::new(per_second, burst))
    }

    #[test]
    fn taken_units_keep_rate_plus_one_burst() {
        for (burst, batch, per_second, ahead) in [
            (1000, 1, 100_000, 100),
            (1000, 64, 100_000, 100),
            (10_000, 256, 1_000_000, 10_000),
            (1, 1, 100_000, 32),
        ] {
            let limit = Limit::new(per_second as f64, Duration::from_micros(burst));
            let bucket = Bucket::new(limit.at_least(32));
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
            assert!(error < 0.002, "{per_second} {burst} {batch}: {passed}, not {expected}");
        }
    }

    /// Several threads together get what one would get.
    #[test]
    fn threads_share_one_bucket() {
        let bucket = bucket(1000.0, Duration::from_secs(1));
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
            let bucket = bucket(rate, Duration::from_millis(burst));
            let mut random = 1_u64;
            let mut draw = |below: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) % below
            };
            let start = clock::ticks();
            let (mut now, mut sent) = (start, Vec::new());
            while now - start < 3 * second {
                // Now and then silence.
                let pause =
                    if draw(500) == 0 { second / 5 } else { bucket.limit().ticks(2 * longest) };
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
            let bucket = bucket(1.25e6, Duration::from_millis(10));
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
    fn refunded_units_can_pass_again() {
        let bucket = bucket(1e6, Duration::from_millis(1));
        let now = clock::ticks();
        assert!(bucket.reserve(1000, now, 0).is_some_and(|at| at <= now));
        assert_eq!(bucket.reserve(1000, now, 0), None);
        bucket.refund(1000);
        assert!(bucket.reserve(1000, now, 0).is_some_and(|at| at <= now));
    }

    #[test]
    fn extreme_rates_do_not_overflow() {
        for (rate, most) in [(1.0, 1), (1e9, 1), (125.0, 65_600), (1.25e11, 65_600)] {
            for burst in [Duration::from_micros(1), Duration::from_secs(10)] {
                let bucket = bucket(rate, burst);
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
