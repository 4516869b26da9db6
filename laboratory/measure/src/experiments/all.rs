//! The first question of a user: how fast each technique is on this host.

use super::experiment::Experiment;
use crate::technique::Technique;

pub(super) const ALL: Experiment = Experiment {
    name: "all",
    about: "every technique this host can run, sending as fast as it can",
    techniques: Technique::all,
    usual: Technique::is_usual,
    sizes: &[64, 1500],
    ..Experiment::USUAL
};
