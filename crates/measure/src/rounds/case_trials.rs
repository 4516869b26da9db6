//! Findings of the rounds for one case.

use std::time::Duration;

use dray_lab::LabError;
use dray_traffic::Check;
use serde::{Deserialize, Serialize};

use super::testbed::Testbed;
use crate::Shape;
use crate::isolation::Isolation;
use crate::needs::SetUp;
use crate::plan::Settings;
use crate::results::{LimitRow, Measured, Outcome, SearchRecord, SettingOfRun};
use crate::stats;
use crate::streams::{MeasuredStreams, StreamOutcome, StreamTrial};
use crate::trial::{Agreements, Trial};

/// Trials of one case: either all with frames, or all with byte streams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CaseTrials {
    /// Number of rounds that included the case, failed ones among them.
    pub(super) rounds: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) trials: Vec<Trial>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) stream_trials: Vec<StreamTrial>,
    /// Results of the searches, goal by goal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) searches: Vec<Vec<SearchRecord>>,
    /// Loss-free rates of which trials offered a share, in frames per second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) loss_free: Vec<f64>,
    /// Why the most recent failed trial failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    /// How thoroughly the receiver checked frames.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) check: String,
    /// Conditions of the trials; set as soon as there is a trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) setting: Option<SettingOfRun>,
}

impl CaseTrials {
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
        let check = match check {
            _ if first.technique.endpoint.is_dpdk() => "none",
            _ if first.shape == Shape::Echo => "whole",
            Check::Whole => "whole",
            Check::Sampled => "sampled",
            Check::Fetched => "fetched",
            Check::None => "none",
        };
        check.clone_into(&mut self.check);
    }

    /// Returns true if the trials are consistent, as those recorded here always are; a file may
    /// differ.
    pub(super) fn is_sound(&self, goals: usize) -> bool {
        let is_empty = self.trials.is_empty() && self.stream_trials.is_empty();
        let searches = self.searches.iter().all(|search| search.len() == goals);
        searches && (is_empty || self.setting.is_some())
    }

    /// Describes what was found so far.
    pub(super) fn so_far(&self) -> Option<String> {
        let frames: Vec<f64> = self.trials.iter().map(|trial| trial.received_pps).collect();
        let bits: Vec<f64> = self.stream_trials.iter().map(StreamTrial::goodput_bps).collect();
        let (values, unit) = if frames.is_empty() { (bits, "Gb/s") } else { (frames, "Mpps") };
        let factor = if unit == "Gb/s" { 1e9 } else { 1e6 };
        (!values.is_empty()).then(|| format!("{:.3} {unit}", stats::mean(&values) / factor))
    }

    pub(super) fn fail(&mut self, error: &LabError) {
        self.failure = Some(error.to_string());
    }

    /// Returns why there is no trial, or `None` if there is one.
    fn lacking(&self) -> Option<String> {
        let none = self.trials.is_empty() && self.stream_trials.is_empty();
        let interrupted = || "not measured yet: the run was interrupted".to_owned();
        none.then(|| self.failure.clone().unwrap_or_else(interrupted))
    }

    /// Returns the figures if there was a trial, else why there was none.
    pub(super) fn outcome(&self, settings: &Settings, limit: Option<&LimitRow>) -> Outcome {
        let isolation = Isolation::sum(self.trials.iter().filter_map(|trial| trial.isolation));
        match (self.lacking(), isolation) {
            (Some(skipped), _) => Outcome::Skipped { skipped },
            (None, Some(isolation)) => Outcome::Isolated { isolation },
            (None, None) => Outcome::Measured(Box::new(Measured::of(self, settings, limit))),
        }
    }

    /// Like [`Self::outcome`], for byte streams.
    pub(super) fn stream_outcome(&self, settings: &Settings) -> StreamOutcome {
        match self.lacking() {
            Some(skipped) => StreamOutcome::Skipped { skipped },
            None => {
                let measure = settings.timing.measure;
                StreamOutcome::Measured(Box::new(MeasuredStreams::of(self, measure)))
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
    fn case_without_trial_gives_reason() {
        let plan = Plan::new(&EXPERIMENTS[0], &Choices::default()).unwrap();
        let mut trials = CaseTrials::default();
        let skipped = "not measured yet: the run was interrupted".to_owned();
        assert_eq!(trials.outcome(&plan.settings, None), Outcome::Skipped { skipped });
        trials.fail(&LabError::Cancelled);
        let skipped = LabError::Cancelled.to_string();
        assert_eq!(trials.outcome(&plan.settings, None), Outcome::Skipped { skipped });
    }
}
