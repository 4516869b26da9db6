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
use crate::state::{self, Choice, State};

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
        }
    }

    /// Returns true if the journal may belong to a run of `plan`, judging by its lengths.
    pub(crate) fn fits(&self, plan: &Plan) -> bool {
        (self.limits.len(), self.cases.len()) == (plan.limit_sizes.len(), plan.cases.len())
    }

    /// Returns the number of trials, including failed ones. A search counts as one.
    pub fn trials(&self) -> usize {
        self.cases.iter().map(|case| case.rounds).sum()
    }

    /// Returns the state of the machine in most trials.
    pub(super) fn state(&self) -> State {
        let cases = self.cases.iter().flat_map(CaseTrials::states);
        let limits = self.limits.iter().flatten().map(LimitTrial::state);
        State::of_most(cases.chain(limits))
    }

    /// Returns true if nothing was found yet.
    pub fn is_empty(&self) -> bool {
        self.trials() == 0 && self.limits.iter().all(Vec::is_empty)
    }

    /// Returns everything that was found. Where trials are missing, the results are marked and hold
    /// what is needed to resume: the journal, and the `choices` from which the plan was built.
    pub fn results(&self, plan: &Plan, choices: &Choices) -> Results {
        let settings = &plan.settings;
        let of_run = self.state().distance;
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
        let limits_left = self.limits.iter().any(|samples| samples.len() < settings.trials);
        let incomplete = limits_left || self.trials() < plan.trials();
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
            incomplete: incomplete.then(|| {
                let seed = Some(settings.seed);
                Box::new(Incomplete {
                    trials_done: self.trials(),
                    trials: plan.trials(),
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
    let Choice { distance, chosen, .. } = state::choose(&states, of_run, wanted);
    let pps = trials.iter().zip(chosen).filter(|(_, is_chosen)| *is_chosen);
    LimitRow::new(frame_size, pps.map(|(trial, _)| trial.pps).collect(), distance)
}

impl LimitTrial {
    /// Other work is not watched for here.
    pub(super) fn state(&self) -> State {
        State::of(self.lines, Noise::default())
    }
}

fn value(plain: &impl Serialize) -> Value {
    serde_json::to_value(plain).expect("plain data")
}
