//! Compares the kernel's VXLAN tunnel with our switch's.

use dray_lab::LinkKind;

use super::experiment::Experiment;
use crate::endpoint::Endpoint;
use crate::technique::Technique;

pub(super) const TUNNELS: Experiment = Experiment {
    name: "tunnels",
    about: "two hosts joined by VXLAN: by the kernel's tunnel and by our switch's",
    techniques: || {
        let endpoints = [Endpoint::UDP_MMSG, Endpoint::RAW_MMSG, Endpoint::VIRTIO];
        Technique::by_link(&[LinkKind::VXLAN, LinkKind::VXLAN_PATCH], &endpoints)
    },
    sizes: &[64, 512, 1500],
    ..Experiment::USUAL
};
