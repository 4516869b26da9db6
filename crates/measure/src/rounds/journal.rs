//! What a run has found so far: enough to make results of it at any time, and to go on with it.

use std::time::SystemTime;

use dray_lab::HostFacts;
use serde::{Deserialize, Serialize};

use super::CaseTrials;
use crate::clock::ClockFacts;
use crate::plan::{Choices, Plan};
use crate::results::{Incomplete, LimitRow, ResultRow, Results, SCHEMA, SettingsRecord};
use crate::streams::StreamRow;

/// What a run has found so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Journal {
    /// When it began (RFC 3339, UTC).
    time: String,
    /// The command line.
    #[serde(default)]
    command: String,
    /// What was found of the clock, where frames are timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) clock: Option<ClockFacts>,
    /// Of each size for which the machine's limit is measured, that of each round.
    pub(super) limits: Vec<Vec<f64>>,
    /// The plan's cases, in its order.
    pub(super) cases: Vec<CaseTrials>,
}

impl Journal {
    /// Of a run of `plan` that begins now, as `command` says on a command line.
    pub fn new(plan: &Plan, command: String) -> Self {
        Self {
            time: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            command,
            clock: None,
            limits: vec![Vec::new(); plan.limit_sizes.len()],
            cases: plan.cases.iter().map(|_| CaseTrials::default()).collect(),
        }
    }

    /// Whether it is of a run of `plan`, as far as their lengths say.
    pub(crate) fn fits(&self, plan: &Plan) -> bool {
        (self.limits.len(), self.cases.len()) == (plan.limit_sizes.len(), plan.cases.len())
    }

    /// How many trials there were, those that failed among them. A search counts as one.
    pub fn trials(&self) -> usize {
        self.cases.iter().map(|case| case.rounds).sum()
    }

    /// Whether nothing was found yet.
    pub fn is_empty(&self) -> bool {
        self.trials() == 0 && self.limits.iter().all(Vec::is_empty)
    }

    /// Everything that was found. Where trials are missing the results are marked, and hold what it
    /// takes to go on: the journal, and the `choices` that the plan was made of.
    pub fn results(&self, plan: &Plan, choices: &Choices) -> Results {
        let settings = &plan.settings;
        let limits: Vec<LimitRow> = plan
            .limit_sizes
            .iter()
            .zip(&self.limits)
            .filter(|(_, samples)| !samples.is_empty())
            .map(|(&frame_size, samples)| LimitRow::new(frame_size, samples.clone()))
            .collect();
        let (mut results, mut streams) = (Vec::new(), Vec::new());
        for (case, trials) in plan.cases.iter().zip(&self.cases) {
            if case.technique.endpoint.is_stream() {
                streams.push(StreamRow::new(case, settings, trials.stream_outcome(settings)));
            } else {
                let limit = limits.iter().find(|limit| limit.frame_size == case.size);
                let limit = limit.filter(|_| case.technique.link.shares_memory());
                results.push(ResultRow::new(case, settings, trials.outcome(settings, limit)));
            }
        }
        let limits_left = self.limits.iter().any(|samples| samples.len() < settings.trials);
        let incomplete = limits_left || self.trials() < plan.trials();
        Results {
            schema: SCHEMA,
            dray: env!("CARGO_PKG_VERSION").to_owned(),
            time: self.time.clone(),
            command: self.command.clone(),
            host: HostFacts::gather(),
            experiment: plan.experiment.name.to_owned(),
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
                    choices: Choices { seed, ..choices.clone() },
                    cpus: settings.placement.cpus(),
                    journal: self.clone(),
                })
            }),
        }
    }
}
