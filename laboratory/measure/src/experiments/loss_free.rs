//! Highest rate of each technique without loss, and with a little loss.

use dray_lab::LinkKind;
use dray_results::Layout;

use super::experiment::Experiment;
use crate::endpoint::Endpoint;
use crate::technique::Technique;

pub(super) const LOSS_FREE: Experiment = Experiment {
    name: "loss-free",
    about: "highest rate of every technique without loss (NDR) and with 0.5 % loss (PDR)",
    techniques: || {
        let peers = Technique::by_link(&LinkKind::PEERS, &Endpoint::USUAL_MEMORY);
        let carry = |technique: &Technique| !technique.link.isolates;
        [Technique::all(), peers].concat().into_iter().filter(carry).collect()
    },
    usual: Technique::is_usual,
    losses: &[0.0, 0.005],
    layout: Layout::DropRates,
    ..Experiment::USUAL
};
