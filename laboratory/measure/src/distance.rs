//! Distance between the CPUs of a trial, measured before and after it.

use std::collections::BTreeSet;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use dray_results::Distance;
use dray_traffic::line;
use serde::{Deserialize, Serialize};

use crate::topology::Topology;

/// Times that a cache line took between the CPUs of a trial that are farthest apart, there and
/// back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LineTimes {
    before_ns: f64,
    after_ns: f64,
}

impl LineTimes {
    /// Runs a trial, and measures before and after it. Returns no times if there is only one CPU,
    /// or other programs keep one busy.
    pub(crate) fn around<T, E>(
        pairs: &Pairs,
        trial: impl FnOnce() -> Result<T, E>,
    ) -> Result<(T, Option<Self>), E> {
        let before = pairs.slowest_ns();
        let result = trial()?;
        let both = before.zip(pairs.slowest_ns());
        Ok((result, both.map(|(before_ns, after_ns)| Self { before_ns, after_ns })))
    }

    pub(crate) fn distance(&self) -> Distance {
        Distance::of(self.before_ns, self.after_ns)
    }

    pub(crate) fn mean_ns(&self) -> f64 {
        self.before_ns.midpoint(self.after_ns)
    }
}

/// Pairs of CPUs that exchange frames.
pub(crate) struct Pairs(BTreeSet<(usize, usize)>);

impl Pairs {
    /// Pairs of neighbours on the paths of frames through `topologies`.
    pub(crate) fn of(topologies: &[Topology]) -> Self {
        let mut pairs = BTreeSet::new();
        for topology in topologies {
            let cpus: Vec<usize> = topology.stations().map(|station| station.cpu).collect();
            for hop in cpus.windows(2) {
                match topology.switch_cpu {
                    Some(switch) => pairs.extend([(hop[0], switch), (switch, hop[1])]),
                    None => pairs.extend([(hop[0], hop[1])]),
                }
            }
        }
        Self::new(pairs)
    }

    pub(crate) fn new(pairs: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let ordered = pairs.into_iter().map(|(a, b)| (a.min(b), a.max(b)));
        Self(ordered.filter(|(a, b)| a != b).collect())
    }

    /// Waits until the CPUs are at a distance, at most `timeout`. Does not wait if there is only
    /// one CPU, or other programs keep one busy.
    pub(crate) fn wait_for(&self, distance: Distance, timeout: Duration) {
        const PAUSE: Duration = Duration::from_millis(10);
        let end = Instant::now() + timeout;
        let is_elsewhere = |ns| Distance::of(ns, ns) != distance;
        while self.slowest_ns().is_some_and(is_elsewhere) && Instant::now() < end {
            thread::sleep(PAUSE);
        }
    }

    fn slowest_ns(&self) -> Option<f64> {
        let times: io::Result<Option<Vec<f64>>> =
            self.0.iter().map(|&(a, b)| line::round_trip_ns(a, b)).collect();
        times.ok()??.into_iter().reduce(f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_of_different_cpus() {
        let pairs = Pairs::new([(1, 0), (0, 1), (2, 2)]);
        assert_eq!(pairs.0, BTreeSet::from([(0, 1)]));
        assert_eq!(Pairs::new([(3, 3)]).slowest_ns(), None);
    }

    #[test]
    fn wait_for_a_distance_ends() {
        // One measurement alone cannot show that CPUs moved.
        let began = Instant::now();
        Pairs::new([(0, 1)]).wait_for(Distance::Changed, Duration::from_millis(50));
        Pairs::new([(0, 0)]).wait_for(Distance::Near, Duration::from_secs(3600));
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}
