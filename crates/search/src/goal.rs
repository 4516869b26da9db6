//! What is looked for.

use std::time::Duration;

/// The highest load of which no more than a share is lost, and how sure one wants to be of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The share of a trial's frames that may be lost: 0 for the non-drop rate.
    pub loss_ratio: f64,
    /// How long a trial lasts that counts in full.
    pub trial: Duration,
    /// For how long such trials run at a load, in all, before it is judged. A load of which the rest
    /// cannot change the verdict any more is judged earlier.
    pub sum: Duration,
    /// The share of that time in which more may be lost than [`loss_ratio`](Self::loss_ratio), from 0
    /// to below 1: the disturbances that one is willing to overlook.
    pub exceed_ratio: f64,
    /// How close the lowest load that is too high is to the highest that is not, as a share of the
    /// former.
    pub width: f64,
}

impl Default for Goal {
    /// The non-drop rate to half a percent: of three trials of a second one may go wrong.
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

/// How many times coarser and shorter each phase before the last is.
const COARSENING: [u32; 2] = [4, 2];

impl Goal {
    /// The phases of looking for it: first coarse ones of single short trials, then the goal itself.
    pub(crate) fn phases(&self) -> impl Iterator<Item = Self> {
        let coarser = COARSENING.into_iter().map(|factor| {
            let trial = self.trial / factor;
            Self { trial, sum: trial, width: self.width * f64::from(factor), ..*self }
        });
        coarser.chain([*self])
    }

    /// Whether a load that is carried and one that is too high are close enough.
    pub(crate) fn is_reached(&self, lower: u64, upper: u64) -> bool {
        upper - lower <= 1 || (upper - lower) as f64 <= upper as f64 * self.width
    }
}
