//! Round-trip times.

use dray_results::Layout;

use super::experiment::{Experiment, MachineLimit};
use super::sets;
use crate::endpoint::Endpoint;
use crate::shape::Shape;
use crate::technique::Technique;

pub(super) const RTT: Experiment = Experiment {
    name: "rtt",
    about: "round-trip time of one frame at a time to an echo and back",
    shapes: &[Shape::Echo],
    techniques,
    burst: 1,
    timed: true,
    machine_limit: MachineLimit::Never,
    layout: Layout::RoundTrips,
    ..Experiment::USUAL
};

/// Techniques to measure: shared memory first, then endpoints with one system call per frame.
fn techniques() -> Vec<Technique> {
    let sockets = Technique::by_link(sets::KERNEL, &[Endpoint::UDP, Endpoint::RAW]);
    sets::shared_memory().into_iter().chain(sockets).collect()
}
