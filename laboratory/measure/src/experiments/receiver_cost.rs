//! Cost of the receiver's check of frames, as seen in the measurement.

use dray_lab::LinkKind;
use dray_results::Layout;
use dray_traffic::Check;

use super::experiment::{Experiment, MachineLimit};
use crate::endpoint::Endpoint;
use crate::technique::Technique;

pub(super) const RECEIVER_COST: Experiment = Experiment {
    name: "receiver-cost",
    about: "receive rate if the receiver counts, fetches, or checks frames",
    techniques: || {
        let kernel = [Endpoint::UDP_MMSG, Endpoint::RAW_MMSG, Endpoint::AFXDP];
        let links = [LinkKind::VETH, LinkKind::PATCH, LinkKind::DIRECT];
        Technique::by_link(&links, &[&kernel[..], &[Endpoint::VIRTIO]].concat())
    },
    sizes: &[64, 1500],
    checks: &[Some(Check::None), Some(Check::Fetched), Some(Check::Sampled), Some(Check::Whole)],
    trials: 3,
    machine_limit: MachineLimit::Never,
    layout: Layout::Checks,
    ..Experiment::USUAL
};
