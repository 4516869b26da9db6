//! What the rounds found of one case.

use dray_lab::LabError;
use dray_traffic::Check;

use super::testbed::Testbed;
use crate::Shape;
use crate::plan::Settings;
use crate::results::{LimitRow, Measured, Outcome, SearchRecord, SettingOfRun};
use crate::trial::Trial;

/// The trials of one case.
#[derive(Default)]
pub(crate) struct CaseTrials {
    pub(crate) trials: Vec<Trial>,
    /// What searches found, goal by goal.
    pub(crate) searches: Vec<Vec<SearchRecord>>,
    /// Why the last trial that failed did.
    failure: Option<String>,
    /// How closely the receiver looked.
    pub(crate) check: &'static str,
    /// What they ran on; there is one as soon as there is a trial.
    pub(crate) setting: Option<SettingOfRun>,
}

impl CaseTrials {
    pub(super) fn add(&mut self, (trial, check): (Trial, Check), testbed: &Testbed) {
        let Testbed { lab, topology } = testbed;
        self.setting.get_or_insert_with(|| SettingOfRun::of(lab, topology, &trial));
        self.trials.push(trial);
        self.check = match check {
            _ if topology.technique.endpoint.is_dpdk() => "none",
            _ if topology.shape == Shape::Echo => "whole",
            Check::Whole => "whole",
            Check::Sampled => "sampled",
        };
    }

    pub(super) fn fail(&mut self, error: &LabError) {
        self.failure = Some(error.to_string());
    }

    /// Figures where there was a trial, else why there was none.
    pub(super) fn outcome(self, settings: &Settings, limit: Option<&LimitRow>) -> Outcome {
        match self.failure {
            Some(skipped) if self.trials.is_empty() => Outcome::Skipped { skipped },
            _ => Outcome::Measured(Box::new(Measured::of(&self, settings, limit))),
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
