//! What an experiment is.

use std::time::Duration;

use dray_lab::Runtime;
use dray_traffic::Check;

use crate::experiments::Layout;
use crate::trial::Timing;
use crate::{Neighbour, Shape, Technique};

/// An experiment: what is measured unless the command line says otherwise.
#[derive(Debug)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// The question that it answers, in one line.
    pub about: &'static str,
    /// The topologies.
    pub(crate) shapes: &'static [Shape],
    /// How the containers are wired and what is in them.
    pub(crate) techniques: fn() -> Vec<Technique>,
    /// Which of the techniques are measured where none are chosen.
    pub(crate) usual: fn(&Technique) -> bool,
    /// Who makes the containers: each technique is measured in those of each.
    pub(crate) runtimes: &'static [Runtime],
    /// What neighbours do; `None` where there is none.
    pub(crate) neighbours: &'static [Option<Neighbour>],
    /// MTUs of the links, in bytes.
    pub(crate) mtus: &'static [u32],
    /// Frame sizes in bytes; none: as long as the MTU allows.
    pub(crate) sizes: &'static [usize],
    /// Frames per second; `None` for as many as possible.
    pub(crate) rates: &'static [Option<f64>],
    /// Where there is no rate: the shares of frames that may be lost at the rates that are searched for;
    /// none: frames are sent as fast as they can be.
    pub(crate) losses: &'static [f64],
    /// Besides the rates, these shares of the loss-free rate, which is searched for first.
    pub(crate) shares: &'static [f64],
    /// Whether it is measured how long each frame takes.
    pub(crate) timed: bool,
    /// How closely receivers look at frames; `None` leaves it to the technique.
    pub(crate) checks: &'static [Option<Check>],
    /// Frames per burst.
    pub(crate) burst: usize,
    /// Trials per case.
    pub(crate) trials: usize,
    /// How long each trial lasts.
    pub(crate) timing: Timing,
    /// Whether the limit of the machine is measured too.
    pub(crate) machine_limit: MachineLimit,
    /// The receive rate that the paper states, in frames per second.
    pub(crate) paper_pps: fn(Technique, Shape) -> Option<f64>,
    /// Where that rate stands and what it was measured on.
    pub paper: Option<&'static str>,
    /// How the table is arranged.
    pub layout: Layout,
}

/// Whether the limit of the machine is measured beside the techniques, at the same sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MachineLimit {
    /// Whatever the techniques.
    Always,
    /// Where some technique shares memory, which the limit says something of.
    WhereMemoryIsShared,
    /// Never: how many frames there can be says nothing of one at a time.
    Never,
}

/// Long enough for the deviation of samples that are a second each.
pub(crate) const STEADY: Timing = Timing {
    warm_up: Duration::from_secs(2),
    measure: Duration::from_secs(10),
    interval: Duration::from_secs(1),
};

impl Experiment {
    /// Whether `word`, as `--technique` reads it, names one of its techniques.
    pub fn has(&self, word: &str) -> bool {
        (self.techniques)().iter().any(|technique| technique.is_called(word))
    }

    /// What most experiments have in common: an experiment says where it differs.
    pub(super) const USUAL: Self = Self {
        name: "",
        about: "",
        shapes: &[Shape::Chain(0)],
        techniques: Vec::new,
        usual: |_| true,
        runtimes: &[Runtime::Embedded],
        neighbours: &[None],
        mtus: &[1500],
        sizes: &[64],
        rates: &[None],
        losses: &[],
        shares: &[],
        timed: false,
        checks: &[None],
        burst: 64,
        trials: 1,
        timing: STEADY,
        machine_limit: MachineLimit::WhereMemoryIsShared,
        paper_pps: |_, _| None,
        paper: None,
        layout: Layout::List,
    };
}
