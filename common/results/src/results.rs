//! All results of one run.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::ClockFacts;
use crate::host::HostFacts;
use crate::limit::LimitRow;
use crate::row::ResultRow;
use crate::streams::StreamRow;
use crate::table::Table;

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
    /// Title and layout of the experiment's table; results of older versions have neither.
    #[serde(default)]
    pub table: Table,
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
    /// Choices on the command line, by option, and the seed. Only `dray-measure` knows their form.
    pub choices: Value,
    /// CPUs assigned to roles.
    pub cpus: Vec<usize>,
    /// Results so far, trial by trial. Only `dray-measure` knows their form.
    pub journal: Value,
}

/// Settings of a run.
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
