//! Whether a figure changed.

use dray_measure::Interval;
use serde::Serialize;

/// Whether the receive rate changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The second is faster: the intervals are apart.
    Faster,
    /// The second is slower: the intervals are apart.
    Slower,
    /// The intervals overlap.
    NoDifference,
    /// One of the two says too little.
    NotJudged,
}

impl Verdict {
    /// By intervals, where there are no `remarks` that speak against it.
    pub(super) fn of(intervals: Option<(Interval, Interval)>, remarks: &mut Vec<String>) -> Self {
        match intervals {
            Some(_) if !remarks.is_empty() => Self::NotJudged,
            Some((first, second)) if first.overlaps(second) => Self::NoDifference,
            Some((first, second)) if second.mean > first.mean => Self::Faster,
            Some(_) => Self::Slower,
            None => {
                if remarks.is_empty() {
                    remarks.push("one sample only: no interval".to_owned());
                }
                Self::NotJudged
            }
        }
    }

    pub(super) fn in_words(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::NoDifference => "not told apart",
            Self::NotJudged => "not judged",
        }
    }
}
