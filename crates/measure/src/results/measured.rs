//! The figures of a row.

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

/// The figures of a row. Counts are sums over all trials, from the first frame to the last; rates
/// and CPU time are of the measured part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What the trials ran on; its keys are the object's own.
    #[serde(flatten)]
    pub setting: SettingOfRun,
    /// How closely the receiver looked at frames: `whole`, `sampled`, or `none`.
    pub check: String,
    /// How many trials there were.
    pub trials: usize,
    /// Frames sent.
    pub sent: u64,
    /// Distinct frames received intact.
    pub received: u64,
    /// Frames that never arrived: `sent = received + lost + corrupt + queued`.
    pub lost: u64,
    /// Where.
    pub lost_at: LostAt,
    /// Frames left in sockets at the end.
    pub queued: u64,
    /// Frames that arrived again.
    pub duplicated: u64,
    /// Frames that arrived behind a later one.
    pub reordered: u64,
    /// Frames that arrived damaged.
    pub corrupt: u64,
    /// Whether our counters and the kernel's agree exactly.
    pub counters_agree: bool,
    /// `lost / sent`.
    pub loss_ratio: f64,
    /// Whether the sender fell short of `offered_pps` by more than 1 %.
    pub sent_less_than_offered: bool,
    /// Frames sent per second.
    pub sent_pps: f64,
    /// Frames received per second: the mean over the samples.
    pub received_pps: f64,
    /// Their standard deviation.
    pub stddev_pps: f64,
    /// The samples.
    pub samples_pps: Vec<f64>,
    /// Half the 95 % confidence interval of `received_pps`: over the trials where there were several,
    /// else over the samples of the one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval95_pps: Option<f64>,
    /// What else the machine did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
    /// CPU time by role and in all, of all trials.
    pub cpu: Cpu,
    /// CPU cycles of all roles, and of the kernel by itself, per frame received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles_per_frame: Option<f64>,
    /// The same without those spent on looking for frames where there were none, as far as that is
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_cycles_per_frame: Option<f64>,
    /// Mb/s in frames received for each core that was busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mbps_per_core: Option<f64>,
    /// CPU cycles of the switch alone per frame received, where there was one in user space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_cycles_per_frame: Option<f64>,
    /// Frames received per second as a share of the machine's limit, where memory was shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_share: Option<f64>,
    /// The highest rates within given losses, where those were searched for. The other figures of the
    /// row are then of the trials at the first of these rates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drop_rates: Vec<DropRate>,
    /// The loss-free rate, where `offered_pps` is a share of it: the mean of the trials', in frames per
    /// second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_free_pps: Option<f64>,
    /// Bytes per second that the neighbour wrote, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour_bytes_per_s: Option<f64>,
    /// How long frames took there and back, where that was measured, in nanoseconds. At a given rate it
    /// counts from when they were due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Percentiles>,
    /// How long frames took one way, from when they were due until the receiver had them, where that
    /// was measured, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_way_ns: Option<Percentiles>,
    /// How long of that they waited for the sender to hand them to its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_late_ns: Option<Percentiles>,
}

/// CPU time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// By role.
    pub roles: BTreeMap<String, CpuCost>,
    /// Of all roles.
    pub total: CpuCost,
    /// Measured time over which it was spent, in seconds.
    pub elapsed_s: f64,
}

impl Cpu {
    /// Adds what the roles spent over `measure`.
    pub(crate) fn add(&mut self, roles: &[(String, CpuCost)], measure: Duration) {
        for (role, cost) in roles {
            *self.roles.entry(role.clone()).or_default() += *cost;
            self.total += *cost;
        }
        self.elapsed_s += measure.as_secs_f64();
    }

    /// How many cores were busy.
    pub fn cores(&self) -> f64 {
        self.total.total_s() / self.elapsed_s
    }
}

impl Measured {
    /// On how many cores the user plane function was busy, where there was one; its part of the softirqs
    /// there included.
    pub fn upf_cores(&self) -> Option<f64> {
        let cost = self.cpu.roles.get(UPF)?;
        Some(cost.total_s() / self.cpu.elapsed_s).filter(|cores| *cores > 0.0)
    }

    /// Frames received per second for each of these cores.
    pub fn upf_pps_per_core(&self) -> Option<f64> {
        self.upf_cores().map(|cores| self.received_pps / cores)
    }

    /// Sums up the trials of one case: at least one.
    pub(crate) fn of(case: &CaseTrials, settings: &Settings, limit: Option<&LimitRow>) -> Self {
        let trials = &case.trials[..];
        let setting = case.setting.as_ref().expect("there is a trial");
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

    /// The 95 % confidence interval of the receive rate, where there is one.
    pub fn interval(&self) -> Option<Interval> {
        match self.interval95_pps {
            Some(half) => Some(Interval { mean: self.received_pps, half }),
            // Results from before it was in them.
            None => Interval::of_rate(self.received_pps, &self.samples_pps, self.trials),
        }
    }

    /// What disturbed it, in words.
    pub fn disturbed(&self) -> Option<String> {
        self.noise?.in_words()
    }
}
