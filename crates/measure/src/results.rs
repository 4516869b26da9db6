//! Results as `--json` writes them. `docs/result.schema.json` describes the format for other
//! programs.

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

/// Version of the format. It changes when a reader of the old one would misunderstand.
pub const SCHEMA: u32 = 1;

/// All results of one run of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of dray.
    pub dray: String,
    /// Start time of the run (RFC 3339, UTC).
    pub time: String,
    /// Command line that started the run.
    #[serde(default)]
    pub command: String,
    /// Host that the run used.
    pub host: HostFacts,
    /// Name of the experiment.
    pub experiment: String,
    /// Settings of the run.
    pub settings: SettingsRecord,
    /// One entry per technique, size and topology.
    pub results: Vec<ResultRow>,
    /// Byte streams: one entry per technique, MTU and number of pairs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamRow>,
    /// Properties of the clock, if frames were timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockFacts>,
    /// Limit of the machine by frame size, if techniques are compared with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitRow>,
    /// State needed to resume, if the run was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<Box<Incomplete>>,
}

/// State of an interrupted run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Incomplete {
    /// Number of trials done; a search counts as one.
    pub trials_done: usize,
    /// Number of trials planned.
    pub trials: usize,
    /// Choices on the command line, and the seed.
    pub choices: Choices,
    /// CPUs assigned to roles.
    pub cpus: Vec<usize>,
    /// Results so far, trial by trial.
    pub journal: Journal,
}

/// Rate at which two CPUs pass on frames of one size with one copy and no other work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitRow {
    /// Frame size in bytes.
    pub frame_size: usize,
    /// Best trial, in frames per second.
    pub pps: f64,
    /// Standard deviation of the trials, in frames per second.
    pub stddev_pps: f64,
    /// Rates of the trials, in frames per second.
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

/// [`Settings`] as recorded in results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingsRecord {
    /// True if shortened by `--quick`: good for a first look, not for a decision.
    pub quick: bool,
    /// Time of sending before each measurement, in seconds.
    pub warm_up_s: f64,
    /// Length of each measurement, in seconds.
    pub measure_s: f64,
    /// Time between samples, in seconds.
    pub interval_s: f64,
    /// Seed for the order of trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u32>,
    /// Network card whose virtual functions containers may use.
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
