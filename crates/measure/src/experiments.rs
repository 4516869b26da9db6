//! Experiments: named sets of trials, each the answer to one question.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use dray_lab::{Cancel, HostFacts, Lab, LabError, LinkKind, Placement};
use dray_port::BATCH_MAX;
use dray_wire::headers::ETHERNET_LEN;
use dray_wire::{FRAME_MAX, FRAME_MIN};

use crate::results::{Measured, Outcome, ResultRow, Results, SCHEMA, SettingsRecord};
use crate::topology::{Load, Shape, Topology};
use crate::trial::{self, Timing};
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
    /// The endpoints; each over every link.
    endpoints: &'static [Endpoint],
    /// Frame sizes in bytes.
    sizes: &'static [usize],
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
}

const STEADY: Timing = Timing {
    warm_up: Duration::from_secs(2),
    measure: Duration::from_secs(10),
    interval: Duration::from_secs(1),
};

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
        shapes: &[Shape::Chain(0)],
        endpoints: &Endpoint::ALL,
        sizes: &[64, 1500],
        timing: STEADY,
        paper_pps: |_, _| None,
        paper: None,
        layout: Layout::List,
    },
    Experiment {
        name: "ara2019-table1",
        about: "four kinds of socket over a bridge and a veth pair, beside the paper's table 1",
        shapes: &[Shape::Chain(0)],
        endpoints: &Endpoint::ALL,
        sizes: &[64],
        timing: ARA2019,
        paper_pps: |technique, _| match (technique.link, technique.endpoint) {
            (LinkKind::Veth, _) => None,
            (LinkKind::Bridge, Endpoint::Udp) => Some(227e3),
            (LinkKind::Bridge, Endpoint::UdpMmsg) => Some(276e3),
            (LinkKind::Bridge, Endpoint::Raw) => Some(471e3),
            (LinkKind::Bridge, Endpoint::RawMmsg) => Some(594e3),
        },
        paper: Some("table 1 of Ara et al. 2019: over a bridge, Xeon E5-2640 v4, Linux 4.15"),
        layout: Layout::EndpointsByLink,
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
        endpoints: &[Endpoint::RawMmsg],
        sizes: &[64],
        timing: STEADY,
        paper_pps: |_, _| None,
        paper: CASONI2013,
        layout: Layout::ForwardersByTechnique,
    },
    Experiment {
        name: "casoni2013-parallel",
        about: "2 to 4 forwarders side by side, sending as fast as the sender can",
        shapes: &[Shape::Fan(2), Shape::Fan(3), Shape::Fan(4)],
        endpoints: &[Endpoint::RawMmsg],
        sizes: &[64],
        timing: STEADY,
        paper_pps: |_, _| None,
        paper: CASONI2013,
        layout: Layout::ForwardersByTechnique,
    },
];

/// What the command line asks for; `None` leaves it to the experiment.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// Frame sizes in bytes.
    pub sizes: Option<Vec<usize>>,
    /// Frames per burst.
    pub burst: Option<usize>,
    /// Flows per link of the sender.
    pub flows: Option<u16>,
    /// Frames per second.
    pub rate: Option<f64>,
    /// Techniques, as [`Technique::select`] reads them.
    pub techniques: Option<Vec<String>>,
    /// Length of a measurement.
    pub duration: Option<Duration>,
    /// Trials per case.
    pub trials: Option<usize>,
    /// MTU of the links in bytes.
    pub mtu: Option<u32>,
    /// CPUs for the roles, in this order.
    pub cpus: Option<Vec<usize>>,
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
    /// Frames per second; `None` for as many as possible.
    pub rate: Option<f64>,
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
        let burst = choices.burst.unwrap_or(64);
        if !(1..=BATCH_MAX).contains(&burst) {
            return Err(WrongChoice::Burst { given: burst });
        }
        let flows = choices.flows.unwrap_or(1);
        if !(1..=16384).contains(&flows) {
            return Err(WrongChoice::Flows { given: flows });
        }
        let rate = choices.rate;
        if let Some(given) = rate.filter(|rate| !(rate.is_finite() && *rate > 0.0)) {
            return Err(WrongChoice::Rate { given });
        }
        let trials = choices.trials.unwrap_or(1);
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
        Ok(Self { burst, flows, rate, timing, trials, mtu, placement, quick: choices.quick })
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
        // A figure of the paper stands beside one that was measured as it was.
        let as_in_paper = (settings.burst, settings.flows, settings.rate) == (64, 1, None);
        let mut cases = Vec::new();
        for &technique in &techniques {
            for &shape in experiment.shapes {
                for &size in sizes {
                    let comparable = as_in_paper && experiment.sizes.contains(&size);
                    let paper_pps = (experiment.paper_pps)(technique, shape).filter(|_| comparable);
                    cases.push(Case { technique, shape, size, paper_pps });
                }
            }
        }
        Ok(Self { experiment, settings, cases })
    }

    /// Runs every case. `program` is the `dray` that runs in the containers; `progress` is told
    /// which case comes next.
    pub fn run(
        &self,
        program: &std::path::Path,
        cancel: &Cancel,
        mut progress: impl FnMut(usize, &Case),
    ) -> Result<Results, LabError> {
        let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let mut results = Vec::new();
        for (index, case) in self.cases.iter().enumerate() {
            progress(index, case);
            let outcome = match self.measure(case, program, cancel) {
                Ok(measured) => Outcome::Measured(Box::new(measured)),
                // Neither the user's wish nor a missing privilege says anything of the technique.
                Err(error @ (LabError::Cancelled | LabError::NotPermitted)) => return Err(error),
                Err(error) => Outcome::Skipped { skipped: error.to_string() },
            };
            results.push(ResultRow::new(case, &self.settings, outcome));
        }
        Ok(Results {
            schema: SCHEMA,
            dray: env!("CARGO_PKG_VERSION").to_owned(),
            time,
            host: HostFacts::gather(),
            experiment: self.experiment.name.to_owned(),
            settings: SettingsRecord::from(&self.settings),
            results,
        })
    }

    fn measure(
        &self,
        case: &Case,
        program: &std::path::Path,
        cancel: &Cancel,
    ) -> Result<Measured, LabError> {
        let Settings { burst, flows, rate, mtu, ref placement, .. } = self.settings;
        let mut lab = Lab::new(PathBuf::from(program), cancel.clone())?;
        let topology = Topology::build(&mut lab, case.technique, case.shape, placement, mtu)?;
        let load = Load { size: case.size, burst, flows, rate };
        let trials = (0..self.settings.trials)
            .map(|_| trial::run(&mut lab, &topology, &load, &self.settings.timing))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Measured::of(&topology, lab.has_control_groups(), &self.settings, &trials))
    }
}

impl Experiment {
    /// The techniques that `words` select out of the experiment's own; all of them by default.
    fn techniques(&self, words: Option<&[String]>) -> Result<Vec<Technique>, WrongChoice> {
        let own: Vec<_> =
            Technique::all().filter(|t| self.endpoints.contains(&t.endpoint)).collect();
        let Some(words) = words else { return Ok(own) };
        let mut chosen = Vec::new();
        for word in words {
            let selected = Technique::select(word)?;
            chosen.extend(own.iter().filter(|technique| selected.contains(technique)));
            if !own.iter().any(|technique| selected.contains(technique)) {
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
