//! Byte streams: throughput of TCP, and ways to improve it on one host.

use crate::experiments::{Experiment, MachineLimit, sets};
use crate::{Endpoint, Technique};

pub(super) const STREAMS: Experiment = Experiment {
    name: "streams",
    about: "TCP, as it is, with MSG_ZEROCOPY, short-cut by BPF, and SMC in its place",
    techniques: || Technique::by_link(sets::KERNEL, &Endpoint::STREAMS),
    trials: 2,
    machine_limit: MachineLimit::Never,
    ..Experiment::USUAL
};
