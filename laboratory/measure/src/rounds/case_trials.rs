//! Findings of the rounds for one case.

use std::time::Duration;

use dray_lab::LabError;
use dray_results::{
    Agreements, Check, Distance, Lines, Noise, SearchRecord, SetUp, SettingOfRun, stats,
};
use serde::{Deserialize, Serialize};

use super::testbed::{LossFree, Testbed};
use crate::setting;
use crate::shape::Shape;
use crate::state::{self, Chosen, State};
use crate::streams::StreamTrial;
use crate::trial::Trial;

/// Trials of one case: either all with frames, or all with byte streams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CaseTrials {
    /// Number of completed rounds: with a trial, with a failure, or without need to repeat one.
    pub(super) rounds: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) trials: Vec<Trial>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) stream_trials: Vec<StreamTrial>,
    /// Results of the searches, goal by goal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) searches: Vec<Vec<SearchRecord>>,
    /// Loss-free rates of which trials offered a share, trial by trial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) loss_free: Vec<LossFree>,
    /// Why the most recent failed trial failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    /// How thoroughly the receiver checked frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    check: Option<Check>,
    /// Conditions of the trials; set as soon as there is a trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    setting: Option<SettingOfRun>,
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
        let setting = || setting::of(lab, topologies, *set_up, agreements);
        let setting = self.setting.get_or_insert_with(setting);
        if let (Some(facts), Some(switch)) = (&mut setting.switch, lab.switch()) {
            facts.bypassed_ratio = switch.bypassed().ok().flatten();
        }
        let link = lab.linking_took();
        if let Some(needs) = &mut setting.needs {
            needs.set_ups.push(SetUp {
                containers_s: set_up.saturating_sub(link).as_secs_f64(),
                link_s: link.as_secs_f64(),
                ports_s: ready_after.as_secs_f64(),
            });
        }
        let first = &topologies[0];
        self.check = Some(match check {
            _ if first.technique.endpoint.is_third_party() => Check::None,
            _ if first.shape == Shape::Echo => Check::Whole,
            check => check,
        });
    }

    /// Returns true if the trials are consistent: those read from a file may not be.
    pub(super) fn is_sound(&self, goals: usize) -> bool {
        let is_empty = self.trials.is_empty() && self.stream_trials.is_empty();
        let searches = self.searches.iter().all(|search| search.len() == goals);
        searches && (is_empty || (self.setting.is_some() && self.check.is_some()))
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

    /// Returns the state of the machine during each trial, or during each search if there are any.
    pub(super) fn states(&self) -> Vec<State> {
        // A search judges each rate by several trials, so that one disturbed trial does not decide.
        let of_search = |goals: &Vec<SearchRecord>| State {
            distance: goals.first().and_then(|goal| goal.distance),
            is_disturbed: false,
        };
        if !self.searches.is_empty() {
            return self.searches.iter().map(of_search).collect();
        }
        // A share of a rate that was found at another distance is another load.
        let of_trial = |(index, trial): (usize, &Trial)| {
            let state = trial.state();
            match (self.loss_free.get(index).and_then(|it| it.distance), state.distance) {
                (Some(search), Some(trial)) if search != trial => {
                    State { distance: Some(Distance::Changed), ..state }
                }
                _ => state,
            }
        };
        let frames = self.trials.iter().enumerate().map(of_trial);
        frames.chain(self.stream_trials.iter().map(StreamTrial::state)).collect()
    }

    /// Returns the trials (or searches) that can be summed up, at most `wanted`, and how they were
    /// chosen: see [`state::choose`].
    pub(crate) fn comparable(&self, of_run: Option<Distance>, wanted: usize) -> Comparable {
        let Chosen { distance, trials: chosen, disturbed } =
            state::choose(&self.states(), of_run, wanted);
        let left_out = chosen.iter().filter(|is_chosen| !**is_chosen).count();
        let mut kept = self.clone();
        if self.searches.is_empty() {
            retain(&mut kept.trials, &chosen);
            retain(&mut kept.loss_free, &chosen);
            retain(&mut kept.stream_trials, &chosen);
        } else if left_out > 0 {
            retain(&mut kept.searches, &chosen);
            // Each search has some trials, which have distances of their own.
            let of_trial = |trial: &Trial| State::of(trial.lines, Noise::default());
            let of_trials: Vec<_> = self.trials.iter().map(of_trial).collect();
            retain(&mut kept.trials, &state::choose(&of_trials, distance, usize::MAX).trials);
        }
        let frames = kept.trials.iter().map(|trial| (trial.lines, trial.noise));
        let streams = kept.stream_trials.iter().map(|trial| (trial.lines, trial.noise));
        let (lines, noise): (Vec<_>, Vec<_>) = frames.chain(streams).unzip();
        let times: Vec<f64> = lines.into_iter().flatten().map(|it| it.mean_ns()).collect();
        let lines = distance.map(|distance| Lines {
            distance,
            of_run: of_run.unwrap_or(distance),
            round_trip_ns: stats::mean(&times),
            left_out: left_out - disturbed,
        });
        Comparable { trials: kept, lines, noise: Noise::sum(noise, disturbed) }
    }

    /// Returns why there is no trial, or `None` if there is one.
    pub(crate) fn lacking(&self) -> Option<String> {
        let none = self.trials.is_empty() && self.stream_trials.is_empty();
        let interrupted = || "not measured yet: the run was interrupted".to_owned();
        none.then(|| self.failure.clone().unwrap_or_else(interrupted))
    }

    /// Returns why a trial failed, if others did not.
    pub(super) fn lost(&self) -> Option<&str> {
        self.failure.as_deref().filter(|_| self.lacking().is_none())
    }

    /// Returns the conditions of the trials, of which there is at least one.
    pub(crate) fn conditions(&self) -> (&SettingOfRun, Check) {
        (
            self.setting.as_ref().expect("at least one trial"),
            self.check.expect("at least one trial"),
        )
    }
}

/// Trials of a case that can be summed up.
pub(crate) struct Comparable {
    pub(crate) trials: CaseTrials,
    /// Distance between the CPUs during these trials.
    pub(crate) lines: Option<Lines>,
    /// Other activity of the machine during these trials.
    pub(crate) noise: Noise,
}

/// Keeps the `chosen` elements.
fn retain<T>(all: &mut Vec<T>, chosen: &[bool]) {
    let mut chosen = chosen.iter();
    all.retain(|_| *chosen.next().unwrap_or(&true));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distance::LineTimes;

    #[test]
    fn share_of_a_rate_found_at_another_distance_is_repeated() {
        let lines: LineTimes = serde_json::from_str(r#"{"before_ns":50,"after_ns":50}"#).unwrap();
        let state = |search| {
            let trials = vec![Trial { lines: Some(lines), ..Trial::default() }];
            let loss_free = vec![LossFree { pps: 1e6, distance: search }];
            CaseTrials { trials, loss_free, ..CaseTrials::default() }.states()[0].distance
        };
        assert_eq!(state(Some(Distance::Near)), Some(Distance::Near));
        assert_eq!(state(None), Some(Distance::Near));
        assert_eq!(state(Some(Distance::Far)), Some(Distance::Changed));
        assert_eq!(state(Some(Distance::Changed)), Some(Distance::Changed));
    }

    #[test]
    fn case_without_trial_gives_reason() {
        let mut trials = CaseTrials::default();
        let interrupted = "not measured yet: the run was interrupted".to_owned();
        assert_eq!(trials.lacking(), Some(interrupted));
        trials.fail(&LabError::Cancelled);
        assert_eq!(trials.lacking(), Some(LabError::Cancelled.to_string()));
    }
}
