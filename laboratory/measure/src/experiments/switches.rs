//! Compares our switch with third-party switches.

use dray_lab::LinkKind;
use dray_lab::link::has_netmap;
use dray_results::Layout;

use super::experiment::Experiment;
use super::sets;
use crate::endpoint::Endpoint;
use crate::technique::Technique;

pub(super) const SWITCHES: Experiment = Experiment {
    name: "switches",
    about: "the same endpoints through our switch and each installed third-party switch",
    techniques: || {
        let memory = Technique::by_endpoint(&sets::switches(), &Endpoint::MEMORY);
        let vale = Technique::by_link(&[LinkKind::VALE], &Endpoint::OF_NETMAP);
        if has_netmap() { [memory, vale].concat() } else { memory }
    },
    sizes: &[64, 512, 1500],
    // With one station, a learning switch finds every frame's addresses in its fastest cache.
    stations: &[1, 1000],
    burst: 128,
    trials: 2,
    layout: Layout::Switches,
    ..Experiment::USUAL
};
