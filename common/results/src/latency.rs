//! Percentiles of latency.

use serde::{Deserialize, Serialize};

/// Percentiles of a histogram of latency, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[expect(missing_docs, reason = "the names are the field's own")]
pub struct Percentiles {
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    /// Present if enough times were counted for some to be above it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p9999: Option<u64>,
    pub max: u64,
}
