//! Results: what `--json` writes. `docs/result.schema.json` describes it for other programs.

mod drop_rate;
mod measured;
mod row;
mod setting;

use dray_lab::HostFacts;
use serde::{Deserialize, Serialize};

pub use self::drop_rate::{DropRate, LimitedBy, SearchRecord};
pub use self::measured::{Cpu, Measured};
pub use self::row::{Outcome, ResultRow};
pub use self::setting::{EngineFacts, SettingOfRun, SwitchFacts};
use crate::clock::ClockFacts;
use crate::plan::Choices;
use crate::rounds::Journal;
use crate::streams::StreamRow;
use crate::{Settings, stats};

/// The version of the format. It changes when a reader of the old one would misunderstand.
pub const SCHEMA: u32 = 1;

/// Everything that one run of an experiment found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of dray.
    pub dray: String,
    /// When the run began (RFC 3339, UTC).
    pub time: String,
    /// The command line that began it.
    #[serde(default)]
    pub command: String,
    /// The machine.
    pub host: HostFacts,
    /// Name of the experiment.
    pub experiment: String,
    /// How it was run.
    pub settings: SettingsRecord,
    /// One entry per technique, size and topology.
    pub results: Vec<ResultRow>,
    /// Byte streams: one entry per technique, MTU and number of pairs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamRow>,
    /// The clock, where frames were timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockFacts>,
    /// The limit of the machine, by frame size, where techniques are compared with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitRow>,
    /// Where the run was interrupted: what it takes to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<Box<Incomplete>>,
}

/// A run that was interrupted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Incomplete {
    /// Trials that there were; a search counts as one.
    pub trials_done: usize,
    /// Trials that there should have been.
    pub trials: usize,
    /// What was asked for on the command line, and the seed.
    pub choices: Choices,
    /// The CPUs that roles were given.
    pub cpus: Vec<usize>,
    /// What was found, trial by trial.
    pub journal: Journal,
}

/// How fast two CPUs can pass frames of some size on with one copy, and nothing else to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitRow {
    /// In bytes.
    pub frame_size: usize,
    /// The best of the trials, in frames per second.
    pub pps: f64,
    /// The trials' standard deviation.
    pub stddev_pps: f64,
    /// The trials.
    pub samples_pps: Vec<f64>,
}

impl LimitRow {
    pub(crate) fn new(frame_size: usize, samples_pps: Vec<f64>) -> Self {
        Self {
            frame_size,
            pps: samples_pps.iter().copied().fold(0.0, f64::max),
            stddev_pps: stats::standard_deviation(&samples_pps),
            samples_pps,
        }
    }
}

/// [`Settings`] as they stand in results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingsRecord {
    /// Shortened by `--quick`: good for a first look, not for a decision.
    pub quick: bool,
    /// Sending before each measurement, in seconds.
    pub warm_up_s: f64,
    /// Length of each measurement, in seconds.
    pub measure_s: f64,
    /// Time between samples, in seconds.
    pub interval_s: f64,
    /// What the order of trials follows from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u32>,
    /// The network card whose virtual functions containers could get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
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
        }
    }
}
