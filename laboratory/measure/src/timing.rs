//! Lengths of trials.

use std::time::Duration;

/// Length of a trial and of its sampling interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time of sending before the measurement starts.
    pub warm_up: Duration,
    /// Length of the measurement.
    pub measure: Duration,
    /// Time between samples; the other two are multiples of it.
    pub interval: Duration,
}

impl Timing {
    /// Creates a timing from milliseconds.
    pub(crate) const fn of_ms(warm_up: u64, measure: u64, interval: u64) -> Self {
        Self {
            warm_up: Duration::from_millis(warm_up),
            measure: Duration::from_millis(measure),
            interval: Duration::from_millis(interval),
        }
    }
}
