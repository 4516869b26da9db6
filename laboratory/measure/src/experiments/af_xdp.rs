//! Compares AF_XDP with its alternatives.

use dray_lab::LinkKind;
use dray_results::Layout;

use super::experiment::{Experiment, MachineLimit};
use super::sets;
use crate::endpoint::Endpoint;
use crate::shape::Shape;
use crate::technique::Technique;

pub(super) const AF_XDP: Experiment = Experiment {
    name: "af-xdp",
    about: "our AF_XDP ports against raw sockets and DPDK's AF_XDP driver",
    techniques: || {
        let [raw, dpdk] = [Endpoint::RAW_MMSG, Endpoint::DPDK_AFXDP];
        Technique::by_link(sets::KERNEL, &[&[raw][..], &Endpoint::AF_XDP, &[dpdk]].concat())
    },
    trials: 2,
    machine_limit: MachineLimit::Never,
    ..Experiment::USUAL
};

pub(super) const CHAINS: Experiment = Experiment {
    name: "af-xdp-chains",
    about: "forwarders with raw sockets, and with AF_XDP without copying",
    techniques: || Technique::by_link(&[LinkKind::VETH], &[Endpoint::RAW_MMSG, Endpoint::AFXDP]),
    shapes: &[Shape::Chain(1), Shape::Chain(2), Shape::Chain(4)],
    layout: Layout::ForwardersByTechnique,
    ..AF_XDP
};
