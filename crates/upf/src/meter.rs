//! Policing: a bit rate that packets may not go beyond.
//!
//! The generic cell rate algorithm (ITU-T I.371), a token bucket that is kept as one number: the time
//! at which the bucket will be full again. A packet conforms if that is not too far away, and moves it
//! on by the time that its bytes take at the rate.

use std::time::Duration;

use dray_port::clock;

/// Binary places behind the point of ticks per byte: 400 Gb/s is a twentieth of a tick.
const PLACES: u32 = 20;
/// The time at the rate that a burst may be ahead by.
const BURST: Duration = Duration::from_millis(50);
/// A burst that may pass at any rate, in bytes: two packets of the usual MTU.
const BURST_LEAST: u64 = 3000;

/// A rate and how much of it was used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    /// Ticks per byte, with [`PLACES`].
    cost: u64,
    /// How far ahead packets may be, in ticks.
    burst: u64,
    /// When what was passed so far would all have been passed at the rate, in ticks.
    due: u64,
}

impl Meter {
    /// For `kbps` thousand bits per second, more than 0.
    pub(crate) fn new(kbps: u64) -> Self {
        let per_byte = (u128::from(clock::ticks_per_second()) * 8) << PLACES;
        let cost = (per_byte / (u128::from(kbps) * 1000)).max(1) as u64;
        let burst = clock::to_ticks(BURST).max((BURST_LEAST * cost) >> PLACES);
        Self { cost, burst, due: 0 }
    }

    /// Whether a packet may pass at the tick `now`.
    #[inline(always)]
    pub(crate) fn conforms(&self, now: u64) -> bool {
        self.due <= now + self.burst
    }

    /// Counts a packet of `bytes` that passes at the tick `now`.
    #[inline(always)]
    pub(crate) fn take(&mut self, now: u64, bytes: usize) {
        self.due = self.due.max(now) + ((bytes as u64 * self.cost) >> PLACES);
    }

    /// Goes on where `before` was, if that was for the same rate.
    pub(crate) fn go_on(&mut self, before: &Self) {
        if self.cost == before.cost {
            self.due = before.due;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offers packets of `len` bytes at twice the rate for 10 s, and says what part of the rate passes.
    fn passed(kbps: u64, len: usize) -> f64 {
        let mut meter = Meter::new(kbps);
        let start = clock::ticks();
        let bits = 2 * kbps * 1000 * 10;
        let packets = bits / (len as u64 * 8);
        let span = clock::to_ticks(Duration::from_secs(10));
        let mut octets = 0;
        for packet in 0..packets {
            let now = start + (u128::from(span) * u128::from(packet) / u128::from(packets)) as u64;
            if meter.conforms(now) {
                meter.take(now, len);
                octets += len as u64;
            }
        }
        (octets * 8) as f64 / (kbps * 10_000) as f64
    }

    #[test]
    fn passes_the_rate_and_little_more() {
        for (kbps, len) in
            [(1000, 60), (1000, 1500), (10_000, 60), (10_000, 1500), (1_000_000, 9000)]
        {
            let part = passed(kbps, len);
            assert!((0.999..1.02).contains(&part), "{kbps} kb/s of {len} bytes: {part}");
        }
    }

    #[test]
    fn extremes_do_not_overflow() {
        for kbps in [1, u64::from(u32::MAX), 1_000_000_000_000] {
            let mut meter = Meter::new(kbps);
            let now = clock::ticks();
            for _ in 0..1000 {
                if meter.conforms(now) {
                    meter.take(now, 9000);
                }
            }
            assert!(meter.due >= now);
        }
    }
}
