//! Rate limits of a port.
//!
//! Implements the generic cell rate algorithm (ITU-T I.371): a token bucket kept as one number, the
//! time at which everything passed so far would have passed at the rate. All workers that receive
//! from a port, or transmit to it, share that number: each batch of a port that has a rate costs
//! one compare-and-exchange, so that the port as a whole keeps its rate whatever its number of
//! queues and workers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use dray_port::{Frame, clock};

use crate::config::{Burst, FrameRate, Rate};

/// Number of fractional bits in the ticks per unit.
const PLACES: u32 = 20;
/// Number of frames that may pass at once at any rate.
const FRAMES_LEAST: u64 = 32;
/// Number of bytes that may pass at once at any rate: several of the longest frames.
const BYTES_LEAST: u64 = 65_536;

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
    /// Creates a bucket. `least` units may pass at once even if `burst` is too short for them.
    fn new(per_second: f64, least: u64, burst: Duration) -> Self {
        let cost = (clock::ticks_per_second() as f64 * f64::from(1 << PLACES) / per_second) as u64;
        let cost = cost.max(1);
        // Rounded up, so that all of them fit.
        let depth = clock::to_ticks(burst).max(((least * cost) >> PLACES) + 1);
        Self { cost, depth, due: AtomicU64::new(0) }
    }

    /// Creates a bucket of frames.
    pub(super) fn of_frames(rate: FrameRate, burst: Burst) -> Self {
        Self::new(rate.per_second() as f64, FRAMES_LEAST, burst.time())
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

    /// Returns units that were taken and not used.
    fn give_back(&self, units: u64) {
        self.due.fetch_sub(self.ticks(units), Relaxed);
    }

    fn ticks(&self, units: u64) -> u64 {
        (units * self.cost) >> PLACES
    }
}

/// Rate limit of one direction of a port.
#[derive(Debug)]
pub(super) struct Police {
    frames: Option<Bucket>,
    bytes: Option<Bucket>,
}

impl Police {
    pub(super) fn new(rate: Rate, burst: Burst) -> Self {
        let bytes = |bits: u64| Bucket::new(bits as f64 / 8.0, BYTES_LEAST, burst.time());
        Self {
            frames: rate.frames.map(|rate| Bucket::of_frames(rate, burst)),
            bytes: rate.bits.map(|rate| bytes(rate.per_second())),
        }
    }

    /// Returns how many of `frames`, from the first on, may pass now; they are counted as passed.
    pub(super) fn pass(&self, frames: &[Frame<'_>]) -> usize {
        self.pass_at(frames, clock::ticks())
    }

    fn pass_at(&self, frames: &[Frame<'_>], now: u64) -> usize {
        let wanted = frames.len() as u64;
        let count = self.frames.as_ref().map_or(wanted, |bucket| bucket.take(wanted, now));
        let Some(bytes) = &self.bytes else { return count as usize };
        let frames = &frames[..count as usize];
        let taken = bytes.take(super::port::bytes(frames), now);
        let (mut passed, mut used) = (0, 0);
        for frame in frames {
            let len = frame.len() as u64;
            if used + len > taken {
                break;
            }
            used += len;
            passed += 1;
        }
        bytes.give_back(taken - used);
        if let Some(bucket) = &self.frames {
            bucket.give_back(count - passed as u64);
        }
        passed
    }

    /// Takes back the count of `frames` that were allowed to pass and did not.
    #[cold]
    pub(super) fn give_back(&self, frames: &[Frame<'_>]) {
        if let Some(bucket) = &self.frames {
            bucket.give_back(frames.len() as u64);
        }
        if let Some(bucket) = &self.bytes {
            bucket.give_back(super::port::bytes(frames));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn police(rate: &str, burst: &str) -> Police {
        Police::new(rate.parse().unwrap(), burst.parse().unwrap())
    }

    /// Offers batches of `len` bytes at twice the rate for a second; returns how many frames pass.
    fn passed(police: &Police, batch: usize, len: usize, per_second: u64) -> u64 {
        let bytes = vec![0; len];
        let frames = vec![Frame::from(&bytes[..]); batch];
        let start = clock::ticks();
        let batches = 2 * per_second / batch as u64;
        let mut passed = 0;
        for number in 0..batches {
            let span = u128::from(clock::ticks_per_second());
            let now = start + (span * u128::from(number) / u128::from(batches)) as u64;
            passed += police.pass_at(&frames, now) as u64;
        }
        passed
    }

    #[test]
    fn policer_passes_rate_plus_one_burst() {
        for (rate, burst, batch, len, per_second, ahead) in [
            ("100kpps", "1ms", 1, 60, 100_000, 100),
            ("100kpps", "1ms", 64, 60, 100_000, 100),
            ("1Mpps", "10ms", 256, 60, 1_000_000, 10_000),
            ("80Mbit", "100ms", 16, 1000, 10_000, 1000),
            ("80Mbit", "1us", 4, 1000, 10_000, 65),
            ("100kpps", "1us", 1, 60, 100_000, 32),
            // The lower limit applies.
            ("80Mbit+1Mpps", "100ms", 16, 1000, 10_000, 1000),
            ("80Gbit+10kpps", "100ms", 16, 1000, 10_000, 1000),
        ] {
            let passed = passed(&police(rate, burst), batch, len, per_second);
            let expected = per_second + ahead;
            let error = passed.abs_diff(expected) as f64 / expected as f64;
            assert!(error < 0.002, "{rate} {burst} {batch}: {passed}, not {expected}");
        }
    }

    #[test]
    fn frames_given_back_can_pass_again() {
        let frames = [Frame::from(&[0; 1000][..]); 70];
        for rate in ["1kpps", "1Mbit", "1Mbit+1kpps"] {
            let police = police(rate, "1us");
            let now = clock::ticks();
            let first = police.pass_at(&frames, now);
            assert!((32..=65).contains(&first), "{rate}: {first}");
            police.give_back(&frames[..first]);
            // Rounding loses a tick or two.
            let again = police.pass_at(&frames, now + 1000);
            assert!(again + 1 >= first, "{rate}: {again} after {first}");
            assert_eq!(police.pass_at(&frames, now + 1000), 0, "{rate}");
        }
    }

    /// Several workers together get what one would get.
    #[test]
    fn workers_share_one_bucket() {
        let police = police("1kpps", "1s");
        let now = clock::ticks();
        let passed: usize = std::thread::scope(|scope| {
            let worker = || {
                let frames = [Frame::from(&[0; 60][..]); 3];
                (0..500).map(|_| police.pass_at(&frames, now)).sum::<usize>()
            };
            let workers: Vec<_> = (0..3).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert!((999..=1001).contains(&passed), "{passed}");
    }

    #[test]
    fn extreme_rates_do_not_overflow() {
        let frames = [Frame::from(&[0; 9018][..]); 256];
        for rate in ["1pps", "1Gpps", "1kbit", "1000Gbit"] {
            for burst in ["1us", "10s"] {
                let police = police(rate, burst);
                let now = clock::ticks();
                let passed: usize = (0..100).map(|_| police.pass_at(&frames, now)).sum();
                assert!(passed >= 7, "{rate} {burst}: {passed}");
                let later = now + 3600 * clock::ticks_per_second();
                assert!(police.pass_at(&frames, later) >= 7);
            }
        }
    }
}
