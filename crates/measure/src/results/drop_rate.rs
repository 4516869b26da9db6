//! The highest rates within given losses.

use dray_search::Goal;
use serde::{Deserialize, Serialize};

use crate::{Interval, stats};

/// The highest rate at which no more than a share of the frames is lost: the non-drop rate, where that
/// is nothing, or a partial drop rate. See `dray_search` for the method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DropRate {
    /// The share that may be lost in a trial.
    pub loss_ratio: f64,
    /// Length of the trials that count, in seconds.
    pub trial_s: f64,
    /// For how long they ran at a rate before it was judged, in seconds, where that was not clear
    /// earlier.
    pub sum_s: f64,
    /// The share of that time in which more could be lost.
    pub exceed_ratio: f64,
    /// How close the bounds were to come to each other, as a share of the upper one.
    pub width: f64,
    /// The mean of the searches' lower bounds, in frames per second; 0 for those that have none.
    pub pps: f64,
    /// Half the 95 % confidence interval of that, where there were several searches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval95_pps: Option<f64>,
    /// One entry per search.
    pub searches: Vec<SearchRecord>,
}

/// One search for one such rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchRecord {
    /// The highest rate that was carried below all that were not, in frames per second; absent: not
    /// even the lowest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_pps: Option<u64>,
    /// The lowest rate that was not carried; absent: all were that the sender could send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper_pps: Option<u64>,
    /// Frames per second that arrived at the lower bound.
    pub throughput_pps: f64,
    /// What there was too much of above.
    pub limited_by: LimitedBy,
    /// Trials of the search, for all of its rates together.
    pub trials: usize,
}

/// Why a rate was not carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitedBy {
    /// Frames were lost.
    Loss,
    /// The sender could not send more.
    Sender,
}

impl DropRate {
    pub(super) fn of(goal: &Goal, searches: Vec<SearchRecord>) -> Self {
        let lower: Vec<f64> =
            searches.iter().map(|search| search.lower_pps.unwrap_or(0) as f64).collect();
        Self {
            loss_ratio: goal.loss_ratio,
            trial_s: goal.trial.as_secs_f64(),
            sum_s: goal.sum.as_secs_f64(),
            exceed_ratio: goal.exceed_ratio,
            width: goal.width,
            pps: stats::mean(&lower),
            interval95_pps: Interval::of(&lower).map(|interval| interval.half),
            searches,
        }
    }

    /// The 95 % confidence interval of the rate, where there were several searches.
    pub fn interval(&self) -> Option<Interval> {
        self.interval95_pps.map(|half| Interval { mean: self.pps, half })
    }
}
