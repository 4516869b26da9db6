//! The measured part of a trial, and the values of counters in it.

use std::time::Duration;

use dray_traffic::Sample;

use crate::timing::Timing;

/// Maximum time by which a role's last sample may precede a moment and still count for it: other
/// programs are not sampled on the tick, and the time-stamp counter's rate is only known to a
/// millionth.
const MARGIN: Duration = Duration::from_millis(50);

/// The measured part of a trial, on the monotonic clock, in intervals.
///
/// A role checks whether a sample is due before it does anything else. So the first sample at or
/// after a moment holds the counters of that moment, however late it was taken: the role did not
/// run in between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    from_ns: u64,
    interval: Duration,
    intervals: u32,
}

impl Span {
    /// Creates the span that begins at `from_ns`.
    pub(crate) fn new(from_ns: u64, timing: &Timing) -> Self {
        let intervals = (timing.measure.as_nanos() / timing.interval.as_nanos()) as u32;
        Self { from_ns, interval: timing.interval, intervals }
    }

    /// Values of a counter at the ends of all intervals; `None` if the role ended earlier.
    fn counts(&self, samples: &[Sample], count: fn(&Sample) -> u64) -> Option<Vec<u64>> {
        let at = |moment: u64| {
            let first = samples.partition_point(|sample| sample.at_ns < moment);
            let earlier =
                || samples.last().filter(|s| s.at_ns + MARGIN.as_nanos() as u64 >= moment);
            samples.get(first).or_else(earlier).map(count)
        };
        let interval_ns = self.interval.as_nanos() as u64;
        (0..=u64::from(self.intervals)).map(|n| at(self.from_ns + n * interval_ns)).collect()
    }

    /// Counts per second: in each interval, and over the whole span.
    pub(crate) fn rates(
        &self,
        samples: &[Sample],
        count: fn(&Sample) -> u64,
    ) -> Option<(Vec<f64>, f64)> {
        let counts = self.counts(samples, count)?;
        let interval_s = self.interval.as_secs_f64();
        let rate = |from: u64, to: u64, seconds| to.saturating_sub(from) as f64 / seconds;
        let each = counts.windows(2).map(|pair| rate(pair[0], pair[1], interval_s)).collect();
        let all = interval_s * f64::from(self.intervals);
        Some((each, rate(*counts.first()?, *counts.last()?, all)))
    }

    /// Increase of a counter of nanoseconds over the span, in seconds.
    pub(crate) fn seconds(&self, samples: &[Sample], count: fn(&Sample) -> u64) -> Option<f64> {
        let counts = self.counts(samples, count)?;
        Some(counts.last()?.saturating_sub(*counts.first()?) as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Builds samples from times in milliseconds and frame counts.
    fn samples(points: &[(u64, u64)]) -> Vec<Sample> {
        let sample = |&(ms, frames): &(u64, u64)| Sample {
            at_ns: ms * MS,
            frames,
            bytes: 0,
            user_ns: frames * MS,
            system_ns: 0,
            work_ns: None,
        };
        points.iter().map(sample).collect()
    }

    fn span(from_ms: u64, measure_ms: u64) -> Span {
        Span::new(from_ms * MS, &Timing::of_ms(0, measure_ms, 100))
    }

    fn rates(span: Span, samples: &[Sample]) -> Option<(Vec<u64>, u64)> {
        let (each, all) = span.rates(samples, |sample| sample.frames)?;
        Some((each.iter().map(|rate| rate.round() as u64).collect(), all.round() as u64))
    }

    #[test]
    fn late_sample_counts_for_its_due_time() {
        let regular = samples(&[(0, 0), (100, 50), (200, 100), (300, 200), (400, 300), (500, 300)]);
        assert_eq!(rates(span(100, 300), &regular), Some((vec![500, 1000, 1000], 833)));
        // The role did not run from before 200 ms until 390 ms, then continued at once.
        let late = samples(&[(0, 0), (103, 100), (390, 150), (401, 160), (600, 900)]);
        assert_eq!(rates(span(100, 300), &late), Some((vec![500, 0, 100], 200)));
        assert_eq!(span(100, 300).seconds(&late, |sample| sample.user_ns), Some(0.06));
    }

    #[test]
    fn late_role_counts_zero_before_start() {
        let began_late = samples(&[(250, 0), (300, 100), (400, 300), (450, 300)]);
        assert_eq!(rates(span(100, 300), &began_late), Some((vec![0, 1000, 2000], 1000)));
    }

    #[test]
    fn rates_are_absent_if_role_ended_early() {
        let span = span(1000, 1000);
        assert!(rates(span, &samples(&[(900, 0), (1990, 7)])).is_some(), "small gap is tolerated");
        for wrong in [&[][..], &[(1000, 0)], &[(900, 0), (1500, 1), (1900, 2)]] {
            assert_eq!(rates(span, &samples(wrong)), None, "{wrong:?}");
        }
    }
}
