//! Isolation: checks that a link that must keep containers apart did so.

use serde::{Deserialize, Serialize};

/// Fate of frames from one container to another, by the kernel's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Isolation {
    /// Conclusion from the counts.
    pub verdict: Verdict,
    /// Frames that the sender passed to its interface.
    pub offered: u64,
    /// Offered frames that left the host through the interface that the containers share.
    pub left: u64,
    /// Offered frames that the sender's interface dropped.
    pub dropped: u64,
    /// Frames that arrived at the receiver's interface.
    pub arrived: u64,
}

/// Result of an isolation check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Verdict {
    /// Every frame left or was dropped, and none arrived.
    #[serde(rename = "isolated by design")]
    Isolated,
    /// Frames arrived that should not have.
    #[serde(rename = "not isolated")]
    NotIsolated,
    /// No frame arrived, but not all are accounted for, or none were offered.
    #[serde(rename = "not verified")]
    NotVerified,
}

impl Isolation {
    /// Sum over several trials; `None` if there are none.
    pub fn sum(trials: impl IntoIterator<Item = Self>) -> Option<Self> {
        let add = |a: Self, b: Self| {
            let (a, b) = (a.counts(), b.counts());
            Self::judge(std::array::from_fn(|index| a[index] + b[index]))
        };
        trials.into_iter().reduce(add)
    }

    fn counts(&self) -> [u64; 4] {
        [self.offered, self.left, self.dropped, self.arrived]
    }

    /// Judges the counts of frames that were offered, left the host, were dropped and arrived.
    pub fn judge([offered, left, dropped, arrived]: [u64; 4]) -> Self {
        let verdict = match arrived {
            0 if offered > 0 && offered == left + dropped => Verdict::Isolated,
            0 => Verdict::NotVerified,
            _ => Verdict::NotIsolated,
        };
        Self { verdict, offered, left, dropped, arrived }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn isolated_requires_all_frames_accounted_for() {
        assert_eq!(Isolation::judge([9, 9, 0, 0]).verdict, Verdict::Isolated, "sent out");
        assert_eq!(Isolation::judge([9, 0, 9, 0]).verdict, Verdict::Isolated, "dropped");
        assert_eq!(Isolation::judge([9, 9, 0, 1]).verdict, Verdict::NotIsolated);
        assert_eq!(Isolation::judge([9, 8, 0, 0]).verdict, Verdict::NotVerified);
        assert_eq!(Isolation::judge([0, 0, 0, 0]).verdict, Verdict::NotVerified);
        let sum =
            |trials: &[[u64; 4]]| Isolation::sum(trials.iter().copied().map(Isolation::judge));
        assert_eq!(sum(&[[9, 9, 0, 0], [3, 2, 1, 0]]), Some(Isolation::judge([12, 11, 1, 0])));
        assert_eq!(sum(&[[9, 9, 0, 0], [2, 2, 0, 1]]), Some(Isolation::judge([11, 11, 0, 1])));
        assert_eq!(sum(&[]), None);
    }
}
