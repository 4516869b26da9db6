//! Figures of a row.

use std::collections::BTreeMap;
use std::time::Duration;

use dray_traffic::{Latency, Percentiles};
use serde::{Deserialize, Serialize};

use super::{DropRate, LimitRow, SettingOfRun};
use crate::accounting::LostAt;
use crate::cpu::CpuCost;
use crate::rounds::CaseTrials;
use crate::trial::Trial;
use crate::upf::UPF;
use crate::{Interval, Noise, Settings, stats};

/// Figures of a row. Counts are sums over all trials, from the first frame to the last; rates and
/// CPU time cover only the measured part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Conditions of the trials; the keys are inlined into this object.
    #[serde(flatten)]
    pub setting: SettingOfRun,
    /// How thoroughly the receiver checked frames: `whole`, `sampled`, or `none`.
    pub check: String,
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
    /// True if dray's counters and the kernel's agree exactly.
    pub counters_agree: bool,
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
    /// The same without the cycles spent on polling empty ports, as far as they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_cycles_per_frame: Option<f64>,
    /// Mb/s in received frames per busy core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mbps_per_core: Option<f64>,
    /// CPU cycles of the switch alone per frame received, if a user-space switch was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_cycles_per_frame: Option<f64>,
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
    /// Round-trip time of frames in nanoseconds, if it was measured. At a given rate it counts from
    /// the time at which a frame was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Percentiles>,
    /// One-way latency of frames in nanoseconds, if it was measured: from the time at which a frame
    /// was due until the receiver had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_way_ns: Option<Percentiles>,
    /// Part of that latency before the sender handed the frame to its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_late_ns: Option<Percentiles>,
}

/// CPU time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// CPU time by role.
    pub roles: BTreeMap<String, CpuCost>,
    /// CPU time of all roles.
    pub total: CpuCost,
    /// Measured time over which the CPU time was spent, in seconds.
    pub elapsed_s: f64,
}

impl Cpu {
    /// Adds the CPU time that the roles spent over `measure`.
    pub(crate) fn add(&mut self, roles: &[(String, CpuCost)], measure: Duration) {
        for (role, cost) in roles {
            *self.roles.entry(role.clone()).or_default() += *cost;
            self.total += *cost;
        }
        self.elapsed_s += measure.as_secs_f64();
    }

    /// Returns the number of busy cores.
    pub fn cores(&self) -> f64 {
        self.total.total_s() / self.elapsed_s
    }
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

    /// Sums up the trials of one case, which has at least one.
    pub(crate) fn of(case: &CaseTrials, settings: &Settings, limit: Option<&LimitRow>) -> Self {
        let trials = &case.trials[..];
        let setting = case.setting.as_ref().expect("at least one trial");
        let sum = |field: fn(&Trial) -> u64| trials.iter().map(field).sum::<u64>();
        let mean =
            |field: fn(&Trial) -> f64| stats::mean(&trials.iter().map(field).collect::<Vec<_>>());
        let samples_pps: Vec<f64> =
            trials.iter().flat_map(|trial| trial.receive_rates.iter().copied()).collect();
        let mut lost_at = LostAt::default();
        let mut cpu = Cpu::default();
        for trial in trials {
            lost_at += trial.audit.lost_at;
            cpu.add(&trial.cpu, trial.measure);
        }
        let (sent, lost) = (sum(|trial| trial.sent), sum(|trial| trial.audit.lost_at.total()));
        let mean_of = |field: fn(&Trial) -> Option<f64>| {
            let values: Option<Vec<f64>> = trials.iter().map(field).collect();
            values.map(|values| stats::mean(&values))
        };
        let rates: Vec<f64> = trials.iter().map(|trial| trial.received_pps).collect();
        let received_pps = stats::mean(&rates);
        let percentiles = |of: fn(&Trial) -> Option<&Latency>| {
            let mut sum = Latency::default();
            trials.iter().filter_map(of).for_each(|part| sum.add(part));
            sum.percentiles()
        };
        let cycles_per_frame = mean_of(|trial| trial.cycles_per_frame);
        let polling = cpu.total.polling_s.map(|polling_s| polling_s / cpu.total.total_s());
        Self {
            setting: setting.clone(),
            check: case.check.clone(),
            trials: trials.len(),
            sent,
            received: sum(|trial| trial.received),
            lost,
            lost_at,
            queued: sum(|trial| trial.audit.queued),
            duplicated: sum(|trial| trial.duplicated),
            reordered: sum(|trial| trial.reordered),
            corrupt: sum(|trial| trial.corrupt),
            counters_agree: trials.iter().all(|trial| trial.audit.agrees),
            loss_ratio: if sent == 0 { 0.0 } else { lost as f64 / sent as f64 },
            sent_less_than_offered: trials.iter().any(Trial::sent_less_than_offered),
            sent_pps: mean(|trial| trial.sent_pps),
            received_pps,
            stddev_pps: stats::standard_deviation(&samples_pps),
            interval95_pps: Interval::of_rate(received_pps, &samples_pps, trials.len())
                .map(|interval| interval.half),
            samples_pps,
            noise: Some(Noise::sum(trials.iter().map(|trial| trial.noise))),
            cpu,
            cycles_per_frame,
            work_cycles_per_frame: cycles_per_frame
                .zip(polling)
                .map(|(cycles, polling)| cycles * (1.0 - polling)),
            mbps_per_core: None,
            switch_cycles_per_frame: mean_of(|trial| trial.switch_cycles_per_frame),
            drop_rates: (0..)
                .zip(&settings.goals)
                .filter(|_| !case.searches.is_empty())
                .map(|(index, goal)| {
                    let searches = case.searches.iter().map(|goals| goals[index].clone());
                    DropRate::of(goal, searches.collect())
                })
                .collect(),
            loss_free_pps: (!case.loss_free.is_empty()).then(|| stats::mean(&case.loss_free)),
            neighbour_bytes_per_s: mean_of(|trial| trial.neighbour_bytes_per_s),
            latency_ns: percentiles(|trial| trial.latency.as_ref()),
            one_way_ns: percentiles(|trial| trial.one_way.as_ref()),
            sender_late_ns: percentiles(|trial| trial.sender_late.as_ref()),
            limit_share: limit.map(|limit| received_pps / limit.pps),
        }
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
        self.noise?.in_words()
    }
}
