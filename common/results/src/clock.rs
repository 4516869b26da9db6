//! The clock that timed frames.

use serde::{Deserialize, Serialize};

/// Properties of the clock, measured before a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClockFacts {
    /// Duration of one reading, in nanoseconds.
    pub read_ns: f64,
    /// Smallest difference between two readings, in nanoseconds.
    pub step_ns: f64,
    /// Error of the measured counter rate against the monotonic clock, in parts per million.
    pub rate_ppm: f64,
    /// Offsets between the counters of the CPUs that send and receive frames.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offsets: Vec<Offset>,
}

/// Offset between the counters of two CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Offset {
    /// The two CPUs.
    pub cpus: [usize; 2],
    /// Time by which the second CPU's counter is ahead, in nanoseconds.
    pub ahead_ns: f64,
    /// Uncertainty of `ahead_ns`: half of the time in which the two CPUs exchange a message.
    pub within_ns: f64,
}

impl Offset {
    /// Maximum error of a time between these two CPUs.
    fn most_ns(self) -> f64 {
        self.ahead_ns.abs() + self.within_ns
    }
}

impl ClockFacts {
    /// Maximum error of a time between a sender and a receiver, in nanoseconds.
    pub fn error_ns(&self) -> f64 {
        let most = self.offsets.iter().map(|offset| offset.most_ns()).fold(0.0, f64::max);
        most + self.step_ns + self.read_ns
    }
}
