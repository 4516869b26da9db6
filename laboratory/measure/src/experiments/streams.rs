//! Byte streams: throughput of TCP, and ways to improve it on one host.

use dray_lab::LinkKind;

use super::experiment::{Experiment, MachineLimit};
use super::sets;
use crate::endpoint::Endpoint;
use crate::technique::Technique;

pub(super) const STREAMS: Experiment = Experiment {
    name: "streams",
    about: "plain TCP, TCP with MSG_ZEROCOPY, TCP short-cut by BPF, SMC, and TCP past and through our switch",
    techniques: || {
        let switch = Technique::by_link(&LinkKind::SWITCH_SOCKETS, &[Endpoint::TCP]);
        let links = [sets::KERNEL, &LinkKind::SWITCH_SOCKETS].concat();
        let iperf3 = Technique::by_link(&links, &Endpoint::OF_IPERF3);
        [Technique::by_link(sets::KERNEL, &Endpoint::STREAMS), switch, iperf3].concat()
    },
    usual: |technique| !Endpoint::OF_IPERF3.contains(&technique.endpoint),
    trials: 2,
    machine_limit: MachineLimit::Never,
    ..Experiment::USUAL
};
