//! Rows of byte streams. Figures here count bytes, never frames.

use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::cpu::Cpu;
use crate::interval::Interval;
use crate::noise::Noise;
use crate::setting::SettingOfRun;

/// Result of byte streams by one technique between a number of pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StreamRow {
    /// `LINK/ENDPOINT`.
    pub technique: String,
    /// Link between the containers.
    pub link: String,
    /// I/O method of the programs in the containers.
    pub endpoint: String,
    /// Runtime that made the containers.
    pub runtime: String,
    /// Number of concurrent sender/receiver pairs.
    pub pairs: usize,
    /// Number of streams per pair.
    pub streams: u16,
    /// MTU of the links, in bytes.
    pub mtu: u32,
    /// Figures, or why there are none.
    #[serde(flatten)]
    pub outcome: StreamOutcome,
}

/// Outcome of a row: figures, or why there are none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum StreamOutcome {
    /// The technique ran.
    Measured(Box<MeasuredStreams>),
    /// The technique could not run.
    Skipped {
        /// Reason.
        skipped: String,
    },
}

/// Figures of a row, over all pairs. Counts are sums over all trials; rates and CPU time cover the
/// measured part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MeasuredStreams {
    /// Setting of the trials; its keys are part of this object.
    #[serde(flatten)]
    pub setting: SettingOfRun,
    /// How thoroughly the receivers checked bytes (`--check`).
    pub check: Check,
    /// Number of trials.
    pub trials: usize,
    /// Bytes accepted by the senders' kernel.
    pub sent_bytes: u64,
    /// Bytes that the receivers got intact.
    pub received_bytes: u64,
    /// Received bytes that TCP itself carried, by the kernel's count.
    pub by_tcp_bytes: u64,
    /// Number of reads that returned wrong bytes.
    pub corrupt_reads: u64,
    /// True if every stream was received to its end, and the kernel counted the same; null if the
    /// kernel does not count the bytes.
    #[serde(default)]
    pub counters_agree: Option<bool>,
    /// Number of retransmitted segments.
    pub retransmits: u64,
    /// Maximum segment size, in bytes; 0 if the kernel does not report it.
    pub segment_max: u32,
    /// Congestion control algorithm.
    pub congestion: String,
    /// Share of zero-copy calls in which the kernel copied nevertheless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zerocopy_copied_ratio: Option<f64>,
    /// Bits of payload received per second: mean over the trials.
    pub goodput_bps: f64,
    /// Standard deviation of the samples.
    pub stddev_bps: f64,
    /// Samples: one for each interval of each trial.
    pub samples_bps: Vec<f64>,
    /// Goodput of each trial, in bits per second.
    pub trials_bps: Vec<f64>,
    /// Half the 95 % confidence interval of `goodput_bps`: over the trials if there are several,
    /// else over the samples of the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval95_bps: Option<f64>,
    /// Other activity of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
    /// Goodput of the slowest pair of any trial.
    pub slowest_pair_bps: f64,
    /// Goodput of the fastest pair of any trial.
    pub fastest_pair_bps: f64,
    /// CPU time by role and in total, over all trials.
    pub cpu: Cpu,
    /// CPU cycles of all roles per byte received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles_per_byte: Option<f64>,
}

impl StreamRow {
    /// Figures of the row, if there are any.
    pub fn measured(&self) -> Option<&MeasuredStreams> {
        match &self.outcome {
            StreamOutcome::Measured(measured) => Some(measured),
            StreamOutcome::Skipped { .. } => None,
        }
    }

    /// Returns the reason why the row was skipped, if it was.
    pub fn skipped(&self) -> Option<&str> {
        match &self.outcome {
            StreamOutcome::Skipped { skipped } => Some(skipped),
            StreamOutcome::Measured(_) => None,
        }
    }
}

impl MeasuredStreams {
    /// 95 % confidence interval of the goodput, if there is one.
    pub fn interval(&self) -> Option<Interval> {
        match self.interval95_bps {
            Some(half) => Some(Interval { mean: self.goodput_bps, half }),
            // Older results lack the interval.
            None => Interval::of_rate(self.goodput_bps, &self.samples_bps, self.trials),
        }
    }

    /// Describes what disturbed the measurement, if anything did.
    pub fn disturbed(&self) -> Option<String> {
        self.setting.disturbed(self.noise)
    }

    /// Returns true if the counts contradict each other, so that the figure cannot be trusted.
    pub fn counters_disagree(&self) -> bool {
        self.counters_agree == Some(false)
    }

    /// Returns the mark of a figure that is less reliable than it looks: `!` if bytes are missing
    /// or wrong, `~` if it was disturbed.
    pub fn mark(&self) -> &'static str {
        match (self.counters_disagree(), self.disturbed()) {
            (true, _) => "!",
            (false, Some(_)) => "~",
            (false, None) => "",
        }
    }
}
