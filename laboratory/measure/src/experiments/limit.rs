//! Rate that no technique with one copy can exceed on this machine.

use dray_results::Layout;

use super::experiment::{Experiment, MachineLimit};

pub(super) const LIMIT: Experiment = Experiment {
    name: "limit",
    about: "the limit of the machine: one copy between two CPUs, and nothing else",
    sizes: &[64, 512, 1500],
    trials: 5,
    machine_limit: MachineLimit::Always,
    layout: Layout::Limits,
    ..Experiment::USUAL
};
