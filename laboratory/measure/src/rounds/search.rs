//! Searches for the highest rates within given loss ratios.

use std::time::Duration;

use dray_lab::LabError;
use dray_results::{Check, Distance, LimitedBy, SearchRecord};
use dray_search::{Next, Search};

use super::case_trials::CaseTrials;
use super::testbed::{LossFree, Testbed};
use crate::plan::{Case, Settings};
use crate::shape::Shape;
use crate::timing::Timing;
use crate::trial::Trial;

/// Lowest rate that a search tries, in frames per second.
const RATE_MIN: u64 = 100;
/// Rate above anything that a sender can reach, in frames per second.
const RATE_MAX: f64 = 1e9;
/// How much faster a sender may be than in the one trial that finds its maximum, which may have
/// been slow. A rate that the sender cannot keep costs a search only a few short trials.
const MARGIN: f64 = 1.1;

/// A finished search and its trials.
struct Ended {
    search: Search,
    trials: Vec<(Next, Trial)>,
    /// Number of trials that were repeated because the CPUs had moved.
    left_out: usize,
    /// Trial in which the sender sent as fast as it could.
    fastest: Trial,
    /// How thoroughly receivers checked frames.
    check: Check,
}

/// Searches for the rates of a case.
pub(super) struct Searcher<'s> {
    pub(super) case: &'s Case,
    pub(super) settings: &'s Settings,
    /// Distance of the CPUs in most trials of the run, if it is known.
    pub(super) distance: Option<Distance>,
    pub(super) progress: &'s mut dyn FnMut(String),
}

impl Searcher<'_> {
    /// Searches for the rates of the case's goals. Adds the bounds for each goal, and the trials at
    /// the highest carried rate of the first goal.
    pub(super) fn add_bounds(
        mut self,
        testbed: &mut Testbed,
        found: &mut CaseTrials,
    ) -> Result<(), LabError> {
        let Ended { search, trials, left_out, fastest, check } = self.search(testbed)?;
        let limit = |upper: Option<u64>| {
            let at = trials.iter().filter(|(next, _)| Some(next.load) == upper);
            let short = |(_, trial): &&(_, Trial)| trial.sent_less_than_offered();
            match (upper, at.clone().filter(short).count() * 2 > at.count()) {
                (None, _) | (_, true) => LimitedBy::Sender,
                (_, false) => LimitedBy::Loss,
            }
        };
        let distance = distance_of(trials.iter().map(|(_, trial)| trial));
        let record = |of: &dray_search::Found| SearchRecord {
            lower_pps: of.lower,
            upper_pps: of.upper,
            throughput_pps: of.throughput,
            limited_by: limit(of.upper),
            trials: search.count(),
            left_out,
            distance,
        };
        let bounds = search.found();
        found.searches.push(bounds.iter().map(record).collect());
        let carried = bounds[0].lower;
        let is_kept =
            |next: &Next| Some(next.load) == carried && next.duration >= search.goals()[0].trial;
        let (kept, _): (Vec<_>, Vec<_>) = trials.into_iter().partition(|(next, _)| is_kept(next));
        // If no rate is carried, the trial without a limit shows why.
        let kept: Vec<Trial> = kept.into_iter().map(|(_, trial)| trial).collect();
        let kept = if kept.is_empty() { vec![fastest] } else { kept };
        kept.into_iter().for_each(|trial| found.add((trial, check), testbed));
        Ok(())
    }

    /// Runs a trial at a share of the loss-free rate. Each round searches for that rate anew, once
    /// for all shares of it.
    pub(super) fn add_share(
        mut self,
        share: f64,
        testbed: &mut Testbed,
        found: &mut CaseTrials,
    ) -> Result<(), LabError> {
        let loss_free = match testbed.loss_free.get(&self.case.size) {
            Some(&known) => known,
            None => {
                let Ended { search, trials, .. } = self.search(testbed)?;
                let pps = search.found()[0].lower.unwrap_or(0) as f64;
                LossFree { pps, distance: distance_of(trials.iter().map(|(_, trial)| trial)) }
            }
        };
        testbed.loss_free.insert(self.case.size, loss_free);
        let LossFree { pps, .. } = loss_free;
        if pps == 0.0 {
            let what = "loses frames at every rate: no loss-free rate to take a share of";
            let role = testbed.topologies[0].sender.role.clone();
            return Err(LabError::Container { container: role, what: what.to_owned() });
        }
        (self.progress)(format!("at {:.0} % of {:.0} kpps", 100.0 * share, pps / 1e3));
        let case = Case { rate: Some(share * pps), ..self.case.clone() };
        let trial = testbed.measure(&case, self.settings, &self.settings.timing, self.distance)?;
        found.add(trial, testbed);
        found.loss_free.push(loss_free);
        Ok(())
    }

    /// Searches with trials at one distance of the CPUs: that of the run, if it is known.
    fn search(&mut self, testbed: &mut Testbed) -> Result<Ended, LabError> {
        let Self { case, settings, distance, ref mut progress } = *self;
        let goals = settings.goals_of(case);
        let mut steady = Steady { at: distance, left_out: 0 };
        let mut measure = |rate: Option<f64>, duration| loop {
            let at = |rate| format!("{:.0} kpps", rate / 1e3);
            progress(rate.map_or("as fast as it can".to_owned(), at));
            let case = Case { rate, ..case.clone() };
            let (trial, check) = testbed.measure(&case, settings, &timing(duration), steady.at)?;
            if steady.accepts(trial.lines.map(|lines| lines.distance())) {
                break Ok::<_, LabError>((trial, check));
            }
        };
        // The sender's maximum bounds the search. A ping without a rate waits for its replies.
        let unlimited = (case.shape == Shape::Echo).then_some(RATE_MAX);
        let (fastest, check) = measure(unlimited, goals[0].trial)?;
        let highest = (fastest.sent_pps * MARGIN) as u64;
        let mut search = Search::new(goals.to_vec(), RATE_MIN..=highest.max(RATE_MIN));
        let mut trials = Vec::new();
        while let Some(next) = search.next() {
            let (trial, _) = measure(Some(next.load as f64), next.duration)?;
            let loss_ratio = loss_ratio(&trial);
            search.add(dray_search::Trial { load: next.load, duration: next.duration, loss_ratio });
            trials.push((next, trial));
        }
        Ok(Ended { search, trials, left_out: steady.left_out, fastest, check })
    }
}

/// Returns the distance of the CPUs in all trials of a search.
fn distance_of<'t>(trials: impl Iterator<Item = &'t Trial>) -> Option<Distance> {
    let distances = trials.filter_map(|trial| Some(trial.lines?.distance()));
    distances.reduce(|all, it| if it == all { all } else { Distance::Changed })
}

/// Keeps a search at one distance of the CPUs. Virtual CPUs often move within a search, so trials
/// are repeated, not whole searches.
struct Steady {
    /// Distance, near or far, once it is known.
    at: Option<Distance>,
    left_out: usize,
}

impl Steady {
    /// Maximum number of trials that are left out. Most searches have 30 to 60 trials, and a
    /// virtual machine was seen to spoil half of those of 2 s.
    const LEFT_OUT_MAX: usize = 150;

    /// Returns true if a trial counts, by the distance during it, if that was measured. One that
    /// does not is left out, and must be repeated.
    fn accepts(&mut self, distance: Option<Distance>) -> bool {
        self.at = self.at.or(distance.filter(|distance| *distance != Distance::Changed));
        let counts = distance.is_none() || distance == self.at;
        if counts || self.left_out == Self::LEFT_OUT_MAX {
            return true;
        }
        self.left_out += 1;
        false
    }
}

/// Returns the loss ratio of a trial for a search. Frames that the sender failed to send count as
/// lost.
pub(crate) fn loss_ratio(trial: &Trial) -> f64 {
    let of = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let lost = of(trial.sent.saturating_sub(trial.received), trial.sent);
    let offered = trial.offered.unwrap_or(0);
    let unsent = of(offered.saturating_sub(trial.sent), offered);
    if trial.sent_less_than_offered() { lost.max(unsent) } else { lost }
}

/// Returns the timing of a search trial: samples show how steady it was, loss covers all of it.
fn timing(measure: Duration) -> Timing {
    const SAMPLES: u32 = 5;
    Timing { warm_up: measure / SAMPLES, measure, interval: measure / SAMPLES }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Distance::{Changed, Far, Near};

    #[test]
    fn trials_of_a_search_are_at_one_distance() {
        let accepted = |of_run, distances: &[Distance]| {
            let mut steady = Steady { at: of_run, left_out: 0 };
            let accepted = distances.iter().map(|it| steady.accepts(Some(*it)));
            (accepted.collect::<Vec<_>>(), steady.left_out)
        };
        // The first steady trial decides, unless the run has a distance.
        assert_eq!(accepted(None, &[Changed, Far, Near, Far]), (vec![false, true, false, true], 2));
        assert_eq!(accepted(Some(Near), &[Far, Near, Changed]), (vec![false, true, false], 2));
        let mut unknown = Steady { at: Some(Near), left_out: 0 };
        assert!(unknown.accepts(None) && unknown.left_out == 0);
    }

    #[test]
    fn a_search_ends_although_the_cpus_stay_elsewhere() {
        let mut steady = Steady { at: Some(Near), left_out: 0 };
        let repeated = (0..1000).filter(|_| !steady.accepts(Some(Far))).count();
        assert_eq!((repeated, steady.left_out), (Steady::LEFT_OUT_MAX, Steady::LEFT_OUT_MAX));
    }
}
