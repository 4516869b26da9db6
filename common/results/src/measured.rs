//! Figures of a row.

use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::cpu::Cpu;
use crate::drop_rate::DropRate;
use crate::interval::Interval;
use crate::latency::Percentiles;
use crate::lost_at::LostAt;
use crate::noise::Noise;
use crate::setting::SettingOfRun;
use crate::upf::UPF;

/// Role name of the switch.
pub const SWITCH: &str = "switch";

/// Figures of a row. Counts are sums over all trials, from the first frame to the last; rates and
/// CPU time cover only the measured part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Measured {
    /// Conditions of the trials; the keys are inlined into this object.
    #[serde(flatten)]
    pub setting: SettingOfRun,
    /// How thoroughly the receiver checked frames (`--check`).
    pub check: Check,
    /// Number of trials.
    pub trials: usize,
    /// Frames sent.
    pub sent: u64,
    /// Distinct frames received intact.
    pub received: u64,
    /// Frames that never arrived: `sent = received + lost + corrupt + queued`.
    pub lost: u64,
    /// Place at which frames were lost.
    pub lost_at: LostAt,
    /// Frames left in sockets at the end.
    pub queued: u64,
    /// Frames that arrived more than once.
    pub duplicated: u64,
    /// Frames that arrived after a later one.
    pub reordered: u64,
    /// Frames that arrived damaged.
    pub corrupt: u64,
    /// True if dray's counters and those of the kernel or the switch agree exactly; null if
    /// nothing other than dray's own ends counts the frames.
    #[serde(default)]
    pub counters_agree: Option<bool>,
    /// `lost / sent`.
    pub loss_ratio: f64,
    /// True if the sender fell short of `offered_pps` by more than 1 %.
    pub sent_less_than_offered: bool,
    /// Frames sent per second.
    pub sent_pps: f64,
    /// Frames received per second: the mean over the samples.
    pub received_pps: f64,
    /// Standard deviation of the samples.
    pub stddev_pps: f64,
    /// Receive rates of the samples.
    pub samples_pps: Vec<f64>,
    /// Half the 95 % confidence interval of `received_pps`: over the trials if there were several,
    /// else over the samples of the single trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval95_pps: Option<f64>,
    /// Other activity of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
    /// CPU time by role and in total, over all trials.
    pub cpu: Cpu,
    /// CPU cycles of all roles, and of the kernel on its own, per frame received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles_per_frame: Option<f64>,
    /// Cycles per frame without those spent on polling empty ports, as far as they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_cycles_per_frame: Option<f64>,
    /// Mb/s in received frames per busy core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mbps_per_core: Option<f64>,
    /// CPU cycles of the switch alone per frame received, if a user-space switch was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_cycles_per_frame: Option<f64>,
    /// Frames that the port with the fewest received, as a share of the mean of all receiving
    /// ports, if there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowest_share: Option<f64>,
    /// Frames received per second as a share of the machine's limit, for links with shared memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_share: Option<f64>,
    /// Highest rates within given loss ratios, if they were searched for. The other figures of the
    /// row then come from the trials at the first of these rates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drop_rates: Vec<DropRate>,
    /// Loss-free rate, if `offered_pps` is a share of it: the mean over the trials, in frames per
    /// second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_free_pps: Option<f64>,
    /// Bytes per second that the neighbour wrote, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour_bytes_per_s: Option<f64>,
    /// Round-trip time of frames in nanoseconds, if it was measured. At a given rate it counts
    /// from the time at which a frame was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Percentiles>,
    /// One-way latency of frames in nanoseconds, if it was measured: from the time at which a
    /// frame was due until the receiver had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_way_ns: Option<Percentiles>,
    /// Part of that latency before the sender handed the frame to its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_late_ns: Option<Percentiles>,
}

impl Measured {
    /// Returns the number of cores on which the user plane function was busy, if there was one,
    /// including its share of the softirqs there.
    pub fn upf_cores(&self) -> Option<f64> {
        let cost = self.cpu.roles.get(UPF)?;
        Some(cost.total_s() / self.cpu.elapsed_s).filter(|cores| *cores > 0.0)
    }

    /// Returns the number of frames received per second for each of these cores.
    pub fn upf_pps_per_core(&self) -> Option<f64> {
        self.upf_cores().map(|cores| self.received_pps / cores)
    }

    /// Returns the time in nanoseconds that the switch worked on a frame, without polling empty
    /// ports, if it reports that.
    pub fn switch_work_ns(&self) -> Option<f64> {
        let cost = self.cpu.roles.get(SWITCH)?;
        let work_s = cost.total_s() - cost.polling_s?;
        Some(work_s * 1e9 / (self.received_pps * self.cpu.elapsed_s)).filter(|ns| ns.is_finite())
    }

    /// Returns the cycles that the switch worked on a frame, without polling empty ports, if it
    /// reports that.
    pub fn switch_work_cycles(&self) -> Option<f64> {
        let cost = self.cpu.roles.get(SWITCH)?;
        let work = 1.0 - cost.polling_s? / cost.total_s();
        Some(self.switch_cycles_per_frame? * work).filter(|cycles| cycles.is_finite())
    }

    /// Returns the 95 % confidence interval of the receive rate, if there is one.
    pub fn interval(&self) -> Option<Interval> {
        match self.interval95_pps {
            Some(half) => Some(Interval { mean: self.received_pps, half }),
            // Results written before the field existed.
            None => Interval::of_rate(self.received_pps, &self.samples_pps, self.trials),
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

    /// Returns the mark of a figure that is less reliable than it looks: `!` if counters disagree,
    /// `*` if the sender fell short of the offered rate, `~` if it was disturbed.
    pub fn mark(&self) -> &'static str {
        match (self.counters_disagree(), self.sent_less_than_offered) {
            (true, _) => "!",
            (false, true) => "*",
            (false, false) if self.disturbed().is_some() => "~",
            (false, false) => "",
        }
    }
}
