//! Results: what `--json` writes. `docs/result.schema.json` describes it for other programs.

use std::collections::BTreeMap;
use std::time::Duration;

use dray_lab::{HostFacts, Lab, Runtime};
use dray_search::Goal;
use dray_traffic::{Latency, Percentiles};
use serde::{Deserialize, Serialize};

use crate::accounting::LostAt;
use crate::clock::ClockFacts;
use crate::cpu::CpuCost;
use crate::isolation::Isolation;
use crate::needs::{Needs, SetUp};
use crate::plan::Choices;
use crate::rounds::{CaseTrials, Journal};
use crate::stats;
use crate::streams::StreamRow;
use crate::topology::{Shape, Topology};
use crate::trial::{Agreements, Trial};
use crate::upf::UPF;
use crate::{Case, Interval, Noise, Settings, UpfLoad};

/// The version of the format. It changes when a reader of the old one would misunderstand.
pub const SCHEMA: u32 = 1;

/// Everything that one run of an experiment found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of dray.
    pub dray: String,
    /// When the run began (RFC 3339, UTC).
    pub time: String,
    /// The machine.
    pub host: HostFacts,
    /// Name of the experiment.
    pub experiment: String,
    /// How it was run.
    pub settings: SettingsRecord,
    /// One entry per technique, size and topology.
    pub results: Vec<ResultRow>,
    /// Byte streams: one entry per technique, MTU and number of pairs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamRow>,
    /// The clock, where frames were timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockFacts>,
    /// The limit of the machine, by frame size, where techniques are compared with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitRow>,
    /// Where the run was interrupted: what it takes to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<Box<Incomplete>>,
}

/// A run that was interrupted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Incomplete {
    /// Trials that there were; a search counts as one.
    pub trials_done: usize,
    /// Trials that there should have been.
    pub trials: usize,
    /// What was asked for on the command line, and the seed.
    pub choices: Choices,
    /// The CPUs that roles were given.
    pub cpus: Vec<usize>,
    /// What was found, trial by trial.
    pub journal: Journal,
}

/// How fast two CPUs can pass frames of some size on with one copy, and nothing else to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitRow {
    /// In bytes.
    pub frame_size: usize,
    /// The best of the trials, in frames per second.
    pub pps: f64,
    /// The trials' standard deviation.
    pub stddev_pps: f64,
    /// The trials.
    pub samples_pps: Vec<f64>,
}

impl LimitRow {
    pub(crate) fn new(frame_size: usize, samples_pps: Vec<f64>) -> Self {
        Self {
            frame_size,
            pps: samples_pps.iter().copied().fold(0.0, f64::max),
            stddev_pps: stats::standard_deviation(&samples_pps),
            samples_pps,
        }
    }
}

/// What results are of that do not say it: those from before there was anything else.
fn one() -> usize {
    1
}

fn one_station() -> u16 {
    1
}

fn usual_mtu() -> u32 {
    1500
}

/// Results from before there were others.
fn embedded() -> String {
    Runtime::Embedded.to_string()
}

/// What the trials of a case ran on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingOfRun {
    /// The CPU of each role.
    pub role_cores: BTreeMap<String, usize>,
    /// Whether roles shared a core.
    pub shared_cores: bool,
    /// Whether each container had a control group of its own; if not, it was pinned by its CPU
    /// affinity alone.
    pub control_groups: bool,
    /// How long it took to make containers and links, in seconds.
    #[serde(default)]
    pub set_up_s: f64,
    /// What made the containers, unless that was dray itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineFacts>,
    /// What was agreed on for the ports of each role that has such a port: by a port and its peer, or by
    /// an AF_XDP port and the kernel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub agreements: Agreements,
    /// The switch in user space, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<SwitchFacts>,
    /// What all that needed, as far as the kernel told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<Needs>,
    /// Whether all roles ran on CPUs that the kernel keeps free of other work.
    #[serde(default)]
    pub isolated_cores: bool,
}

/// A container engine, and what its containers were given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineFacts {
    /// Its version, as it says it.
    pub version: String,
    /// The capabilities of the containers.
    pub capabilities: Vec<String>,
}

/// What a switch in user space had to be given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwitchFacts {
    /// Huge pages reserved for it, in MiB.
    pub hugepages_mib: u32,
    /// Privileges, in words.
    pub privileges: String,
    /// Anything else.
    pub others: Vec<String>,
    /// From the start of its first process until it forwarded, in seconds.
    pub ready_s: f64,
}

impl SettingOfRun {
    /// Notes how long it took until all was ready for one more trial.
    pub(crate) fn add_set_up(&mut self, set_up: SetUp) {
        if let Some(needs) = &mut self.needs {
            needs.set_ups.push(set_up);
        }
    }

    pub(crate) fn of(
        lab: &Lab,
        topologies: &[Topology],
        set_up: Duration,
        agreements: &Agreements,
    ) -> Self {
        let stations = topologies.iter().flat_map(Topology::stations);
        let roles = stations.map(|it| (lab[it.container].name().to_owned(), it.cpu));
        let switch = topologies[0].switch_cpu.map(|cpu| ("switch".to_owned(), cpu));
        Self {
            role_cores: roles.chain(switch).collect(),
            shared_cores: topologies.iter().any(Topology::shares_cores),
            control_groups: lab.has_control_groups(),
            set_up_s: set_up.as_secs_f64(),
            engine: lab.engine().map(|(version, capabilities)| EngineFacts {
                version: version.to_owned(),
                capabilities: capabilities.into_iter().map(str::to_owned).collect(),
            }),
            agreements: agreements.clone(),
            switch: lab.switch().map(|switch| SwitchFacts {
                hugepages_mib: switch.needs().hugepages_mib,
                privileges: switch.needs().privileges.to_owned(),
                others: switch.needs().others.iter().map(|&other| other.to_owned()).collect(),
                ready_s: switch.ready_after().as_secs_f64(),
            }),
            needs: Needs::of(lab, topologies).ok(),
            isolated_cores: topologies.iter().all(Topology::has_isolated_cores),
        }
    }
}

/// [`Settings`] as they stand in results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingsRecord {
    /// Shortened by `--quick`: good for a first look, not for a decision.
    pub quick: bool,
    /// Sending before each measurement, in seconds.
    pub warm_up_s: f64,
    /// Length of each measurement, in seconds.
    pub measure_s: f64,
    /// Time between samples, in seconds.
    pub interval_s: f64,
    /// What the order of trials follows from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u32>,
    /// The network card whose virtual functions containers could get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}

impl From<&Settings> for SettingsRecord {
    fn from(settings: &Settings) -> Self {
        Self {
            quick: settings.quick,
            warm_up_s: settings.timing.warm_up.as_secs_f64(),
            measure_s: settings.timing.measure.as_secs_f64(),
            interval_s: settings.timing.interval.as_secs_f64(),
            seed: Some(settings.seed),
            parent: settings.parent.clone(),
        }
    }
}

/// One technique in one topology at one frame size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultRow {
    /// Link and endpoint.
    pub technique: String,
    /// How the containers are wired.
    pub link: String,
    /// How the programs in them do their I/O.
    pub endpoint: String,
    /// What a neighbour did that shared the last-level cache: `quiet`, `noisy` or `confined`; absent:
    /// there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour: Option<String>,
    /// Who made the containers.
    #[serde(default = "embedded")]
    pub runtime: String,
    /// `chain`, `fan`, `echo`, `pairs` or `upf`.
    pub topology: String,
    /// How many pairs of sender and receiver there were at the same time.
    #[serde(default = "one")]
    pub pairs: usize,
    /// How many forwarders stand between sender and receiver.
    pub forwarders: usize,
    /// What the user plane function between them had to do, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upf: Option<UpfLoad>,
    /// MTU of the links, in bytes.
    #[serde(default = "usual_mtu")]
    pub mtu: u32,
    /// In bytes, without frame check sequence.
    pub frame_size: usize,
    /// Frames per burst.
    pub burst: usize,
    /// Flows per link of the sender.
    pub flows: u16,
    /// Pairs of machines, by their MAC addresses, that frames were between in turn.
    #[serde(default = "one_station")]
    pub stations: u16,
    /// Frames per second that were asked for; absent: as many as possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_pps: Option<f64>,
    /// What `offered_pps` is of the loss-free rate, where it is a share of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_share: Option<f64>,
    /// The receive rate that the paper states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper_pps: Option<f64>,
    /// What was found.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Figures, or why there are none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Outcome {
    /// The technique ran.
    Measured(Box<Measured>),
    /// It ran, and is there to keep containers apart.
    Isolated {
        /// Whether it did.
        isolation: Isolation,
    },
    /// It could not.
    Skipped {
        /// Why.
        skipped: String,
    },
}

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

/// The highest rate at which no more than a share of the frames is lost: the non-drop rate, where that
/// is nothing, or a partial drop rate. See `dray_search` for the method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DropRate {
    /// The share that may be lost in a trial.
    pub loss_ratio: f64,
    /// Length of the trials that count, in seconds.
    pub trial_s: f64,
    /// For how long they ran at a rate before it was judged, in seconds, where that was not clear
    /// earlier.
    pub sum_s: f64,
    /// The share of that time in which more could be lost.
    pub exceed_ratio: f64,
    /// How close the bounds were to come to each other, as a share of the upper one.
    pub width: f64,
    /// The mean of the searches' lower bounds, in frames per second; 0 for those that have none.
    pub pps: f64,
    /// Half the 95 % confidence interval of that, where there were several searches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval95_pps: Option<f64>,
    /// One entry per search.
    pub searches: Vec<SearchRecord>,
}

/// One search for one such rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchRecord {
    /// The highest rate that was carried below all that were not, in frames per second; absent: not
    /// even the lowest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_pps: Option<u64>,
    /// The lowest rate that was not carried; absent: all were that the sender could send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper_pps: Option<u64>,
    /// Frames per second that arrived at the lower bound.
    pub throughput_pps: f64,
    /// What there was too much of above.
    pub limited_by: LimitedBy,
    /// Trials of the search, for all of its rates together.
    pub trials: usize,
}

/// Why a rate was not carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitedBy {
    /// Frames were lost.
    Loss,
    /// The sender could not send more.
    Sender,
}

impl DropRate {
    fn of(goal: &Goal, searches: Vec<SearchRecord>) -> Self {
        let lower: Vec<f64> =
            searches.iter().map(|search| search.lower_pps.unwrap_or(0) as f64).collect();
        Self {
            loss_ratio: goal.loss_ratio,
            trial_s: goal.trial.as_secs_f64(),
            sum_s: goal.sum.as_secs_f64(),
            exceed_ratio: goal.exceed_ratio,
            width: goal.width,
            pps: stats::mean(&lower),
            interval95_pps: Interval::of(&lower).map(|interval| interval.half),
            searches,
        }
    }

    /// The 95 % confidence interval of the rate, where there were several searches.
    pub fn interval(&self) -> Option<Interval> {
        self.interval95_pps.map(|half| Interval { mean: self.pps, half })
    }
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

impl ResultRow {
    /// A row for `case`.
    pub fn new(case: &Case, settings: &Settings, mut outcome: Outcome) -> Self {
        if let Outcome::Measured(measured) = &mut outcome {
            let mbps = measured.received_pps * case.size as f64 * 8.0 / 1e6;
            let per_core = mbps / measured.cpu.cores();
            measured.mbps_per_core = per_core.is_finite().then_some(per_core);
        }
        let share_pps = match &outcome {
            Outcome::Measured(measured) => {
                case.share.zip(measured.loss_free_pps).map(|(share, pps)| share * pps)
            }
            _ => None,
        };
        let (topology, forwarders) = match case.shape {
            Shape::Chain(count) => ("chain", count),
            Shape::Fan(count) => ("fan", count),
            Shape::Echo => ("echo", 0),
            Shape::Pairs(_) => ("pairs", 0),
            Shape::Upf(_) => ("upf", 0),
        };
        Self {
            technique: case.technique.to_string(),
            link: case.technique.link.to_string(),
            endpoint: case.technique.endpoint.to_string(),
            neighbour: case.neighbour.map(|neighbour| neighbour.name().to_owned()),
            runtime: case.runtime.to_string(),
            topology: topology.to_owned(),
            pairs: case.shape.pairs(),
            forwarders,
            upf: match case.shape {
                Shape::Upf(load) => Some(load),
                _ => None,
            },
            mtu: case.mtu,
            frame_size: case.size,
            burst: settings.burst,
            flows: settings.flows,
            stations: settings.stations,
            offered_pps: case.rate.or(share_pps),
            load_share: case.share,
            paper_pps: case.paper_pps,
            outcome,
        }
    }

    /// The figures, where there are any.
    pub fn measured(&self) -> Option<&Measured> {
        match &self.outcome {
            Outcome::Measured(measured) => Some(measured),
            Outcome::Isolated { .. } | Outcome::Skipped { .. } => None,
        }
    }

    /// Whether containers were kept apart, where they should have been.
    pub fn isolation(&self) -> Option<&Isolation> {
        match &self.outcome {
            Outcome::Isolated { isolation } => Some(isolation),
            _ => None,
        }
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
