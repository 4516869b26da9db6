//! Repeats what Casoni et al. 2013 measured through chains of forwarding containers.

use dray_lab::LinkKind;
use dray_lab::link::EndKind;
use dray_results::Layout;

use super::experiment::{Experiment, MachineLimit};
use super::sets;
use crate::endpoint::Endpoint;
use crate::shape::Shape;
use crate::technique::Technique;
use crate::timing::Timing;

pub(super) const INCREMENTAL: Experiment = Experiment {
    name: "casoni2013-incremental",
    about: "receive rate against offered rate through 1 and 6 forwarders",
    shapes: &[Shape::Chain(1), Shape::Chain(6)],
    rates: &[
        Some(25e3),
        Some(50e3),
        Some(75e3),
        Some(100e3),
        Some(150e3),
        Some(200e3),
        Some(300e3),
        Some(400e3),
        Some(500e3),
        Some(600e3),
        Some(800e3),
        Some(1e6),
        Some(1.5e6),
        Some(2e6),
    ],
    losses: &[],
    timing: Timing::of_ms(1000, 5000, 1000),
    layout: Layout::RatesByTechnique,
    ..FORWARDERS
};

pub(super) const SERIAL: Experiment = Experiment {
    name: "casoni2013-serial",
    about: "highest rate without loss through chains of 1 to 8 forwarders",
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
    ..FORWARDERS
};

pub(super) const PARALLEL: Experiment = Experiment {
    name: "casoni2013-parallel",
    about: "highest rate without loss through 2 to 4 forwarders side by side",
    shapes: &[Shape::Fan(2), Shape::Fan(3), Shape::Fan(4)],
    ..FORWARDERS
};

pub(super) const SENDER_LOAD: Experiment = Experiment {
    name: "casoni2013-sender-load",
    about: "send rate of a sender with 1 to 8 forwarders behind it",
    losses: &[],
    layout: Layout::SentByForwarders,
    ..SERIAL
};

pub(super) const NS3: Experiment = Experiment {
    name: "casoni2013-ns3",
    about: "receive rate between two simulations of ns-3, through 0 to 6 forwarders",
    shapes: &[
        Shape::Chain(0),
        Shape::Chain(1),
        Shape::Chain(2),
        Shape::Chain(3),
        Shape::Chain(4),
        Shape::Chain(5),
        Shape::Chain(6),
    ],
    techniques: || Technique::by_link(&LinkKind::every(), &Endpoint::NS3),
    usual: |technique| technique.link.end() != EndKind::Netmap,
    losses: &[],
    timing: Timing::of_ms(1000, 3000, 500),
    machine_limit: MachineLimit::Never,
    paper_pps: |technique, shape| match technique.link {
        _ if shape != Shape::Chain(0) => None,
        LinkKind::VETH | LinkKind::BRIDGE => Some(70e3),
        LinkKind::VALE => Some(2.5e6),
        _ => None,
    },
    paper: Some(
        "Casoni et al. 2013: between two instances of ns-3, 70 kpps on sockets and 2.5 Mpps over \
         netmap's VALE",
    ),
    ..FORWARDERS
};

/// Settings common to all experiments of this paper.
const FORWARDERS: Experiment = Experiment {
    techniques: || {
        let kernel = Technique::by_link(sets::KERNEL, &[Endpoint::RAW_MMSG]);
        let switches = Technique::by_link(&sets::switches(), &Endpoint::USUAL_MEMORY);
        [kernel, switches, sets::netmap(), sets::functions()].concat()
    },
    // Few hosts have netmap or a card; our switch is there in place of VALE. Other switches are
    // measured if they are named.
    usual: |technique| {
        sets::KERNEL.contains(&technique.link) || technique.link == LinkKind::LEARNING
    },
    losses: &[0.0],
    paper: Some(
        "Casoni et al. 2013: highest rate without loss about 500 kpps over veth and a bridge",
    ),
    layout: Layout::ForwardersByTechnique,
    ..Experiment::USUAL
};
