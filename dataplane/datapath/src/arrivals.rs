//! Rate of what a thread received or sent, independent of how long it waited before and after.

use dray_port::clock;
use serde::{Deserialize, Serialize};

/// Frames counted after the first batch, and the time from the first batch to the last one.
///
/// The first batch only starts the clock: `n` frames that arrive one by one are `n - 1` frames
/// here. A thread that counted one batch, or none, has no rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// Frames; streams have none.
    pub frames: u64,
    /// Bytes of these frames, or of streams.
    pub bytes: u64,
    /// Time in nanoseconds.
    pub ns: u64,
}

impl Arrivals {
    /// Returns the rate in frames per second.
    pub fn frames_per_second(&self) -> Option<f64> {
        self.per_second(self.frames)
    }

    /// Returns the rate in bits per second.
    pub fn bits_per_second(&self) -> Option<f64> {
        self.per_second(self.bytes).map(|bytes| bytes * 8.0)
    }

    fn per_second(&self, count: u64) -> Option<f64> {
        (self.ns > 0 && count > 0).then(|| count as f64 * 1e9 / self.ns as f64)
    }
}

/// Notes when a thread's counters grow.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArrivalClock {
    /// Tick of the first batch, and the counters after it.
    first: Option<(u64, u64, u64)>,
    last: u64,
    frames: u64,
    bytes: u64,
}

impl ArrivalClock {
    /// Called with the counters after each round, which ended at the tick `now`.
    #[inline]
    pub fn note(&mut self, now: u64, frames: u64, bytes: u64) {
        if bytes != self.bytes {
            self.first.get_or_insert((now, frames, bytes));
            (self.last, self.frames, self.bytes) = (now, frames, bytes);
        }
    }

    /// Returns what was noted so far.
    pub fn arrivals(&self) -> Arrivals {
        let Some((tick, frames, bytes)) = self.first else { return Arrivals::default() };
        Arrivals {
            frames: self.frames - frames,
            bytes: self.bytes - bytes,
            ns: clock::nanoseconds(self.last - tick),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_excludes_time_before_first_and_after_last_frame() {
        let mut noted = ArrivalClock::default();
        let ms = clock::ticks_per_second() / 1000;
        noted.note(0, 0, 0);
        for (at, frames) in [(5, 0), (1000, 1), (1001, 2), (1050, 50), (1100, 101), (9000, 101)] {
            noted.note(at * ms, frames, frames * 64);
        }
        let arrivals = noted.arrivals();
        assert_eq!((arrivals.frames, arrivals.bytes), (100, 6400));
        assert!(arrivals.frames_per_second().is_some_and(|rate| (rate - 1000.0).abs() < 1.0));
        assert!(arrivals.bits_per_second().is_some_and(|rate| (rate - 512e3).abs() < 600.0));
    }

    #[test]
    fn one_batch_has_no_rate() {
        let mut noted = ArrivalClock::default();
        assert_eq!(noted.arrivals().frames_per_second(), None);
        noted.note(7, 32, 2048);
        noted.note(70_000, 32, 2048);
        assert_eq!(noted.arrivals(), Arrivals::default());
        assert_eq!(noted.arrivals().bits_per_second(), None);
    }
}
