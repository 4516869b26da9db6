//! Compares tunnels between two hosts with each other, and with a plain cable.

use dray_lab::LinkKind;

use super::experiment::{Experiment, MachineLimit};
use crate::endpoint::Endpoint;
use crate::technique::Technique;
use crate::timing::Timing;

pub(super) const TUNNELS: Experiment = Experiment {
    name: "tunnels",
    about: "two hosts joined by a cable, by the kernel's tunnels, and by switches' VXLAN",
    techniques: || {
        let plain = [LinkKind::HOSTS_BRIDGE];
        let by_switches = [&LinkKind::OVS_VXLAN[..], &[LinkKind::VXLAN_PATCH]].concat();
        let links = [&plain[..], &LinkKind::TUNNELS, &by_switches].concat();
        let endpoints = [Endpoint::UDP_MMSG, Endpoint::RAW_MMSG, Endpoint::TCP, Endpoint::VIRTIO];
        Technique::by_link(&links, &endpoints)
    },
    sizes: &[64, 512, 1500],
    timing: Timing::of_ms(500, 1000, 250),
    trials: 5,
    machine_limit: MachineLimit::Never,
    ..Experiment::USUAL
};
