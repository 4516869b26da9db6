//! Repeats what Ara et al. 2019 measured between containers on one host.

use dray_lab::LinkKind;
use dray_results::Layout;

use super::experiment::Experiment;
use super::sets;
use crate::endpoint::Endpoint;
use crate::technique::Technique;
use crate::timing::Timing;

pub(super) const TABLE1: Experiment = Experiment {
    name: "ara2019-table1",
    about: "kinds of socket over a bridge and a veth pair: the paper's table 1, and two more",
    techniques: || Technique::by_link(sets::KERNEL, &Endpoint::SOCKETS),
    timing: TIMING,
    trials: TRIALS,
    paper_pps: |technique, _| match (technique.link, technique.endpoint) {
        (LinkKind::BRIDGE, Endpoint::UDP) => Some(227e3),
        (LinkKind::BRIDGE, Endpoint::UDP_MMSG) => Some(276e3),
        (LinkKind::BRIDGE, Endpoint::RAW) => Some(471e3),
        (LinkKind::BRIDGE, Endpoint::RAW_MMSG) => Some(594e3),
        _ => None,
    },
    paper: Some("table 1 of Ara et al. 2019: over a bridge, Xeon E5-2640 v4, Linux 4.15"),
    layout: Layout::EndpointsByLink,
    ..Experiment::USUAL
};

pub(super) const FIG2: Experiment = Experiment {
    name: "ara2019-fig2",
    about: "receive rate against offered rate through shared memory and switches, 64 B",
    rates: &[
        Some(1e6),
        Some(2e6),
        Some(3e6),
        Some(4e6),
        Some(5e6),
        Some(6e6),
        Some(8e6),
        Some(10e6),
        Some(12e6),
        Some(15e6),
        Some(20e6),
    ],
    techniques: || {
        let mut all = (FIGURE.techniques)();
        all.retain(|technique| technique.endpoint.takes_rate());
        all
    },
    // Half of figure 3's: eleven rates draw one line, and below its bend each trial says the same.
    trials: TRIALS / 2,
    layout: Layout::RatesByTechnique,
    ..FIGURE
};

pub(super) const FIG3: Experiment = Experiment {
    name: "ara2019-fig3",
    about: "highest receive rate against frame size through shared memory and switches",
    sizes: &[64, 128, 256, 512, 1024, 1280, 1500],
    layout: Layout::TechniquesBySize,
    ..FIGURE
};

/// Settings common to figures 2 and 3.
const FIGURE: Experiment = Experiment {
    techniques: || [sets::shared_memory(), sets::functions(), sets::vhost_net()].concat(),
    usual: |technique| technique.link.shares_memory(),
    burst: 16,
    timing: TIMING,
    trials: TRIALS,
    paper: Some(
        "Ara et al. 2019: more than 5 Mpps at 64 B through every switch; testpmd, Snabb, VPP, OVS",
    ),
    ..Experiment::USUAL
};

/// A point of the paper is the mean of 20 per-second rates, after the first 20. Here these are from
/// [`TRIALS`] trials: virtual CPUs that move do so within seconds, and hardly one trial of 40 s has
/// them near each other, or far, from beginning to end.
const TIMING: Timing = Timing::of_ms(1000, 2000, 1000);
const TRIALS: usize = 10;
