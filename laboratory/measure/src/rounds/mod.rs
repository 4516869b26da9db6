//! Runs a [`Plan`], in rounds of one trial of each case.

pub(crate) mod case_trials;
mod estimate;
mod journal;
mod resume;
pub(crate) mod search;
mod testbed;

pub use journal::Journal;
pub use resume::{CannotResume, Resumed};

use std::path::Path;
use std::time::Duration;

use dray_lab::{Cancel, LabError, capability};
use dray_traffic::limit;

use self::estimate::Estimate;
use self::journal::LimitTrial;
use self::testbed::Testbed;
use crate::clock;
use crate::distance::{LineTimes, Pairs};
use crate::noise::Watch;
use crate::plan::order::order;
use crate::plan::{Plan, Settings};
use crate::state::lacks;

/// Receives the progress of a run.
pub trait Listener {
    /// Called when a step begins or progresses.
    fn now(&mut self, step: &Step);
    /// Called when the journal holds something new to save.
    fn found(&mut self, journal: &Journal);
}

/// A step of a run.
#[derive(Clone, Debug)]
pub struct Step {
    /// Number of trials that are done.
    pub done: usize,
    /// Approximate time until the run ends.
    pub left: Duration,
    /// Description of the step.
    pub what: String,
    /// Finding of this case so far.
    pub so_far: Option<String>,
    /// Previous case and its finding, while there is none of this case.
    pub before: Option<(String, String)>,
}

impl Step {
    /// Describes the step in at most `room` columns: what is left out first is the name of the
    /// previous case, then its finding.
    pub fn describe(&self, room: usize) -> String {
        let Self { what, so_far, before, .. } = self;
        let notes = match (so_far, before) {
            (Some(so_far), _) => vec![so_far.clone()],
            (None, Some((case, found))) => {
                vec![format!("(before: {case} {found})"), format!("(before: {found})")]
            }
            (None, None) => vec![],
        };
        let mut texts = notes.iter().map(|note| format!("{what}  {note}"));
        let fits = |text: &String| text.chars().count() <= room;
        texts.find(fits).or_else(|| Some(what.clone()).filter(fits)).unwrap_or_else(|| {
            let begin: String = what.chars().take(room.saturating_sub(1)).collect();
            begin + "…"
        })
    }
}

/// Runs every case that is not in `journal` yet, and records there what it finds, also if it is
/// interrupted. `program` is the `dray` that runs in the containers.
///
/// Each round runs one trial of each case in a new order, so that changes of the machine over time
/// affect all cases alike.
pub fn run(
    plan: &Plan,
    program: &Path,
    cancel: &Cancel,
    journal: &mut Journal,
    listener: &mut dyn Listener,
) -> Result<(), LabError> {
    let settings = &plan.settings;
    if !plan.cases.is_empty() {
        capability::check()?;
    }
    for runtime in &settings.runtimes {
        runtime.version()?;
    }
    if settings.timed && journal.clock.is_none() {
        journal.clock = Some(clock::measure(&settings.placement));
    }
    let mut watch = Watch::default();
    let mut estimate = Estimate::new(plan.left(journal));
    for round in 0..settings.rounds() {
        // A case repeats trials in which the CPUs were not as near to each other as in most trials,
        // or which were disturbed.
        let is_repeat = round >= settings.trials;
        if is_repeat {
            estimate = Estimate::new(plan.left(journal));
        }
        let of_run = journal.distance();
        for (index, &size) in plan.limit_sizes.iter().enumerate() {
            let limits = &journal.limits[index];
            if limits.len() > round {
                continue;
            }
            let states: Vec<_> = limits.iter().map(LimitTrial::state).collect();
            if is_repeat && !lacks(&states, of_run, settings.trials) {
                continue;
            }
            let what = format!("limit {size} B");
            listener.now(&Step {
                done: journal.trials().min(plan.trials()),
                left: estimate.left(),
                what,
                so_far: None,
                before: None,
            });
            cancel.check()?;
            journal.limits[index].push(machine_limit(size, settings)?);
            estimate.done(estimate::limit_duration(settings));
            listener.found(journal);
        }
        let mut before = None;
        // Cases with the same technique and shape are adjacent and share a testbed.
        let mut testbed: Option<Testbed> = None;
        for number in order(&plan.cases, settings.seed, round) {
            let case = &plan.cases[number];
            if journal.cases[number].rounds > round {
                continue;
            }
            if is_repeat && !lacks(&journal.cases[number].states(), of_run, settings.trials) {
                continue;
            }
            let again = if is_repeat {
                ", again: the CPUs had moved, or were busy with other work"
            } else {
                ""
            };
            let mut step = Step {
                done: journal.trials().min(plan.trials()),
                left: estimate.left(),
                what: format!("{case}{again}"),
                so_far: journal.cases[number].so_far(),
                before: before.clone(),
            };
            listener.now(&step);
            // A testbed that does not serve the case is torn down before the next one is built.
            let kept = testbed.take().filter(|testbed| testbed.serves(case));
            let build = || Testbed::build(case, settings, program, &mut watch, cancel);
            let ready = kept.map_or_else(build, Ok);
            let distance = journal.distance();
            let trials = &mut journal.cases[number];
            let result = ready.and_then(|mut ready| {
                let mut say = |so_far| {
                    step.so_far = Some(so_far);
                    listener.now(&step);
                };
                match settings.goals_of(case) {
                    _ if case.technique.endpoint.is_stream() => {
                        trials
                            .add_streams(ready.measure_streams(case, settings, distance)?, &ready);
                    }
                    _ if case.share.is_some() => {
                        search::at_share(case, settings, &mut ready, trials, distance, &mut say)?;
                    }
                    [] => {
                        let trial = ready.measure(case, settings, &settings.timing, distance)?;
                        trials.add(trial, &ready);
                    }
                    _ => search::run(case, settings, &mut ready, trials, distance, &mut say)?,
                }
                Ok(ready)
            });
            match result {
                Ok(ready) => testbed = Some(ready),
                // Neither a cancellation nor a missing privilege says anything about the technique.
                Err(error @ LabError::Cancelled) => return Err(error),
                Err(error) if error.is_permission_denied() => return Err(error),
                // The next round may succeed.
                Err(error) => trials.fail(&error),
            }
            trials.rounds = round + 1;
            let found = trials.so_far().unwrap_or_else(|| "no figure".to_owned());
            before = Some((case.to_string(), found));
            estimate.done(Estimate::of(plan, case));
            listener.found(journal);
        }
    }
    journal.ended = true;
    Ok(())
}

/// Measures the machine's limit on the CPUs of a switch and its endpoints.
fn machine_limit(size: usize, settings: &Settings) -> Result<LimitTrial, LabError> {
    let (middle, ends) = settings.placement.assign_around_switch(2);
    let duration = estimate::limit_duration(settings);
    let (middle, ends) = (middle.id, (ends[0].id, ends[1].id));
    let pairs = Pairs::new([(ends.0, middle), (middle, ends.1)]);
    LineTimes::around(&pairs, || limit::measure(size, duration, middle, ends))
        .map(|(limit, lines)| LimitTrial { pps: limit.pps(), lines })
        .map_err(|error| LabError::System { what: "limit of the machine".to_owned(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_is_described_within_room() {
        let step = |so_far: Option<&str>, before: Option<(&str, &str)>| Step {
            done: 0,
            left: Duration::ZERO,
            what: "veth/raw 64 B".to_owned(),
            so_far: so_far.map(str::to_owned),
            before: before.map(|(case, found)| (case.to_owned(), found.to_owned())),
        };
        let first = step(None, None);
        assert_eq!(first.describe(13), "veth/raw 64 B");
        assert_eq!(first.describe(9), "veth/raw…");
        let second = step(None, Some(("bridge/raw 64 B", "0.5 Mpps")));
        assert_eq!(second.describe(49), "veth/raw 64 B  (before: bridge/raw 64 B 0.5 Mpps)");
        assert_eq!(second.describe(48), "veth/raw 64 B  (before: 0.5 Mpps)");
        assert_eq!(second.describe(32), "veth/raw 64 B");
        let third = step(Some("0.4 Mpps"), Some(("bridge/raw 64 B", "0.5 Mpps")));
        assert_eq!(third.describe(80), "veth/raw 64 B  0.4 Mpps");
    }
}
