//! Definition of an experiment.

use dray_lab::Runtime;
use dray_results::{Check, Layout, Neighbour, Table};

use crate::shape::Shape;
use crate::technique::Technique;
use crate::timing::Timing;

/// An experiment: what is measured unless the command line overrides it.
#[derive(Debug)]
pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    /// Question that the experiment answers, in one line.
    pub about: &'static str,
    /// Topologies to measure.
    pub(crate) shapes: &'static [Shape],
    /// Techniques to measure.
    pub(crate) techniques: fn() -> Vec<Technique>,
    /// Returns true for a technique that is measured if none are chosen.
    pub(crate) usual: fn(&Technique) -> bool,
    /// Runtimes that make the containers; each technique is measured with each runtime.
    pub(crate) runtimes: &'static [Runtime],
    /// Behaviours of neighbours; `None`: no neighbour.
    pub(crate) neighbours: &'static [Option<Neighbour>],
    /// MTUs of the links, in bytes.
    pub(crate) mtus: &'static [u32],
    /// Bits per second of the cable between two hosts, for links that have one; `None` for as many
    /// as the machine passes.
    pub(crate) cable_bps: Option<u64>,
    /// Frame sizes in bytes; empty: as long as the MTU allows.
    pub(crate) sizes: &'static [usize],
    /// Numbers of MAC address pairs to rotate through: more than one only on links that learn
    /// addresses, from endpoints that can send from several.
    pub(crate) stations: &'static [u16],
    /// Offered frames per second; `None` for as many as possible.
    pub(crate) rates: &'static [Option<f64>],
    /// Used where no rate is given: the loss ratios allowed at the rates to search for; empty: no
    /// search, frames are sent as fast as possible.
    pub(crate) losses: &'static [f64],
    /// True if these searches end at bounds as wide as those of a quick run.
    pub(crate) coarse_searches: bool,
    /// Shares of the loss-free rate to measure besides `rates`; the loss-free rate is searched for
    /// first.
    pub(crate) shares: &'static [f64],
    /// True if the time that each frame takes is measured.
    pub(crate) timed: bool,
    /// How closely receivers check frames; `None`: the technique's default.
    pub(crate) checks: &'static [Option<Check>],
    /// Frames per burst.
    pub(crate) burst: usize,
    /// Trials per case.
    pub(crate) trials: usize,
    /// Lengths within each trial.
    pub(crate) timing: Timing,
    /// When the limit of the machine is measured too.
    pub(crate) machine_limit: MachineLimit,
    /// Receive rate stated in the paper, in frames per second.
    pub(crate) paper_pps: fn(Technique, Shape) -> Option<f64>,
    /// Source of that rate, and the machine it was measured on.
    pub paper: Option<&'static str>,
    /// Layout of the table.
    pub layout: Layout,
}

/// When the limit of the machine is measured beside the techniques, at the same sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MachineLimit {
    /// With all techniques.
    Always,
    /// If some technique shares memory: the limit is meaningful for those.
    WhereMemoryIsShared,
    /// Never: a limit of frame rate is meaningless for one frame at a time.
    Never,
}

/// Long enough for the standard deviation of samples of one second each.
pub(crate) const STEADY: Timing = Timing::of_ms(2000, 10000, 1000);

impl Experiment {
    /// Returns true if `word`, as given to `--technique`, names one of the experiment's techniques.
    pub fn has(&self, word: &str) -> bool {
        (self.techniques)().iter().any(|technique| technique.is_called(word))
    }

    /// Returns the presentation of the results.
    pub(crate) fn table(&self) -> Table {
        Table {
            title: self.about.to_owned(),
            layout: self.layout,
            paper: self.paper.map(str::to_owned),
        }
    }

    /// Defaults of all experiments: an experiment lists only its differences.
    pub(super) const USUAL: Self = Self {
        name: "",
        about: "",
        shapes: &[Shape::Chain(0)],
        techniques: Vec::new,
        usual: |_| true,
        runtimes: &[Runtime::Embedded],
        neighbours: &[None],
        mtus: &[1500],
        cable_bps: None,
        sizes: &[64],
        stations: &[1],
        rates: &[None],
        losses: &[],
        coarse_searches: false,
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
