//! All results of one run.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::ClockFacts;
use crate::host::HostFacts;
use crate::limit::LimitRow;
use crate::measured::Measured;
use crate::noise::Noise;
use crate::row::ResultRow;
use crate::setting::SettingOfRun;
use crate::streams::{MeasuredStreams, StreamRow};
use crate::table::Table;

/// Version of the format. It changes when a reader of the old one would misunderstand.
pub const SCHEMA: u32 = 1;

/// All results of one run of an experiment. Rates are in frames per second, or bits per second if
/// the name says so; times are in seconds and sizes in bytes, unless the name has another unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(title = "Results of dray bench"))]
pub struct Results {
    /// Version of this format. It changes when a reader of the old one would misunderstand.
    #[cfg_attr(test, schemars(extend("const" = SCHEMA)))]
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
    /// State needed to resume (`--resume`), if the run was interrupted: the results are then those
    /// of the trials done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<Box<Incomplete>>,
}

/// A row with figures, of frames or of byte streams.
#[derive(Clone, Copy, Debug)]
pub struct AnyMeasured<'r> {
    /// Link and endpoint.
    pub technique: &'r str,
    /// Runtime that created the containers.
    pub runtime: &'r str,
    /// Frame size in bytes; 0 for streams.
    pub frame_size: usize,
    /// Conditions of the trials.
    pub setting: &'r SettingOfRun,
    /// Other activity of the machine.
    pub noise: Option<Noise>,
}

impl AnyMeasured<'_> {
    /// Describes what disturbed the measurement, if anything did.
    pub fn disturbed(&self) -> Option<String> {
        self.setting.disturbed(self.noise)
    }
}

/// A row that could not be measured, of frames or of byte streams.
#[derive(Clone, Copy, Debug)]
pub struct AnySkipped<'r> {
    /// Link and endpoint.
    pub technique: &'r str,
    /// How the containers are connected.
    pub link: &'r str,
    /// Frame size in bytes; `None` for streams.
    pub frame_size: Option<usize>,
    /// Reason.
    pub why: &'r str,
}

impl Results {
    /// Returns all rows with figures; those of frames come first.
    pub fn measured(&self) -> impl Iterator<Item = AnyMeasured<'_>> {
        let frames = self.results.iter().filter_map(|row| {
            let Measured { setting, noise, .. } = row.measured()?;
            let ResultRow { technique, runtime, frame_size, .. } = row;
            let (frame_size, noise) = (*frame_size, *noise);
            Some(AnyMeasured { technique, runtime, frame_size, setting, noise })
        });
        let streams = self.streams.iter().filter_map(|row| {
            let MeasuredStreams { setting, noise, .. } = row.measured()?;
            let StreamRow { technique, runtime, .. } = row;
            Some(AnyMeasured { technique, runtime, frame_size: 0, setting, noise: *noise })
        });
        frames.chain(streams)
    }

    /// Returns all rows that could not be measured; those of frames come first.
    pub fn skipped(&self) -> impl Iterator<Item = AnySkipped<'_>> {
        let frames = self.results.iter().filter_map(|row| {
            let ResultRow { technique, link, frame_size, .. } = row;
            let (frame_size, why) = (Some(*frame_size), row.skipped()?);
            Some(AnySkipped { technique, link, frame_size, why })
        });
        let streams = self.streams.iter().filter_map(|row| {
            let StreamRow { technique, link, .. } = row;
            Some(AnySkipped { technique, link, frame_size: None, why: row.skipped()? })
        });
        frames.chain(streams)
    }

    /// Returns the reasons why techniques could not be measured, each with these techniques:
    /// `veth/smc, bridge/smc: not in this kernel`.
    pub fn reasons_for_skipping(&self) -> Vec<String> {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for AnySkipped { technique, why, .. } in self.skipped() {
            match reasons.iter_mut().find(|(other, _)| *other == why) {
                Some((_, techniques)) if techniques.contains(&technique) => {}
                Some((_, techniques)) => techniques.push(technique),
                None => reasons.push((why, vec![technique])),
            }
        }
        let line =
            |(why, techniques): (&str, Vec<&str>)| format!("{}: {why}", techniques.join(", "));
        reasons.into_iter().map(line).collect()
    }
}

/// State of an interrupted run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Incomplete {
    /// Number of trials done; a search counts as one.
    pub trials_done: usize,
    /// Number of trials planned.
    pub trials: usize,
    /// Choices on the command line, by option, and the seed; their form is internal to dray.
    pub choices: Value,
    /// CPUs assigned to roles.
    pub cpus: Vec<usize>,
    /// Results so far, trial by trial; their form is internal to dray.
    pub journal: Value,
}

/// Settings of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SettingsRecord {
    /// True if shortened by `--quick`: good for a first look, not for a decision.
    pub quick: bool,
    /// Time of sending before each measurement, in seconds.
    pub warm_up_s: f64,
    /// Length of each measurement, in seconds.
    pub measure_s: f64,
    /// Time between samples, in seconds.
    pub interval_s: f64,
    /// Seed for the order of trials (`--seed`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u32>,
    /// Network card whose virtual functions containers may use (`--parent`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Bits per second of the cable between two hosts, if it was limited (`--cable`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cable_bps: Option<u64>,
}
