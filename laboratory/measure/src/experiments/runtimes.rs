//! Compares containers made by different runtimes.

use dray_lab::{LinkKind, Runtime};
use dray_results::Layout;

use super::experiment::{Experiment, MachineLimit};
use crate::endpoint::Endpoint;
use crate::technique::Technique;
use crate::timing::Timing;

pub(super) const RUNTIMES: Experiment = Experiment {
    name: "runtimes",
    about: "rates of the same links and endpoints in containers of each runtime",
    techniques: || {
        let endpoints = [Endpoint::UDP, Endpoint::UDP_MMSG, Endpoint::RAW_MMSG, Endpoint::TCP];
        let mut techniques = Technique::by_link(&[LinkKind::VETH], &endpoints);
        techniques.extend(Technique::by_link(&[LinkKind::PATCH], &[Endpoint::VIRTIO]));
        techniques
    },
    runtimes: &Runtime::ALL,
    // Each round has one trial with each runtime, so changes of the machine over time affect all of
    // them.
    trials: 10,
    timing: Timing::of_ms(1000, 3000, 1000),
    machine_limit: MachineLimit::Never,
    layout: Layout::Runtimes,
    ..Experiment::USUAL
};
