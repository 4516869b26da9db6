//! Byte streams: throughput of TCP, and ways to improve it on one host.

use super::experiment::{Experiment, MachineLimit};
use super::sets;
use crate::endpoint::Endpoint;
use crate::technique::Technique;

pub(super) const STREAMS: Experiment = Experiment {
    name: "streams",
    about: "plain TCP, TCP with MSG_ZEROCOPY, TCP short-cut by BPF, and SMC",
    techniques: || Technique::by_link(sets::KERNEL, &Endpoint::STREAMS),
    trials: 2,
    machine_limit: MachineLimit::Never,
    ..Experiment::USUAL
};
