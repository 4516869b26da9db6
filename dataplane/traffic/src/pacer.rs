//! Pacing: when the next burst is due.

use std::time::Duration;

use dray_port::clock;

/// Schedule of frames at a constant rate, based on the time-stamp counter.
///
/// The schedule is absolute: a late sender sends at once until it has caught up, so the rate over a
/// trial is exact, and a frame's stamp says when it was due, not when it was sent.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    start: u64,
    ticks_per_frame: f64,
}

impl Pacer {
    /// Creates a schedule of `rate` frames per second that starts at the tick `start`.
    pub fn new(start: u64, rate: f64) -> Self {
        Self { start, ticks_per_frame: clock::ticks_per_second() as f64 / rate }
    }

    /// Returns the tick at which frame number `index` (from zero) is due.
    #[inline]
    pub fn due(&self, index: u64) -> u64 {
        self.start.saturating_add((index as f64 * self.ticks_per_frame) as u64)
    }

    /// Returns the number of frames that are due by the tick `now`.
    #[inline]
    pub fn count(&self, now: u64) -> u64 {
        match now.checked_sub(self.start) {
            Some(since) => (since as f64 / self.ticks_per_frame) as u64 + 1,
            None => 0,
        }
    }
}

/// Waits until the tick `due`, but at most `limit` from now, so that a slow schedule does not delay
/// the end of a role. Returns the tick at which it stopped waiting.
///
/// `yielding`: another role shares this CPU, so yield to it meanwhile.
pub(crate) fn wait_until(due: u64, limit: Duration, yielding: bool) -> u64 {
    let mut now = clock::ticks();
    let until = due.min(now + clock::to_ticks(limit));
    while now < until {
        if yielding {
            let gap_us = (until - now) * 1_000_000 / clock::ticks_per_second();
            // A sleep may last some 50 us longer than asked for (prctl(2), PR_SET_TIMERSLACK).
            match gap_us.checked_sub(60) {
                Some(us) if us > 0 => std::thread::sleep(Duration::from_micros(us)),
                _ => std::thread::yield_now(),
            }
        } else {
            std::hint::spin_loop();
        }
        now = clock::ticks();
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pacer_spreads_frames_evenly() {
        let second = clock::ticks_per_second();
        let pacer = Pacer::new(1000, 100.0);
        assert_eq!(pacer.due(0), 1000);
        assert!((pacer.due(50) - 1000).abs_diff(second / 2) <= 1);
        // A day at 100 Mpps is still exact to a microsecond.
        for index in [0, 1, 49, 50, 99_999] {
            // Rounding loses about a tick.
            assert_eq!(pacer.count(pacer.due(index) + 2), index + 1);
            assert_eq!(pacer.count(pacer.due(index + 1) - 2), index + 1);
        }
        assert_eq!(pacer.count(999), 0);
        let fast = Pacer::new(0, 1e8);
        let day = 86_400;
        assert!(fast.due(day * 100_000_000).abs_diff(day * second) < second / 1_000_000);
    }

    #[test]
    fn pacer_waits_at_most_the_limit() {
        for yielding in [false, true] {
            let before = clock::ticks();
            let now = wait_until(u64::MAX, Duration::from_millis(2), yielding);
            assert!(now - before >= clock::to_ticks(Duration::from_millis(2)));
            let late = wait_until(0, Duration::from_secs(1), yielding);
            assert!(
                late - now < clock::to_ticks(Duration::from_secs(1)),
                "what is due is not waited for"
            );
        }
    }
}
