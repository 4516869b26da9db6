//! Runs a [`Plan`], in rounds of one trial of each case.

pub(crate) mod case_trials;
mod estimate;
mod journal;
mod resume;
pub(crate) mod search;
mod testbed;

pub use journal::Journal;
pub use resume::{CannotResume, PlannedRun};

use std::path::Path;
use std::time::Duration;

use dray_lab::{Cancel, LabError, capability};
use dray_results::Distance;
use dray_traffic::limit;

use self::estimate::Estimate;
use self::journal::LimitTrial;
use self::search::Searcher;
use self::testbed::Testbed;
use crate::clock;
use crate::distance::{LineTimes, Pairs};
use crate::noise::Watch;
use crate::plan::order::order;
use crate::plan::{Plan, Settings};
use crate::state::{State, lacks};

/// Receives the progress of a run.
pub trait Listener {
    /// Called when a step begins or progresses.
    fn began(&mut self, step: &Step);
    /// Called when the journal holds something new to save.
    fn found(&mut self, journal: &Journal);
    /// Called at the end for each case that has fewer trials because one failed.
    fn lost_trial(&mut self, case: &str, why: &str);
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
    let mut run = Running {
        plan,
        program,
        cancel,
        estimate: Estimate::new(plan.left(journal)),
        journal,
        listener,
        watch: Watch::default(),
    };
    for number in 0..settings.rounds() {
        let is_repeat = number >= settings.trials;
        let round = Round { number, is_repeat, distance: run.journal.distance() };
        if round.is_repeat {
            run.estimate = Estimate::new(plan.left(run.journal));
        }
        run.measure_limits(round)?;
        run.measure_cases(round)?;
    }
    for (case, trials) in plan.cases.iter().zip(&run.journal.cases) {
        if let Some(why) = trials.lost() {
            run.listener.lost_trial(&case.to_string(), why);
        }
    }
    run.journal.ended = true;
    Ok(())
}

/// One trial of each case, or of those that need another one.
#[derive(Clone, Copy)]
struct Round {
    number: usize,
    /// True after the planned rounds: a case repeats trials in which the CPUs were not as near to
    /// each other as in most trials, or which were disturbed.
    is_repeat: bool,
    /// Distance of the CPUs in most trials before the round.
    distance: Option<Distance>,
}

/// A run and its progress.
struct Running<'r> {
    plan: &'r Plan,
    program: &'r Path,
    cancel: &'r Cancel,
    journal: &'r mut Journal,
    listener: &'r mut dyn Listener,
    estimate: Estimate,
    watch: Watch,
}

impl Running<'_> {
    /// Returns true if a case has a trial in a round, after `done` rounds with trials in `states`.
    fn is_due(&self, round: Round, done: usize, states: &[State]) -> bool {
        let trials = self.plan.settings.trials;
        done <= round.number && (!round.is_repeat || lacks(states, round.distance, trials))
    }

    /// Returns the step that is about to begin.
    fn step(&self, what: String) -> Step {
        Step {
            done: self.journal.trials().min(self.plan.trials()),
            left: self.estimate.left(),
            what,
            so_far: None,
            before: None,
        }
    }

    fn measure_limits(&mut self, round: Round) -> Result<(), LabError> {
        let settings = &self.plan.settings;
        for (index, &size) in self.plan.limit_sizes.iter().enumerate() {
            let limits = &self.journal.limits[index];
            let states: Vec<_> = limits.iter().map(LimitTrial::state).collect();
            if !self.is_due(round, limits.len(), &states) {
                continue;
            }
            let step = self.step(format!("limit {size} B"));
            self.listener.began(&step);
            self.cancel.check()?;
            self.journal.limits[index].push(machine_limit(size, settings)?);
            self.estimate.done(estimate::limit_duration(settings));
            self.listener.found(self.journal);
        }
        Ok(())
    }

    fn measure_cases(&mut self, round: Round) -> Result<(), LabError> {
        let plan = self.plan;
        let mut before = None;
        // Cases with the same technique and shape are adjacent and share a testbed.
        let mut testbed = None;
        for number in order(&plan.cases, plan.settings.seed, round.number) {
            let (case, trials) = (&plan.cases[number], &self.journal.cases[number]);
            if !self.is_due(round, trials.rounds, &trials.states()) {
                continue;
            }
            let again = if round.is_repeat {
                ", again: the CPUs had moved, or were busy with other work"
            } else {
                ""
            };
            let so_far = trials.so_far();
            let step = Step { so_far, before, ..self.step(format!("{case}{again}")) };
            self.listener.began(&step);
            match self.measure(number, testbed, step) {
                Ok(ready) => testbed = Some(ready),
                // Neither a cancellation nor a missing privilege says anything about the technique.
                Err(error @ LabError::Cancelled) => return Err(error),
                Err(error) if error.is_permission_denied() => return Err(error),
                // The next round may succeed.
                Err(error) => {
                    testbed = None;
                    self.journal.cases[number].fail(&error);
                }
            }
            let trials = &mut self.journal.cases[number];
            trials.rounds = round.number + 1;
            let found = trials.so_far().unwrap_or_else(|| "no figure".to_owned());
            before = Some((case.to_string(), found));
            self.estimate.done(Estimate::of(plan, case));
            self.listener.found(self.journal);
        }
        Ok(())
    }

    /// Runs a trial of a case, or a search. Returns the testbed that it used: the one from the case
    /// before, if it serves this case too.
    fn measure(
        &mut self,
        number: usize,
        testbed: Option<Testbed>,
        mut step: Step,
    ) -> Result<Testbed, LabError> {
        let (case, settings) = (&self.plan.cases[number], &self.plan.settings);
        // A testbed that does not serve the case is torn down before the next one is built.
        let mut testbed = match testbed.filter(|testbed| testbed.serves(case)) {
            Some(testbed) => testbed,
            None => Testbed::build(case, settings, self.program, &mut self.watch, self.cancel)?,
        };
        let distance = self.journal.distance();
        let trials = &mut self.journal.cases[number];
        if case.technique.endpoint.is_stream() {
            let trial = testbed.measure_streams(case, settings, distance)?;
            trials.add_streams(trial, &testbed);
        } else if settings.goals_of(case).is_empty() {
            let trial = testbed.measure(case, settings, &settings.timing, distance)?;
            trials.add(trial, &testbed);
        } else {
            let mut progress = |so_far| {
                step.so_far = Some(so_far);
                self.listener.began(&step);
            };
            let searcher = Searcher { case, settings, distance, progress: &mut progress };
            match case.share {
                None => searcher.add_bounds(&mut testbed, trials)?,
                Some(share) => searcher.add_share(share, &mut testbed, trials)?,
            }
        }
        Ok(testbed)
    }
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
