//! Journal of a run: its findings so far, enough to produce results at any time, and to resume the
//! run.

use std::time::SystemTime;

use dray_lab::host;
use dray_results::{
    ClockFacts, Distance, Incomplete, LimitRow, Noise, Results, SCHEMA, SettingsRecord,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::case_trials::CaseTrials;
use crate::distance::LineTimes;
use crate::plan::{Choices, Plan};
use crate::rows;
use crate::state::{self, Chosen, State};

/// Findings of a run so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Journal {
    /// Time at which the run began (RFC 3339, UTC).
    time: String,
    /// The command line.
    #[serde(default)]
    command: String,
    /// Facts about the clock, if frames are timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) clock: Option<ClockFacts>,
    /// Machine limits by round, for each frame size for which the limit is measured.
    pub(super) limits: Vec<Vec<LimitTrial>>,
    /// Cases of the plan, in its order.
    pub(super) cases: Vec<CaseTrials>,
    /// True once no trial is left to run or to repeat.
    #[serde(default)]
    pub(super) ended: bool,
}

/// One measurement of the machine's limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LimitTrial {
    /// Frames per second.
    pub(super) pps: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lines: Option<LineTimes>,
}

impl Journal {
    /// Creates the journal of a run of `plan` that begins now; `command` is the command line.
    pub fn new(plan: &Plan, command: String) -> Self {
        Self {
            time: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            command,
            clock: None,
            limits: vec![Vec::new(); plan.limit_sizes.len()],
            cases: plan.cases.iter().map(|_| CaseTrials::default()).collect(),
            ended: false,
        }
    }

    /// Returns true if the journal may belong to a run of `plan`, judging by its lengths.
    pub(crate) fn fits(&self, plan: &Plan) -> bool {
        (self.limits.len(), self.cases.len()) == (plan.limit_sizes.len(), plan.cases.len())
    }

    /// Returns the number of trials, including failed ones, or more after repeats. A search counts
    /// as one.
    pub fn trials(&self) -> usize {
        self.cases.iter().map(|case| case.rounds).sum()
    }

    /// Returns the distance of the CPUs, near or far, in most trials.
    pub(super) fn distance(&self) -> Option<Distance> {
        let cases = self.cases.iter().flat_map(CaseTrials::states);
        let limits = self.limits.iter().flatten().map(LimitTrial::state);
        state::distance_of_most(&cases.chain(limits).collect::<Vec<_>>())
    }

    /// Returns true if nothing was found yet.
    pub fn is_empty(&self) -> bool {
        self.trials() == 0 && self.limits.iter().all(Vec::is_empty)
    }

    /// Returns everything that was found. Where trials are missing, the results are marked and hold
    /// what is needed to resume: the journal, and the `choices` from which the plan was built.
    pub fn results(&self, plan: &Plan, choices: &Choices) -> Results {
        let settings = &plan.settings;
        let of_run = self.distance();
        let limits: Vec<LimitRow> = plan
            .limit_sizes
            .iter()
            .zip(&self.limits)
            .filter(|(_, trials)| !trials.is_empty())
            .map(|(&frame_size, trials)| limit_row(frame_size, trials, of_run, settings.trials))
            .collect();
        let (mut results, mut streams) = (Vec::new(), Vec::new());
        for (case, trials) in plan.cases.iter().zip(&self.cases) {
            if case.technique.endpoint.is_stream() {
                streams.push(rows::of_streams(case, settings, trials, of_run));
            } else {
                let limit = limits.iter().find(|limit| limit.frame_size == case.size);
                let limit = limit.filter(|_| case.technique.link.shares_memory());
                results.push(rows::of(case, settings, trials, limit, of_run));
            }
        }
        Results {
            schema: SCHEMA,
            dray: env!("CARGO_PKG_VERSION").to_owned(),
            time: self.time.clone(),
            command: self.command.clone(),
            host: host::facts(),
            experiment: plan.experiment.name.to_owned(),
            table: plan.experiment.table(),
            settings: SettingsRecord::from(settings),
            results,
            streams,
            clock: self.clock.clone(),
            limits,
            incomplete: (!self.ended).then(|| {
                let seed = Some(settings.seed);
                Box::new(Incomplete {
                    trials_done: self.trials(),
                    // Or more, while trials are repeated.
                    trials: plan.trials().max(self.trials() + 1),
                    choices: Choices { seed, ..choices.clone() }.given().into(),
                    cpus: settings.placement.cpus(),
                    journal: value(self),
                })
            }),
        }
    }
}

/// Sums up the trials at one distance.
fn limit_row(
    frame_size: usize,
    trials: &[LimitTrial],
    of_run: Option<Distance>,
    wanted: usize,
) -> LimitRow {
    let states: Vec<_> = trials.iter().map(LimitTrial::state).collect();
    let Chosen { distance, trials: chosen, .. } = state::choose(&states, of_run, wanted);
    let pps = trials.iter().zip(chosen).filter(|(_, is_chosen)| *is_chosen);
    LimitRow::new(frame_size, pps.map(|(trial, _)| trial.pps).collect(), distance)
}

impl LimitTrial {
    /// Returns the state of the machine; noise is not measured here.
    pub(super) fn state(&self) -> State {
        State::of(self.lines, Noise::default())
    }
}

fn value(plain: &impl Serialize) -> Value {
    serde_json::to_value(plain).expect("plain data")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::find;

    #[test]
    fn run_is_incomplete_while_it_repeats_trials() {
        let choices = Choices { quick: true, ..Choices::default() };
        let plan = Plan::new(find("all").unwrap(), &choices).unwrap();
        let mut journal = Journal::new(&plan, String::new());
        let trials = |journal: &Journal| {
            let incomplete = journal.results(&plan, &choices).incomplete?;
            Some((incomplete.trials_done, incomplete.trials))
        };
        let planned = plan.trials();
        assert_eq!(trials(&journal), Some((0, planned)));
        for case in &mut journal.cases {
            case.rounds = plan.settings.trials;
        }
        assert_eq!(trials(&journal), Some((planned, planned + 1)));
        journal.cases[0].rounds += 2;
        assert_eq!(trials(&journal), Some((planned + 2, planned + 3)));
        journal.ended = true;
        assert_eq!(trials(&journal), None);
    }
}
