//! What each technique carries without losing anything, and with losing a little.

use crate::Technique;
use crate::experiments::{Experiment, Layout};

pub(super) const LOSS_FREE: Experiment = Experiment {
    name: "loss-free",
    about: "the highest rate of every technique without loss (NDR), and with 0.5 % of loss (PDR)",
    techniques: || Technique::all().into_iter().filter(|t| !t.link.isolates).collect(),
    usual: Technique::is_usual,
    losses: &[0.0, 0.005],
    layout: Layout::DropRates,
    ..Experiment::USUAL
};
