//! Highest rates within given loss ratios.

use serde::{Deserialize, Serialize};

use crate::interval::Interval;
use crate::lines::Distance;

/// Highest rate at which at most a given share of the frames is lost: the non-drop rate if the
/// share is 0, else a partial drop rate. See `dray_search` for the method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DropRate {
    /// Share of frames that a trial may lose.
    pub loss_ratio: f64,
    /// Length of the trials that count, in seconds.
    pub trial_s: f64,
    /// Total trial time at a rate before the rate is judged, in seconds, unless the verdict is
    /// clear earlier.
    pub sum_s: f64,
    /// Share of that time in which more frames may be lost.
    pub exceed_ratio: f64,
    /// Distance of the bounds at which a search ends, as a share of the upper bound.
    pub width: f64,
    /// Mean of the searches' lower bounds, in frames per second; a search without one counts as 0.
    pub pps: f64,
    /// Half the 95 % confidence interval of `pps`, if there were several searches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval95_pps: Option<f64>,
    /// One entry per search.
    pub searches: Vec<SearchRecord>,
}

/// One search for one drop rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SearchRecord {
    /// Highest rate that was carried, below all rates that were not, in frames per second; absent
    /// if not even the lowest rate was carried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_pps: Option<u64>,
    /// Lowest rate that was not carried; absent if every rate that the sender could send was
    /// carried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper_pps: Option<u64>,
    /// Frames per second that arrived at the lower bound.
    pub throughput_pps: f64,
    /// Why rates above the lower bound were not carried.
    pub limited_by: LimitedBy,
    /// Number of trials of the search, for all of its rates together.
    pub trials: usize,
    /// Number of trials that are not among them: they were repeated because the CPUs had moved.
    #[serde(default)]
    pub left_out: usize,
    /// Distance between the CPUs in these trials, if there were several CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<Distance>,
}

/// Why a rate was not carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LimitedBy {
    /// Frames were lost.
    Loss,
    /// The sender could not send more.
    Sender,
}

impl DropRate {
    /// Returns the 95 % confidence interval of the rate, if there were several searches.
    pub fn interval(&self) -> Option<Interval> {
        self.interval95_pps.map(|half| Interval { mean: self.pps, half })
    }
}
