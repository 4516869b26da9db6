//! Experiments: named sets of trials, each the answer to one question.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use dray_lab::{Cancel, HostFacts, Lab, LabError, LinkKind, Placement};
use dray_port::{BATCH_MAX, limit};
use dray_traffic::Check;
use dray_wire::headers::ETHERNET_LEN;
use dray_wire::{FRAME_MAX, FRAME_MIN};

use crate::results::{
    LimitRow, Measured, Outcome, ResultRow, Results, SCHEMA, SettingOfRun, SettingsRecord,
};
use crate::topology::{Load, Shape, Topology};
use crate::trial::{self, Timing, Trial};
use crate::{Endpoint, Technique};

/// An experiment: what is measured unless the command line says otherwise.
#[derive(Debug)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// The question that it answers, in one line.
    pub about: &'static str,
    /// The topologies.
    shapes: &'static [Shape],
    /// How the containers are wired and what is in them.
    techniques: fn() -> Vec<Technique>,
    /// Frame sizes in bytes.
    sizes: &'static [usize],
    /// Frames per second; none: as many as possible.
    rates: &'static [f64],
    /// Frames per burst.
    burst: usize,
    /// Trials per case.
    trials: usize,
    /// How long each trial lasts.
    timing: Timing,
    /// The receive rate that the paper states, in frames per second.
    paper_pps: fn(Technique, Shape) -> Option<f64>,
    /// Where that rate stands and what it was measured on.
    pub paper: Option<&'static str>,
    /// How the table is arranged.
    pub layout: Layout,
}

/// How an experiment's results are put into a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A row for each result, all figures in it.
    List,
    /// A row for each endpoint, a column for each link, the paper's figure in front.
    EndpointsByLink,
    /// A row for each number of forwarders, a column for each technique.
    ForwardersByTechnique,
    /// A row for each offered rate, a column for each technique.
    RatesByTechnique,
    /// A row for each technique, a column for each size.
    TechniquesBySize,
    /// A row for each switch with each endpoint, columns for each size, and what switches need.
    Switches,
    /// The limit of the machine only.
    Limits,
    /// A row for each technique, columns for how long round trips take.
    RoundTrips,
}

const STEADY: Timing = Timing {
    warm_up: Duration::from_secs(2),
    measure: Duration::from_secs(10),
    interval: Duration::from_secs(1),
};

/// The kernel's links.
const KERNEL: &[LinkKind] = &[LinkKind::Veth, LinkKind::Bridge];

/// The switches in user space, each in the way that is its own.
const SWITCHES: &[LinkKind] = &[
    LinkKind::PATCH,
    LinkKind::LEARNING,
    LinkKind::PEERS[0],
    LinkKind::PEERS[1],
    LinkKind::PEERS[2],
    LinkKind::PEERS[3],
    LinkKind::PEERS[4],
];

/// What most experiments have in common.
const USUAL: Experiment = Experiment {
    name: "",
    about: "",
    shapes: &[Shape::Chain(0)],
    techniques: Vec::new,
    sizes: &[64],
    rates: &[],
    burst: 64,
    trials: 1,
    timing: STEADY,
    paper_pps: |_, _| None,
    paper: None,
    layout: Layout::List,
};

const ARA2019_SWITCHES: Option<&str> =
    Some("Ara et al. 2019: over 5 Mpps at 64 B through every switch; testpmd, Snabb, VPP, OVS");

/// One point of `ara2019`: the mean of 20 per-second rates, the first 20 left out.
const ARA2019: Timing = Timing {
    warm_up: Duration::from_secs(20),
    measure: Duration::from_secs(20),
    interval: Duration::from_secs(1),
};

const CASONI2013: Option<&str> =
    Some("Casoni et al. 2013: near 500 kpps over veth and a bridge, the highest rate without loss");

const QUICK: Timing = Timing {
    warm_up: Duration::from_millis(300),
    measure: Duration::from_secs(1),
    interval: Duration::from_millis(100),
};

/// Every experiment; the first is the one that runs when none is named.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "all",
        about: "every technique this host can run, sending as fast as it can",
        techniques: Technique::all,
        sizes: &[64, 1500],
        ..USUAL
    },
    Experiment {
        name: "switches",
        about: "the same endpoints through our switch and through others that are installed",
        techniques: || Technique::by_endpoint(SWITCHES, &Endpoint::MEMORY),
        sizes: &[64, 512, 1500],
        burst: 128,
        trials: 2,
        layout: Layout::Switches,
        ..USUAL
    },
    Experiment {
        name: "limit",
        about: "the limit of the machine: one copy between two CPUs, and nothing else",
        sizes: &[64, 512, 1500],
        trials: 5,
        layout: Layout::Limits,
        ..USUAL
    },
    Experiment {
        name: "rtt",
        about: "one frame at a time to an echo and back: how long that takes",
        shapes: &[Shape::Echo],
        techniques: round_trips,
        burst: 1,
        layout: Layout::RoundTrips,
        ..USUAL
    },
    Experiment {
        name: "ara2019-table1",
        about: "four kinds of socket over a bridge and a veth pair, beside the paper's table 1",
        techniques: || Technique::by_link(KERNEL, &Endpoint::SOCKETS),
        timing: ARA2019,
        paper_pps: |technique, _| match (technique.link, technique.endpoint) {
            (LinkKind::Bridge, Endpoint::Udp) => Some(227e3),
            (LinkKind::Bridge, Endpoint::UdpMmsg) => Some(276e3),
            (LinkKind::Bridge, Endpoint::Raw) => Some(471e3),
            (LinkKind::Bridge, Endpoint::RawMmsg) => Some(594e3),
            _ => None,
        },
        paper: Some("table 1 of Ara et al. 2019: over a bridge, Xeon E5-2640 v4, Linux 4.15"),
        layout: Layout::EndpointsByLink,
        ..USUAL
    },
    Experiment {
        name: "ara2019-fig2",
        about: "receive rate against offered rate through shared memory and switches, 64 B",
        techniques: shared_memory,
        rates: &[1e6, 2e6, 3e6, 4e6, 5e6, 6e6, 8e6, 10e6, 12e6, 15e6, 20e6],
        burst: 16,
        timing: ARA2019,
        paper: ARA2019_SWITCHES,
        layout: Layout::RatesByTechnique,
        ..USUAL
    },
    Experiment {
        name: "ara2019-fig3",
        about: "highest receive rate against frame size through shared memory and switches",
        techniques: shared_memory,
        sizes: &[64, 128, 256, 512, 1024, 1280, 1500],
        burst: 16,
        timing: ARA2019,
        paper: ARA2019_SWITCHES,
        layout: Layout::TechniquesBySize,
        ..USUAL
    },
    Experiment {
        name: "casoni2013-serial",
        about: "chains of 1 to 8 forwarders, sending as fast as the sender can",
        shapes: &[
            Shape::Chain(1),
            Shape::Chain(2),
            Shape::Chain(3),
            Shape::Chain(4),
            Shape::Chain(5),
            Shape::Chain(6),
            Shape::Chain(7),
            Shape::Chain(8),
        ],
        techniques: || Technique::by_link(KERNEL, &[Endpoint::RawMmsg]),
        paper: CASONI2013,
        layout: Layout::ForwardersByTechnique,
        ..USUAL
    },
    Experiment {
        name: "casoni2013-parallel",
        about: "2 to 4 forwarders side by side, sending as fast as the sender can",
        shapes: &[Shape::Fan(2), Shape::Fan(3), Shape::Fan(4)],
        techniques: || Technique::by_link(KERNEL, &[Endpoint::RawMmsg]),
        paper: CASONI2013,
        layout: Layout::ForwardersByTechnique,
        ..USUAL
    },
];

/// Our endpoints, joined in every way that shares memory.
fn shared_memory() -> Vec<Technique> {
    let links = [&[LinkKind::Direct], SWITCHES].concat();
    Technique::by_link(&links, &[Endpoint::Virtio])
}

/// Whatever there is: shared memory first, then one system call a frame.
fn round_trips() -> Vec<Technique> {
    let sockets = Technique::by_link(KERNEL, &[Endpoint::Udp, Endpoint::Raw]);
    shared_memory().into_iter().chain(sockets).collect()
}

/// What the command line asks for; `None` leaves it to the experiment.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// Frame sizes in bytes.
    pub sizes: Option<Vec<usize>>,
    /// Frames per burst.
    pub burst: Option<usize>,
    /// Flows per link of the sender.
    pub flows: Option<u16>,
    /// Pairs of machines, by their MAC addresses, that frames are between.
    pub stations: Option<u16>,
    /// Frames per second.
    pub rate: Option<f64>,
    /// Techniques, as `--technique` reads them.
    pub techniques: Option<Vec<String>>,
    /// Length of a measurement.
    pub duration: Option<Duration>,
    /// Trials per case.
    pub trials: Option<usize>,
    /// MTU of the links in bytes.
    pub mtu: Option<u32>,
    /// CPUs for the roles, in this order.
    pub cpus: Option<Vec<usize>>,
    /// How closely receivers look at frames.
    pub check: Option<Check>,
    /// Shorten everything.
    pub quick: bool,
}

/// How an experiment is run: its own defaults and the user's choices, checked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Frames per burst.
    pub burst: usize,
    /// Flows per link of the sender.
    pub flows: u16,
    /// Pairs of machines, by their MAC addresses, that frames are between in turn.
    pub stations: u16,
    /// How closely receivers look at frames; `None` leaves it to the technique.
    pub check: Option<Check>,
    /// Length of trials.
    pub timing: Timing,
    /// Trials per case.
    pub trials: usize,
    /// MTU of the links in bytes.
    pub mtu: u32,
    /// Which role runs where.
    pub placement: Placement,
    /// Whether everything was shortened.
    pub quick: bool,
}

/// One row to be: a technique in a topology at a frame size.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Link and endpoint.
    pub technique: Technique,
    /// Arrangement of the roles.
    pub shape: Shape,
    /// Frame size in bytes.
    pub size: usize,
    /// Frames per second; `None` for as many as possible.
    pub rate: Option<f64>,
    /// What the paper found, in frames per second.
    pub paper_pps: Option<f64>,
}

/// A choice that cannot be.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it all")]
pub enum WrongChoice {
    #[error("unknown experiment {given:?}: one of {}", names().join(", "))]
    Experiment { given: String },
    #[error(transparent)]
    Technique(#[from] crate::technique::UnknownTechnique),
    #[error("{experiment} does not use {given}; it uses {allowed}")]
    TechniqueOfAnother { experiment: &'static str, given: String, allowed: String },
    #[error(
        "--size {given}: {FRAME_MIN} to {max} bytes (MTU {mtu} and {ETHERNET_LEN} of Ethernet)"
    )]
    Size { given: usize, max: usize, mtu: u32 },
    #[error("--rate {given}: more than 0 frames per second, for example 100000, 100k or 1.5M")]
    Rate { given: f64 },
    #[error("--burst {given}: 1 to {BATCH_MAX} frames")]
    Burst { given: usize },
    #[error("--flows {given}: 1 to 16384 flows per link of the sender")]
    Flows { given: u16 },
    #[error("--flows {given}: {technique} sends one flow, its socket's; choose raw techniques")]
    OneFlow { given: u16, technique: Technique },
    #[error("--stations {given}: 1 to 16384 pairs of MAC addresses, with one flow")]
    Stations { given: u16 },
    #[error(
        "--stations {given}: {technique} sends from one station; choose techniques with raw sockets \
         or our endpoints that share memory"
    )]
    OneStation { given: u16, technique: Technique },
    #[error("{technique} sends as fast as it can and at no given rate; choose other techniques")]
    NoRate { technique: Technique },
    #[error("--trials {given}: 1 to 1000")]
    Trials { given: usize },
    #[error("--duration {} s: 0.5 to 3600 seconds", given.as_secs_f64())]
    Duration { given: Duration },
    #[error("--mtu {given}: 68 to 9000 bytes")]
    Mtu { given: u32 },
    #[error(transparent)]
    Cpu(LabError),
}

/// The names of all experiments.
pub fn names() -> Vec<&'static str> {
    EXPERIMENTS.iter().map(|experiment| experiment.name).collect()
}

/// The experiment called `name`.
pub fn find(name: &str) -> Result<&'static Experiment, WrongChoice> {
    let found = EXPERIMENTS.iter().find(|experiment| experiment.name == name);
    found.ok_or_else(|| WrongChoice::Experiment { given: name.to_owned() })
}

impl Settings {
    fn new(experiment: &Experiment, choices: &Choices) -> Result<Self, WrongChoice> {
        let burst = choices.burst.unwrap_or(experiment.burst);
        if !(1..=BATCH_MAX).contains(&burst) {
            return Err(WrongChoice::Burst { given: burst });
        }
        let flows = choices.flows.unwrap_or(1);
        if !(1..=16384).contains(&flows) {
            return Err(WrongChoice::Flows { given: flows });
        }
        let stations = choices.stations.unwrap_or(1);
        if !(1..=16384).contains(&stations) || (stations > 1 && flows > 1) {
            return Err(WrongChoice::Stations { given: stations });
        }
        if let Some(given) = choices.rate.filter(|rate| !(rate.is_finite() && *rate > 0.0)) {
            return Err(WrongChoice::Rate { given });
        }
        let trials = choices.trials.unwrap_or(experiment.trials);
        if !(1..=1000).contains(&trials) {
            return Err(WrongChoice::Trials { given: trials });
        }
        let mtu = choices.mtu.unwrap_or(1500);
        if !(68..=9000).contains(&mtu) {
            return Err(WrongChoice::Mtu { given: mtu });
        }
        let placement = match &choices.cpus {
            Some(cpus) => Placement::of(cpus).map_err(WrongChoice::Cpu)?,
            None => Placement::of_this_process(),
        };
        let timing = timing(experiment, choices)?;
        let (check, quick) = (choices.check, choices.quick);
        Ok(Self { burst, flows, stations, check, timing, trials, mtu, placement, quick })
    }
}

fn timing(experiment: &Experiment, choices: &Choices) -> Result<Timing, WrongChoice> {
    let default = if choices.quick { QUICK } else { experiment.timing };
    let Some(given) = choices.duration else { return Ok(default) };
    if !(Duration::from_millis(500)..=Duration::from_secs(3600)).contains(&given) {
        return Err(WrongChoice::Duration { given });
    }
    // Whole seconds from five of them on; below, enough shorter samples for a deviation.
    let interval = if given >= 5 * STEADY.interval { STEADY.interval } else { QUICK.interval };
    let whole = |time: Duration| time.as_nanos().div_ceil(interval.as_nanos()) as u32 * interval;
    Ok(Timing { warm_up: whole(default.warm_up), measure: whole(given), interval })
}

/// An experiment with its settings checked, ready to run.
#[derive(Debug)]
pub struct Plan {
    experiment: &'static Experiment,
    /// How it is run.
    pub settings: Settings,
    /// Its rows, in the order in which they are measured.
    pub cases: Vec<Case>,
    /// Sizes for which the machine's limit is measured as well.
    limit_sizes: Vec<usize>,
}

impl Plan {
    /// Checks the choices. Nothing is started before everything has been checked.
    pub fn new(experiment: &'static Experiment, choices: &Choices) -> Result<Self, WrongChoice> {
        let settings = Settings::new(experiment, choices)?;
        let sizes = choices.sizes.as_deref().unwrap_or(experiment.sizes);
        let max = FRAME_MAX.min(settings.mtu as usize + ETHERNET_LEN);
        if let Some(&given) = sizes.iter().find(|size| !(FRAME_MIN..=max).contains(*size)) {
            return Err(WrongChoice::Size { given, max, mtu: settings.mtu });
        }
        let techniques = experiment.techniques(choices.techniques.as_deref())?;
        let one_flow = techniques.iter().find(|technique| technique.endpoint.is_one_flow());
        if let (Some(&technique), 2..) = (one_flow, settings.flows) {
            return Err(WrongChoice::OneFlow { given: settings.flows, technique });
        }
        let one_station = |technique: &&Technique| technique.endpoint.is_one_station();
        if let (Some(&technique), 2..) = (techniques.iter().find(one_station), settings.stations) {
            return Err(WrongChoice::OneStation { given: settings.stations, technique });
        }
        let rates: Vec<Option<f64>> = match (choices.rate, experiment.rates) {
            (Some(rate), _) => vec![Some(rate)],
            (None, []) => vec![None],
            (None, rates) => rates.iter().copied().map(Some).collect(),
        };
        let unpaced = techniques.iter().find(|technique| technique.endpoint.dpdk().is_some());
        if let (Some(&technique), [Some(_), ..]) = (unpaced, &rates[..]) {
            return Err(WrongChoice::NoRate { technique });
        }
        // A figure of the paper stands beside one that was measured as it was.
        let as_usual =
            (settings.burst, settings.flows, settings.stations) == (experiment.burst, 1, 1);
        let as_in_paper = as_usual && choices.rate.is_none();
        let shares_memory = techniques.iter().any(|technique| technique.link.shares_memory());
        let limit_sizes = match experiment.layout {
            Layout::Limits => sizes.to_vec(),
            // How many frames there can be says nothing of one at a time.
            Layout::RoundTrips => Vec::new(),
            _ if shares_memory => sizes.to_vec(),
            _ => Vec::new(),
        };
        let mut cases = Vec::new();
        for &technique in &techniques {
            for &shape in experiment.shapes {
                for &size in sizes {
                    let comparable = as_in_paper && experiment.sizes.contains(&size);
                    let paper_pps = (experiment.paper_pps)(technique, shape).filter(|_| comparable);
                    let case = |&rate| Case { technique, shape, size, rate, paper_pps };
                    cases.extend(rates.iter().map(case));
                }
            }
        }
        Ok(Self { experiment, settings, cases, limit_sizes })
    }

    /// How many trials there are.
    pub fn trials(&self) -> usize {
        self.settings.trials * self.cases.len()
    }

    /// Runs every case. `program` is the `dray` that runs in the containers; `progress` is told
    /// which trial comes next.
    ///
    /// There is one trial of each case, then the next of each, so that what changes on the machine
    /// meanwhile changes for all of them.
    pub fn run(
        &self,
        program: &std::path::Path,
        cancel: &Cancel,
        mut progress: impl FnMut(usize, &str),
    ) -> Result<Results, LabError> {
        let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let mut limits: Vec<Vec<f64>> = vec![Vec::new(); self.limit_sizes.len()];
        let mut runs: Vec<Run> = Vec::new();
        runs.resize_with(self.cases.len(), Run::default);
        for round in 0..self.settings.trials {
            for (size, rates) in self.limit_sizes.iter().zip(&mut limits) {
                progress(round * self.cases.len(), &format!("limit {size} B"));
                cancel.check()?;
                rates.push(self.limit(*size)?);
            }
            // Cases of one technique and shape follow each other and share what was built.
            let mut built: Option<(&Case, Built)> = None;
            for (index, case) in self.cases.iter().enumerate() {
                let run = &mut runs[index];
                progress(
                    round * self.cases.len() + index,
                    &format!("{} {} B", case.technique, case.size),
                );
                let same =
                    |other: &Case| (other.technique, other.shape) == (case.technique, case.shape);
                let result = match built.take().filter(|(other, _)| same(other)) {
                    Some((_, built)) => Ok(built),
                    None => self.build(case, program, cancel),
                };
                let result = result.and_then(|mut built| {
                    run.add(self.measure(case, &mut built)?, &built);
                    Ok(built)
                });
                match result {
                    Ok(ready) => built = Some((case, ready)),
                    // Neither the user's wish nor a missing privilege says anything of the technique.
                    Err(error @ (LabError::Cancelled | LabError::NotPermitted)) => {
                        return Err(error);
                    }
                    // The next round may go better.
                    Err(error) => run.failure = Some(error.to_string()),
                }
            }
        }
        let limits: Vec<LimitRow> = self
            .limit_sizes
            .iter()
            .zip(limits)
            .map(|(&frame_size, samples_pps)| LimitRow::new(frame_size, samples_pps))
            .collect();
        let result = |(case, run): (&Case, Run)| {
            let outcome = match run.failure {
                Some(skipped) if run.trials.is_empty() => Outcome::Skipped { skipped },
                _ => {
                    let limit = limits.iter().find(|limit| limit.frame_size == case.size);
                    let limit = limit.filter(|_| case.technique.link.shares_memory());
                    let measured = Measured::of(&run, &self.settings, limit);
                    Outcome::Measured(Box::new(measured))
                }
            };
            ResultRow::new(case, &self.settings, outcome)
        };
        Ok(Results {
            schema: SCHEMA,
            dray: env!("CARGO_PKG_VERSION").to_owned(),
            time,
            host: HostFacts::gather(),
            experiment: self.experiment.name.to_owned(),
            settings: SettingsRecord::from(&self.settings),
            results: self.cases.iter().zip(runs).map(result).collect(),
            limits,
        })
    }

    /// The limit of the machine, in frames per second, on the CPUs that a switch and its endpoints
    /// have.
    fn limit(&self, size: usize) -> Result<f64, LabError> {
        let (middle, ends) = self.settings.placement.assign_around_switch(2);
        let duration = self.settings.timing.measure.min(LIMIT_MAX);
        limit::measure(size, duration, middle.id, (ends[0].id, ends[1].id))
            .map(|limit| limit.pps())
            .map_err(|error| LabError::System { what: "limit of the machine".to_owned(), error })
    }

    fn build(
        &self,
        case: &Case,
        program: &std::path::Path,
        cancel: &Cancel,
    ) -> Result<Built, LabError> {
        let Settings { mtu, ref placement, .. } = self.settings;
        let mut lab = Lab::new(PathBuf::from(program), cancel.clone())?;
        let topology = Topology::build(&mut lab, case.technique, case.shape, placement, mtu)?;
        // Of a switch that is not there it would say too much.
        case.technique.check()?;
        Ok(Built { lab, topology })
    }

    fn measure(&self, case: &Case, built: &mut Built) -> Result<(Trial, Check), LabError> {
        let Settings { burst, flows, stations, .. } = self.settings;
        let check = self.settings.check.unwrap_or(case.technique.usual_check());
        let load = Load { size: case.size, burst, flows, stations, rate: case.rate, check };
        let trial = trial::run(&mut built.lab, &built.topology, &load, &self.settings.timing)?;
        Ok((trial, check))
    }
}

/// Containers with everything between them.
struct Built {
    lab: Lab,
    topology: Topology,
}

/// The trials of one case.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) trials: Vec<Trial>,
    /// Why the last trial that failed did.
    failure: Option<String>,
    /// How closely the receiver looked.
    pub(crate) check: &'static str,
    /// What they ran on; there is one as soon as there is a trial.
    pub(crate) setting: Option<SettingOfRun>,
}

impl Run {
    fn add(&mut self, (trial, check): (Trial, Check), Built { lab, topology }: &Built) {
        self.trials.push(trial);
        self.check = match check {
            _ if topology.technique.endpoint.dpdk().is_some() => "none",
            _ if topology.shape == Shape::Echo => "whole",
            Check::Whole => "whole",
            Check::Sampled => "sampled",
        };
        self.setting.get_or_insert_with(|| SettingOfRun::of(lab, topology));
    }
}

/// The machine's limit is measured for so long at most.
const LIMIT_MAX: Duration = Duration::from_secs(1);

impl Experiment {
    /// The techniques that `words` select out of the experiment's own; all of them by default.
    fn techniques(&self, words: Option<&[String]>) -> Result<Vec<Technique>, WrongChoice> {
        let own = (self.techniques)();
        let Some(words) = words else { return Ok(own) };
        let mut chosen = Vec::new();
        for word in words {
            Technique::check_name(word)?;
            chosen.extend(own.iter().filter(|technique| technique.is_called(word)));
            if !own.iter().any(|technique| technique.is_called(word)) {
                return Err(WrongChoice::TechniqueOfAnother {
                    experiment: self.name,
                    given: word.clone(),
                    allowed: own.iter().map(Technique::to_string).collect::<Vec<_>>().join(" "),
                });
            }
        }
        Ok(own.into_iter().filter(|technique| chosen.contains(technique)).collect())
    }
}
