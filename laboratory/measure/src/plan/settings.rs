//! Settings that hold for every case of a plan.

use std::fs;
use std::ops::RangeInclusive;
use std::time::Duration;

use dray_lab::{Placement, Runtime};
use dray_netdev::Interface;
use dray_port::BATCH_MAX;
use dray_results::SettingsRecord;
use dray_search::Goal;

use super::case::Case;
use super::choices::Choices;
use super::order;
use super::wrong_choice::WrongChoice;
use crate::experiments::experiment::{Experiment, STEADY};
use crate::timing::Timing;

/// How an experiment is run: its own defaults and the user's choices, checked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Frames per burst.
    pub burst: usize,
    /// Flows per link of the sender, or byte streams per sender.
    pub flows: u16,
    /// True if the latency of each frame is measured.
    pub timed: bool,
    /// Length of trials.
    pub timing: Timing,
    /// Goals of the searches for rates, for cases without a rate or with a share of the rate found.
    /// Without goals those cases send as fast as they can.
    pub goals: Vec<Goal>,
    /// Trials (or searches) per case.
    pub trials: usize,
    /// Seed for the order of cases.
    pub seed: u32,
    /// Network card whose virtual functions containers may get.
    pub parent: Option<String>,
    /// Bits per second of the cable between two hosts, if it is limited.
    pub cable_bps: Option<u64>,
    /// Assignment of roles to CPUs.
    pub placement: Placement,
    /// True for `--quick`: trials and searches are shortened.
    pub quick: bool,
    /// Runtimes that the user named: they must be present.
    pub runtimes: Vec<Runtime>,
}

const QUICK: Timing = Timing::of_ms(300, 1000, 100);

/// Maximum number of trials per case in a quick run.
const QUICK_TRIALS: usize = 2;

/// Minimum number of rounds in which trials may be repeated: of one long trial for each case, half
/// run while CPUs move that stay for half a minute.
const REPEATS: usize = 4;

impl Settings {
    /// Returns the maximum number of rounds: one for each trial, and those after them in which
    /// trials may be repeated. A quick run repeats none.
    pub(crate) fn rounds(&self) -> usize {
        self.trials + if self.quick { 0 } else { self.trials.max(REPEATS) }
    }

    /// Returns the goals of the searches in `case`: none where frames are not meant to arrive.
    pub(crate) fn goals_of(&self, case: &Case) -> &[Goal] {
        let has_none = case.rate.is_some() || case.technique.link.isolates;
        if has_none { &[] } else { &self.goals }
    }

    pub(super) fn new(experiment: &Experiment, choices: &Choices) -> Result<Self, WrongChoice> {
        let quick = choices.quick;
        let burst = choices.burst.unwrap_or(experiment.burst);
        let burst = within(1..=BATCH_MAX, burst, |given| WrongChoice::Burst { given })?;
        let flows = choices.flows.unwrap_or(1);
        let flows = within(1..=16384, flows, |given| WrongChoice::Flows { given })?;
        let stations = choices.stations.unwrap_or(1);
        let stations = within(1..=16384, stations, |given| WrongChoice::Stations { given })?;
        if stations > 1 && flows > 1 {
            return Err(WrongChoice::Stations { given: stations });
        }
        if let Some(given) = choices.rate.filter(|rate| !(rate.is_finite() && *rate > 0.0)) {
            return Err(WrongChoice::Rate { given });
        }
        let usual = if quick { experiment.trials.min(QUICK_TRIALS) } else { experiment.trials };
        let trials = choices.trials.unwrap_or(usual);
        let trials = within(1..=1000, trials, |given| WrongChoice::Trials { given })?;
        let card = choices.parent.as_deref().and_then(|name| Interface::find(name).ok());
        let node = card.and_then(|card| card.numa_node());
        let placement = match &choices.cpus {
            Some(cpus) => Placement::of(cpus).map_err(WrongChoice::Cpu)?,
            None => Placement::of_this_process().near(node),
        };
        let losses = choices.losses.as_deref().unwrap_or(experiment.losses);
        if let Some(&given) = losses.iter().find(|loss| !(0.0..1.0).contains(*loss)) {
            return Err(WrongChoice::Loss { given });
        }
        if let (Some(given), true) = (choices.rate, choices.losses.is_some()) {
            return Err(WrongChoice::LossAndRate { given });
        }
        let goal = |&loss| match experiment.shares {
            [] => goal(loss, quick || experiment.coarse_searches, choices.duration),
            // Close enough for taking a share of it.
            _ => goal(loss, true, None),
        };
        let goals = losses.iter().map(goal).collect();
        let default = if quick { QUICK } else { experiment.timing };
        let timing = choices.duration.map_or(Ok(default), |given| lasting(given, default))?;
        let seed = choices.seed.unwrap_or_else(order::any_seed);
        let runtimes = choices.runtimes.clone().unwrap_or_default();
        let parent = choices.parent.clone();
        parent.as_deref().map_or(Ok(()), check_interface)?;
        let cable_bps = choices.cable.or(experiment.cable_bps);
        Ok(Self {
            burst,
            flows,
            timed: experiment.timed,
            timing,
            goals,
            trials,
            seed,
            parent,
            cable_bps,
            placement,
            quick,
            runtimes,
        })
    }
}

impl From<&Settings> for SettingsRecord {
    fn from(settings: &Settings) -> Self {
        Self {
            quick: settings.quick,
            warm_up_s: settings.timing.warm_up.as_secs_f64(),
            measure_s: settings.timing.measure.as_secs_f64(),
            interval_s: settings.timing.interval.as_secs_f64(),
            seed: Some(settings.seed),
            parent: settings.parent.clone(),
            cable_bps: settings.cable_bps,
        }
    }
}

fn check_interface(name: &str) -> Result<(), WrongChoice> {
    let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    if names.iter().any(|there| there == name) {
        return Ok(());
    }
    Err(WrongChoice::NoInterface { given: name.to_owned(), there: names.join(", ") })
}

/// Returns a search goal. `trial` is the length of a trial, if the user chose one.
fn goal(loss_ratio: f64, coarse: bool, trial: Option<Duration>) -> Goal {
    let (usual, trials, width) = if coarse {
        (Duration::from_millis(500), 3, 0.02)
    } else {
        (Duration::from_secs(2), 5, 0.005)
    };
    let trial = trial.unwrap_or(usual);
    Goal { loss_ratio, trial, sum: trials * trial, width, ..Goal::default() }
}

fn within<T: PartialOrd>(
    allowed: RangeInclusive<T>,
    given: T,
    wrong: impl FnOnce(T) -> WrongChoice,
) -> Result<T, WrongChoice> {
    if allowed.contains(&given) { Ok(given) } else { Err(wrong(given)) }
}

/// Returns a timing that measures for `given`, rounded up to whole intervals.
fn lasting(given: Duration, default: Timing) -> Result<Timing, WrongChoice> {
    let allowed = Duration::from_millis(200)..=Duration::from_secs(3600);
    let given = within(allowed, given, |given| WrongChoice::Duration { given })?;
    // Intervals of a second from 5 s on; below, shorter ones, so that there are enough for a
    // deviation.
    let interval = if given >= 5 * STEADY.interval { STEADY.interval } else { QUICK.interval };
    let whole = |time: Duration| time.as_nanos().div_ceil(interval.as_nanos()) as u32 * interval;
    Ok(Timing { warm_up: whole(default.warm_up), measure: whole(given), interval })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::find;

    fn settings(choices: &Choices) -> Result<Settings, String> {
        Settings::new(find("all").unwrap(), choices).map_err(|error| error.to_string())
    }

    #[test]
    fn out_of_range_setting_error_names_option() {
        let none = Choices::default;
        let nan = f64::NAN;
        for (option, wrong) in [
            ("--burst 0", Choices { burst: Some(0), ..none() }),
            ("--flows 0", Choices { flows: Some(0), ..none() }),
            ("--flows 16385", Choices { flows: Some(16385), ..none() }),
            ("--stations 0", Choices { stations: Some(0), ..none() }),
            ("--stations 2", Choices { stations: Some(2), flows: Some(2), ..none() }),
            ("--rate 0", Choices { rate: Some(0.0), ..none() }),
            ("--rate NaN", Choices { rate: Some(nan), ..none() }),
            ("--trials 0", Choices { trials: Some(0), ..none() }),
            ("--trials 1001", Choices { trials: Some(1001), ..none() }),
            (
                "--parent nosuch0: no such interface",
                Choices { parent: Some("nosuch0".into()), ..none() },
            ),
            ("--duration 0.1", Choices { duration: Some(Duration::from_millis(100)), ..none() }),
            ("--duration 3601", Choices { duration: Some(Duration::from_secs(3601)), ..none() }),
        ] {
            let message = settings(&wrong).unwrap_err();
            assert!(message.starts_with(option), "{message}");
        }
    }

    #[test]
    fn settings_default_to_experiment() {
        let usual = settings(&Choices::default()).unwrap();
        assert_eq!((usual.burst, usual.flows), (64, 1));
        assert_eq!((usual.timing, usual.trials, usual.quick), (STEADY, 1, false));
        let quick = settings(&Choices { quick: true, ..Choices::default() }).unwrap();
        assert_eq!((quick.timing, quick.quick), (QUICK, true));
    }

    #[test]
    fn duration_rounds_up_to_whole_intervals() {
        let timing = |ms, quick| {
            let duration = Some(Duration::from_millis(ms));
            settings(&Choices { duration, quick, ..Choices::default() }).unwrap().timing
        };
        let expected = Timing::of_ms;
        assert_eq!(timing(510, false), expected(2000, 600, 100));
        assert_eq!(timing(4999, true), expected(300, 5000, 100));
        assert_eq!(timing(5000, true), expected(1000, 5000, 1000));
        assert_eq!(timing(7300, false), expected(2000, 8000, 1000));
    }
}
