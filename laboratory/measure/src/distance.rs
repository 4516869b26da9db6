//! Distance between the CPUs of a trial: measured before and after it, and used to choose the trials
//! that are summed up.

use std::collections::BTreeSet;
use std::io;

use dray_results::Distance;
use dray_traffic::line;
use serde::{Deserialize, Serialize};

use crate::topology::Topology;

/// Times that a cache line took between the CPUs of a trial that are farthest apart, there and back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LineTimes {
    before_ns: f64,
    after_ns: f64,
}

impl LineTimes {
    /// Runs a trial, and measures before and after it. Returns no times if there is only one CPU, or
    /// other programs keep one busy.
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

    fn slowest_ns(&self) -> Option<f64> {
        let times: io::Result<Option<Vec<f64>>> =
            self.0.iter().map(|&(a, b)| line::round_trip_ns(a, b)).collect();
        times.ok()??.into_iter().reduce(f64::max)
    }
}

/// Returns the distance, near or far, in most trials.
pub(crate) fn of_most(trials: impl IntoIterator<Item = Distance>) -> Option<Distance> {
    let (mut near, mut far) = (0, 0);
    for distance in trials {
        match distance {
            Distance::Near => near += 1,
            Distance::Far => far += 1,
            Distance::Changed => {}
        }
    }
    match (near, far) {
        (0, 0) => None,
        _ if near >= far => Some(Distance::Near),
        _ => Some(Distance::Far),
    }
}

/// Chooses the trials of a case that are summed up, at most `wanted`: those at the distance `of_run`;
/// if there are none, those at another distance; else any. Returns their distance, and for each trial
/// if it was chosen.
pub(crate) fn choose(
    trials: &[Option<Distance>],
    of_run: Option<Distance>,
    mut wanted: usize,
) -> (Option<Distance>, Vec<bool>) {
    let known = || trials.iter().copied().flatten();
    let chosen =
        of_run.filter(|of_run| known().any(|it| it == *of_run)).or_else(|| of_most(known()));
    let choose = |it: &Option<Distance>| {
        let is_chosen = (chosen.is_none() || *it == chosen) && wanted > 0;
        wanted -= usize::from(is_chosen);
        is_chosen
    };
    (chosen.or_else(|| known().next()), trials.iter().map(choose).collect())
}

/// Returns true if fewer than `wanted` of these trials ran at the distance `of_run`, and others at
/// another one.
pub(crate) fn lacks(trials: &[Option<Distance>], of_run: Option<Distance>, wanted: usize) -> bool {
    let right = trials.iter().filter(|it| **it == of_run).count();
    of_run.is_some() && right < wanted && right < trials.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Distance::{Changed, Far, Near};

    #[test]
    fn trials_at_the_distance_of_the_run_are_chosen() {
        let mixed = [Some(Near), Some(Far), Some(Changed), Some(Near)];
        assert_eq!(of_most(mixed.into_iter().flatten()), Some(Near));
        assert_eq!(choose(&mixed, Some(Near), 9), (Some(Near), vec![true, false, false, true]));
        assert_eq!(choose(&mixed, Some(Near), 1), (Some(Near), vec![true, false, false, false]));
        assert_eq!(choose(&mixed, Some(Far), 9), (Some(Far), vec![false, true, false, false]));
    }

    #[test]
    fn case_without_such_trials_uses_others() {
        let far = [Some(Far), Some(Changed)];
        assert_eq!(choose(&far, Some(Near), 9), (Some(Far), vec![true, false]));
        assert_eq!(choose(&[Some(Changed); 2], Some(Near), 9), (Some(Changed), vec![true; 2]));
        // On one CPU nothing is measured.
        assert_eq!(choose(&[None, None], None, 9), (None, vec![true; 2]));
        assert_eq!(of_most([]), None);
    }

    #[test]
    fn case_lacks_trials_only_if_others_moved() {
        assert!(lacks(&[Some(Near), Some(Far)], Some(Near), 2));
        assert!(!lacks(&[Some(Near), Some(Far), Some(Near)], Some(Near), 2));
        // A trial that failed is not repeated.
        assert!(!lacks(&[Some(Near)], Some(Near), 2));
        assert!(!lacks(&[None, None], None, 2));
    }

    #[test]
    fn pairs_are_of_different_cpus() {
        let pairs = Pairs::new([(1, 0), (0, 1), (2, 2)]);
        assert_eq!(pairs.0, BTreeSet::from([(0, 1)]));
        assert_eq!(Pairs::new([(3, 3)]).slowest_ns(), None);
    }
}
