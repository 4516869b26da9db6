//! What the rounds found of one case.

use std::time::Duration;

use dray_lab::LabError;
use dray_traffic::Check;

use super::testbed::Testbed;
use crate::Shape;
use crate::isolation::Isolation;
use crate::needs::SetUp;
use crate::plan::{Case, Settings};
use crate::results::{LimitRow, Measured, Outcome, SearchRecord, SettingOfRun};
use crate::streams::{MeasuredStreams, StreamOutcome, StreamTrial};
use crate::trial::{Agreements, Trial};

/// The trials of one case: all of frames, or all of byte streams.
#[derive(Default)]
pub(crate) struct CaseTrials {
    pub(crate) trials: Vec<Trial>,
    pub(crate) stream_trials: Vec<StreamTrial>,
    /// What searches found, goal by goal.
    pub(crate) searches: Vec<Vec<SearchRecord>>,
    /// The loss-free rates that trials ran at a share of, in frames per second.
    pub(crate) loss_free: Vec<f64>,
    /// Size of frames, in bytes.
    pub(crate) size: usize,
    /// Why the last trial that failed did.
    failure: Option<String>,
    /// How closely the receiver looked.
    pub(crate) check: &'static str,
    /// What they ran on; there is one as soon as there is a trial.
    pub(crate) setting: Option<SettingOfRun>,
}

impl CaseTrials {
    pub(super) fn of(case: &Case) -> Self {
        Self { size: case.size, ..Self::default() }
    }

    pub(super) fn add(&mut self, (trial, check): (Trial, Check), testbed: &Testbed) {
        self.note(check, testbed, &trial.agreements, trial.ready_after);
        self.trials.push(trial);
    }

    pub(super) fn add_streams(&mut self, (trial, check): (StreamTrial, Check), testbed: &Testbed) {
        self.note(check, testbed, &Agreements::new(), trial.ready_after);
        self.stream_trials.push(trial);
    }

    fn note(
        &mut self,
        check: Check,
        testbed: &Testbed,
        agreements: &Agreements,
        ready_after: Duration,
    ) {
        let Testbed { lab, topologies, set_up, .. } = testbed;
        let setting = || SettingOfRun::of(lab, topologies, *set_up, agreements);
        let setting = self.setting.get_or_insert_with(setting);
        let link = lab.linking_took();
        setting.add_set_up(SetUp {
            containers_s: set_up.saturating_sub(link).as_secs_f64(),
            link_s: link.as_secs_f64(),
            ports_s: ready_after.as_secs_f64(),
        });
        let first = &topologies[0];
        self.check = match check {
            _ if first.technique.endpoint.is_dpdk() => "none",
            _ if first.shape == Shape::Echo => "whole",
            Check::Whole => "whole",
            Check::Sampled => "sampled",
            Check::None => "none",
        };
    }

    pub(super) fn fail(&mut self, error: &LabError) {
        self.failure = Some(error.to_string());
    }

    /// What was found where there was a trial, else why there was none.
    pub(super) fn outcome(self, settings: &Settings, limit: Option<&LimitRow>) -> Outcome {
        let isolation = Isolation::sum(self.trials.iter().filter_map(|trial| trial.isolation));
        match (&self.failure, isolation) {
            (Some(skipped), _) if self.trials.is_empty() => {
                Outcome::Skipped { skipped: skipped.clone() }
            }
            (_, Some(isolation)) => Outcome::Isolated { isolation },
            _ => Outcome::Measured(Box::new(Measured::of(&self, settings, limit))),
        }
    }

    /// The same of byte streams.
    pub(super) fn stream_outcome(self, settings: &Settings) -> StreamOutcome {
        match self.failure {
            Some(skipped) if self.stream_trials.is_empty() => StreamOutcome::Skipped { skipped },
            _ => {
                let measure = settings.timing.measure;
                StreamOutcome::Measured(Box::new(MeasuredStreams::of(&self, measure)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::EXPERIMENTS;
    use crate::plan::{Choices, Plan};

    #[test]
    fn a_case_without_a_trial_says_why() {
        let plan = Plan::new(&EXPERIMENTS[0], &Choices::default()).unwrap();
        let mut trials = CaseTrials::default();
        trials.fail(&LabError::Cancelled);
        let skipped = LabError::Cancelled.to_string();
        assert_eq!(trials.outcome(&plan.settings, None), Outcome::Skipped { skipped });
    }
}
