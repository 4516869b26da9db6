//! Byte streams: throughput of TCP, and ways to improve it on one host.

use crate::experiments::{Experiment, MachineLimit, sets};
use crate::{Endpoint, Technique};

pub(super) const STREAMS: Experiment = Experiment {
    name: "streams",
    about: "plain TCP, TCP with MSG_ZEROCOPY, TCP short-cut by BPF, and SMC",
    techniques: || Technique::by_link(sets::KERNEL, &Endpoint::STREAMS),
    trials: 2,
    machine_limit: MachineLimit::Never,
    ..Experiment::USUAL
};
