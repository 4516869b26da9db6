//! Judgement on a change.

use dray_results::Interval;
use serde::Serialize;

/// Judgement on a change of the receive rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// The second run is faster: the intervals do not overlap.
    Faster,
    /// The second run is slower: the intervals do not overlap.
    Slower,
    /// The intervals overlap.
    NoDifference,
    /// At least one of the runs gives too little evidence.
    NotJudged,
}

impl Judgement {
    /// Judges by the intervals if no `remarks` speak against it.
    pub(super) fn of(intervals: Option<(Interval, Interval)>, remarks: &mut Vec<String>) -> Self {
        match intervals {
            Some(_) if !remarks.is_empty() => Self::NotJudged,
            Some((first, second)) if first.overlaps(second) => Self::NoDifference,
            Some((first, second)) if second.mean > first.mean => Self::Faster,
            Some(_) => Self::Slower,
            None => {
                if remarks.is_empty() {
                    remarks.push("only one sample, so no interval".to_owned());
                }
                Self::NotJudged
            }
        }
    }

    pub(super) fn in_words(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::NoDifference => "overlapping",
            Self::NotJudged => "not judged",
        }
    }
}
