//! What Casoni et al. 2013 measured through chains of containers that forward, repeated.

use crate::experiments::{Experiment, Layout, sets};
use crate::{Endpoint, Shape, Technique};

pub(super) const SERIAL: Experiment = Experiment {
    name: "casoni2013-serial",
    about: "chains of 1 to 8 forwarders, the highest rate without loss",
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
    about: "2 to 4 forwarders side by side, the highest rate without loss",
    shapes: &[Shape::Fan(2), Shape::Fan(3), Shape::Fan(4)],
    ..FORWARDERS
};

/// What both have in common.
const FORWARDERS: Experiment = Experiment {
    techniques: || Technique::by_link(sets::KERNEL, &[Endpoint::RAW_MMSG]),
    losses: &[0.0],
    paper: Some(
        "Casoni et al. 2013: near 500 kpps over veth and a bridge, the highest rate without loss",
    ),
    layout: Layout::ForwardersByTechnique,
    ..Experiment::USUAL
};
