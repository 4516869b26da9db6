//! Measures the claims of Liang and Tan 2016 on latency, and on containers that share a machine
//! with others.

use dray_lab::LinkKind;
use dray_results::{Layout, Neighbour};

use super::experiment::{Experiment, MachineLimit};
use super::{latency, sets};
use crate::endpoint::Endpoint;
use crate::shape::Shape;
use crate::technique::Technique;
use crate::timing::Timing;

pub(super) const LATENCY: Experiment = Experiment {
    name: "liang2016-latency",
    about: "one-way and round-trip times of native sockets, AF_XDP and shared memory",
    techniques: || {
        let native = [Endpoint::UDP, Endpoint::RAW, Endpoint::AFXDP];
        let kernel = Technique::by_link(&[LinkKind::BRIDGE], &native);
        let links = [LinkKind::LEARNING, LinkKind::PATCH, LinkKind::DIRECT];
        let memory = Technique::by_link(&links, &[Endpoint::VIRTIO]);
        kernel.into_iter().chain(memory).collect()
    },
    paper: Some(
        "Liang and Tan 2016: milliseconds with native Linux, microseconds with DPDK over SR-IOV \
         and over virtio-user",
    ),
    ..latency::LATENCY
};

/// Deterministic cache environment: the paper's table of cache allocation and a noisy neighbour.
pub(super) const NOISY_NEIGHBOUR: Experiment = Experiment {
    name: "liang2016-noisy-neighbour",
    about: "rate and round trips beside a neighbour that fills the cache, and with it confined",
    techniques: || {
        let kernel = Technique::by_link(sets::KERNEL, &[Endpoint::RAW_MMSG]);
        kernel.into_iter().chain(sets::shared_memory()).collect()
    },
    shapes: &[Shape::Chain(0), Shape::Echo],
    neighbours: &[Some(Neighbour::Quiet), Some(Neighbour::Noisy), Some(Neighbour::Confined)],
    trials: 3,
    timing: Timing::of_ms(1000, 5000, 1000),
    machine_limit: MachineLimit::Never,
    paper: Some(
        "Liang and Tan 2016: 9.8 Mpps beside a noisy neighbour, 15 Mpps with it confined (DPDK IP \
         pipeline, 64 B, 16 million flows)",
    ),
    layout: Layout::Neighbours,
    ..Experiment::USUAL
};

/// Set-up and privileges that techniques need, which the paper shows as command lines.
pub(super) const SETUP: Experiment = Experiment {
    name: "liang2016-setup",
    about: "what each technique needs: time to ready, memory, files, huge pages, privileges",
    techniques: || {
        let peers = Technique::by_link(&LinkKind::PEERS, &Endpoint::USUAL_MEMORY);
        Technique::all().into_iter().filter(|it| !it.link.isolates).chain(peers).collect()
    },
    usual: |technique| technique.is_usual(),
    trials: 3,
    // Long enough for every buffer to have been used.
    timing: Timing::of_ms(200, 500, 100),
    machine_limit: MachineLimit::Never,
    paper: Some(
        "Liang and Tan 2016: DPDK in a container needs huge pages, a device or a socket of the \
         switch, and --privileged to find physical addresses; virtio-user needs no --privileged",
    ),
    layout: Layout::Needs,
    ..Experiment::USUAL
};
