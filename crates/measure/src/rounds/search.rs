//! Searches for the highest rates within given losses.

use std::time::Duration;

use dray_lab::LabError;
use dray_search::{Goal, Search};

use super::CaseTrials;
use super::testbed::Testbed;
use crate::plan::{Case, Settings};
use crate::results::{LimitedBy, SearchRecord};
use crate::trial::{Timing, Trial};

/// Below this nobody looks for a rate, in frames per second.
const RATE_MIN: u64 = 100;
/// By how much a sender at a given rate may be faster than one that sends as fast as it can.
const MARGIN: f64 = 1.02;

/// Searches for the rates of `goals` in `case`, and adds what it found: for each goal the bounds, and
/// the trials at the highest rate of the first goal that was carried.
pub(super) fn run(
    case: &Case,
    settings: &Settings,
    goals: &[Goal],
    testbed: &mut Testbed,
    found: &mut CaseTrials,
    mut progress: impl FnMut(String),
) -> Result<(), LabError> {
    let mut measure = |rate: Option<f64>, duration| {
        let at = |rate| format!("{:.0} kpps", rate / 1e3);
        progress(rate.map_or("as fast as it can".to_owned(), at));
        testbed.measure(&Case { rate, ..case.clone() }, settings, &timing(duration))
    };
    // Where the sender ends, the search ends.
    let (fastest, check) = measure(None, goals[0].trial)?;
    let highest = (fastest.sent_pps * MARGIN) as u64;
    let mut search = Search::new(goals.to_vec(), RATE_MIN..=highest.max(RATE_MIN));
    let mut trials = Vec::new();
    while let Some(next) = search.next() {
        let (trial, _) = measure(Some(next.load as f64), next.duration)?;
        let loss_ratio = loss_ratio(&trial);
        search.add(dray_search::Trial { load: next.load, duration: next.duration, loss_ratio });
        trials.push((next, trial));
    }
    let limit = |upper: Option<u64>| {
        let at = trials.iter().filter(|(next, _)| Some(next.load) == upper);
        let short = |(_, trial): &&(_, Trial)| trial.sent_less_than_offered();
        match (upper, at.clone().filter(short).count() * 2 > at.count()) {
            (None, _) | (_, true) => LimitedBy::Sender,
            (_, false) => LimitedBy::Loss,
        }
    };
    let record = |of: &dray_search::Found| SearchRecord {
        lower_pps: of.lower,
        upper_pps: of.upper,
        throughput_pps: of.throughput,
        limited_by: limit(of.upper),
        trials: search.count(),
    };
    let bounds = search.found();
    found.searches.push(bounds.iter().map(record).collect());
    let carried = bounds[0].lower;
    let is_kept =
        |next: &dray_search::Next| Some(next.load) == carried && next.duration >= goals[0].trial;
    let (kept, _): (Vec<_>, Vec<_>) = trials.into_iter().partition(|(next, _)| is_kept(next));
    // Where nothing is carried, what happens without a limit says why.
    let kept: Vec<Trial> = kept.into_iter().map(|(_, trial)| trial).collect();
    let kept = if kept.is_empty() { vec![fastest] } else { kept };
    kept.into_iter().for_each(|trial| found.add((trial, check), testbed));
    Ok(())
}

/// What a search makes of a trial. A sender that could not keep up has lost what it did not send.
pub(crate) fn loss_ratio(trial: &Trial) -> f64 {
    let of = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let lost = of(trial.sent.saturating_sub(trial.received), trial.sent);
    let offered = trial.offered.unwrap_or(0);
    let unsent = of(offered.saturating_sub(trial.sent), offered);
    if trial.sent_less_than_offered() { lost.max(unsent) } else { lost }
}

/// A trial of a search: its samples say how steady it was, its loss is of all of it.
fn timing(measure: Duration) -> Timing {
    const SAMPLES: u32 = 5;
    Timing { warm_up: measure / SAMPLES, measure, interval: measure / SAMPLES }
}
