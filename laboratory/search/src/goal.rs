//! Goals of a search.

use std::time::Duration;

/// The highest load that loses no more than a given share, and the required certainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Share of a trial's frames that may be lost: 0 for the non-drop rate.
    pub loss_ratio: f64,
    /// Length of a trial that counts in full.
    pub trial: Duration,
    /// Total time of such trials at a load before the load is judged. A load is judged earlier once
    /// the remaining trials cannot change the verdict.
    pub sum: Duration,
    /// Share of that time in which more than [`loss_ratio`](Self::loss_ratio) may be lost, in
    /// `0.0..1.0`: the disturbances to tolerate.
    pub exceed_ratio: f64,
    /// Distance at which the bounds are close enough: from the highest load that is carried to the
    /// lowest that is too high, as a share of the latter.
    pub width: f64,
}

impl Default for Goal {
    /// The non-drop rate within half a percent; one of three trials of a second may go wrong.
    fn default() -> Self {
        Self {
            loss_ratio: 0.0,
            trial: Duration::from_secs(1),
            sum: Duration::from_secs(3),
            exceed_ratio: 0.5,
            width: 0.005,
        }
    }
}

/// How many times coarser and shorter each phase before the last one is.
const COARSENING: [u32; 2] = [4, 2];

impl Goal {
    /// Returns the phases of the search: first coarse ones with single short trials, then the goal
    /// itself.
    pub(crate) fn phases(&self) -> impl Iterator<Item = Self> {
        let coarser = COARSENING.into_iter().map(|factor| {
            let trial = self.trial / factor;
            Self { trial, sum: trial, width: self.width * f64::from(factor), ..*self }
        });
        coarser.chain([*self])
    }

    /// Returns true if a carried load and one that is too high are close enough.
    pub(crate) fn is_reached(&self, lower: u64, upper: u64) -> bool {
        upper - lower <= 1 || (upper - lower) as f64 <= upper as f64 * self.width
    }
}
