//! Limit of the machine.

use serde::{Deserialize, Serialize};

use crate::lines::Distance;
use crate::stats;

/// Rate at which two CPUs pass on frames of one size with one copy and no other work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LimitRow {
    /// Frame size in bytes.
    pub frame_size: usize,
    /// Best trial, in frames per second.
    pub pps: f64,
    /// Standard deviation of the trials, in frames per second.
    pub stddev_pps: f64,
    /// Rates of the trials, in frames per second.
    pub samples_pps: Vec<f64>,
    /// Distance between the CPUs in these trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<Distance>,
}

impl LimitRow {
    /// Creates the row of trials that measured the rates `samples_pps`, all at one `distance`.
    pub fn new(frame_size: usize, samples_pps: Vec<f64>, distance: Option<Distance>) -> Self {
        Self {
            frame_size,
            pps: samples_pps.iter().copied().fold(0.0, f64::max),
            stddev_pps: stats::standard_deviation(&samples_pps),
            samples_pps,
            distance,
        }
    }
}
