//! Latency of frames under load.

use dray_results::Layout;

use super::experiment::{Experiment, MachineLimit};
use crate::shape::Shape;
use crate::technique::Technique;
use crate::timing::Timing;

pub(super) const LATENCY: Experiment = Experiment {
    name: "latency",
    about: "one-way and round-trip times from 10 kpps to near the loss-free rate",
    shapes: &[Shape::Chain(0), Shape::Echo],
    techniques: || Technique::all().into_iter().filter(|t| !t.link.isolates).collect(),
    usual: Technique::is_usual,
    // Enough frames in a few seconds for a meaningful 99.99 % quantile, and almost no load.
    rates: &[Some(10e3)],
    shares: &[0.1, 0.5, 0.9],
    losses: &[0.0],
    timed: true,
    timing: Timing::of_ms(1000, 5000, 1000),
    machine_limit: MachineLimit::Never,
    layout: Layout::Latencies,
    ..Experiment::USUAL
};
