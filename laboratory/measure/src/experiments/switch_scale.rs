//! Cost of ports and stations in our switch.

use dray_lab::LinkKind;
use dray_results::{Layout, PortLoad};

use super::experiment::{Experiment, MachineLimit};
use crate::endpoint::Endpoint;
use crate::shape::Shape;
use crate::technique::Technique;

pub(super) const SWITCH_SCALE: Experiment = Experiment {
    name: "switch-scale",
    about: "a switch with 2 to 64 ports: rate, cost of a frame, fairness, and cost of silent ports",
    shapes: &[
        Shape::Ports(PortLoad::pairs(2)),
        Shape::Ports(PortLoad::pairs(8)),
        Shape::Ports(PortLoad::pairs(32)),
        Shape::Ports(PortLoad::pairs(64)),
        Shape::Ports(PortLoad::pairs(2).with_silent(14)),
        Shape::Ports(PortLoad::pairs(2).with_silent(62)),
        Shape::Ports(PortLoad::pairs(64).with_stations(100)),
        Shape::Ports(PortLoad::pairs(64).with_stations(10_000)),
        Shape::Ports(PortLoad::all(8)),
        Shape::Ports(PortLoad::all(32)),
        Shape::Ports(PortLoad::all(64)),
    ],
    techniques: || {
        Technique::by_link(
            &[LinkKind::PATCH, LinkKind::LEARNING],
            &[Endpoint::VIRTIO, Endpoint::VIRTIO_PACKED],
        )
    },
    usual: |technique| technique.endpoint == Endpoint::VIRTIO,
    machine_limit: MachineLimit::Never,
    layout: Layout::Ports,
    ..Experiment::USUAL
};
