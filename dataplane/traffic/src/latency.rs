//! Histograms of latency.

use std::time::Duration;

use dray_results::Percentiles;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Times in nanoseconds, each kept to three significant digits.
///
/// Histograms of several trials can be added up, unlike their percentiles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Latency(Box<Histogram<u64>>);

impl Latency {
    /// Longest time that the histogram tells from longer ones.
    const MAX: Duration = Duration::from_secs(60);
    /// With fewer times, only their maximum is known of the highest 0.01 %.
    const LEAST_FOR_P9999: u64 = 10_000;

    /// Counts one time.
    #[inline]
    pub fn record(&mut self, time: Duration) {
        self.record_ns(time.as_nanos() as u64, 1);
    }

    /// Counts `count` times of `ns` nanoseconds each.
    #[inline]
    pub fn record_ns(&mut self, ns: u64, count: u64) {
        self.0.saturating_record_n(ns, count);
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&*other.0).expect("all have the same bounds");
    }

    /// Returns the number of times counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the percentiles, or `None` if nothing was counted.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let at = |quantile| self.0.value_at_quantile(quantile);
        (self.count() > 0).then(|| Percentiles {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: (self.count() >= Self::LEAST_FOR_P9999).then(|| at(0.9999)),
            max: self.0.max(),
        })
    }
}

impl Default for Latency {
    fn default() -> Self {
        let max = Self::MAX.as_nanos() as u64;
        let histogram = Histogram::new_with_bounds(1, max, 3).expect("bounds that are in order");
        Self(Box::new(histogram))
    }
}

/// From pairs of a value and its count.
impl From<Vec<(u64, u64)>> for Latency {
    fn from(counts: Vec<(u64, u64)>) -> Self {
        let mut latency = Self::default();
        for (value, count) in counts {
            latency.record_ns(value, count);
        }
        latency
    }
}

impl From<Latency> for Vec<(u64, u64)> {
    fn from(latency: Latency) -> Self {
        let seen = latency.0.iter_recorded();
        seen.map(|value| (value.value_iterated_to(), value.count_at_value())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_cover_merged_histograms() {
        let mut all = Latency::default();
        assert_eq!(all.percentiles(), None);
        for part in [1..=500u64, 501..=1000] {
            let mut latency = Latency::default();
            part.for_each(|us| latency.record(Duration::from_micros(us)));
            let text = serde_json::to_string(&latency).unwrap();
            let again: Latency = serde_json::from_str(&text).unwrap();
            assert_eq!(again, latency);
            all.add(&again);
        }
        assert_eq!(all.count(), 1000);
        let Percentiles { p50, p90, p99, p999, p9999, max } = all.percentiles().unwrap();
        for (given, us) in [(p50, 500), (p90, 900), (p99, 990), (p999, 999), (max, 1000)] {
            assert!(given.abs_diff(us * 1000) <= us, "{given} ns, not {us} us");
        }
        assert_eq!(p9999, None, "of 1000");
        let mut more = all.clone();
        more.record_ns(5, 8_999);
        assert_eq!(more.percentiles().unwrap().p9999, None, "of 9999");
        more.record_ns(5, 1);
        let p9999 = more.percentiles().unwrap().p9999.unwrap();
        assert!(p9999.abs_diff(999_000) <= 1000, "{p9999} ns: one of 10,000 is above");
        all.record(Duration::from_secs(1000));
        assert!(all.percentiles().unwrap().max >= 60_000_000_000, "no panic, no wrap");
    }
}
