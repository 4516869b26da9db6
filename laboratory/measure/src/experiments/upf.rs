//! Cost of sessions and rules in a user plane function.

use dray_lab::LinkKind;
use dray_results::{Layout, UpfLoad, Way};

use super::experiment::{Experiment, MachineLimit};
use crate::endpoint::Endpoint;
use crate::shape::Shape;
use crate::technique::Technique;

/// Number of sessions where the number of rules varies, as in the paper that prompted this
/// experiment.
const USUAL: u32 = 8000;

pub(super) const SCALE: Experiment = Experiment {
    name: "upf-scale",
    about: "a user plane function over shared memory: rate against sessions, and against rules",
    shapes: &[
        Shape::Upf(UpfLoad::new(Way::Uplink, 1, 2)),
        Shape::Upf(UpfLoad::new(Way::Uplink, 1000, 2)),
        Shape::Upf(UpfLoad::new(Way::Uplink, 10_000, 2)),
        Shape::Upf(UpfLoad::new(Way::Uplink, 100_000, 2)),
        Shape::Upf(UpfLoad::new(Way::Uplink, 1_000_000, 2)),
        Shape::Upf(UpfLoad::new(Way::Uplink, USUAL, 2)),
        Shape::Upf(UpfLoad::new(Way::Uplink, USUAL, 8)),
        Shape::Upf(UpfLoad::new(Way::Uplink, USUAL, 32)),
        Shape::Upf(UpfLoad::new(Way::Uplink, USUAL, 128)),
    ],
    techniques: || Technique::by_link(&[LinkKind::DIRECT, LinkKind::PATCH], &[Endpoint::VIRTIO]),
    usual: |technique| technique.link == LinkKind::DIRECT,
    sizes: &[512],
    machine_limit: MachineLimit::Never,
    layout: Layout::UserPlane,
    ..Experiment::USUAL
};
