//! Repeats what Claassen et al. 2016 measured between a growing number of concurrent pairs of
//! containers.

use dray_results::Layout;

use super::experiment::{Experiment, MachineLimit};
use super::sets;
use crate::endpoint::Endpoint;
use crate::shape::Shape;
use crate::technique::Technique;
use crate::timing::Timing;

pub(super) const LOCAL_TCP: Experiment = Experiment {
    name: "claassen2016-local-tcp",
    about: "1 to 128 pairs of containers on one host, one TCP stream per pair",
    techniques: || Technique::by_link(sets::LOCAL, &[Endpoint::TCP, Endpoint::IPERF3]),
    paper: Some(
        "Claassen et al. 2016: veth over a bridge carries 2.5 to 3 times less than macvlan and \
         than ipvlan L3, the best; the same with MTU 1500 and 9000",
    ),
    ..PAIRS
};

pub(super) const LOCAL_UDP: Experiment = Experiment {
    name: "claassen2016-local-udp",
    about: "1 to 128 pairs of containers on one host, one UDP stream per pair",
    techniques: || Technique::by_link(sets::LOCAL, &[Endpoint::UDP, Endpoint::IPERF3_UDP]),
    paper: Some(
        "Claassen et al. 2016: macvlan is best, with 3.5 times less than over TCP; the rate of \
         veth falls from 2 pairs on",
    ),
    ..PAIRS
};

pub(super) const SWITCHED_TCP: Experiment = Experiment {
    name: "claassen2016-switched-tcp",
    about: "1 to 128 pairs of containers on two hosts, one TCP stream per pair",
    techniques: || Technique::by_link(sets::SWITCHED, &[Endpoint::TCP, Endpoint::IPERF3]),
    paper: Some(
        "Claassen et al. 2016: between two machines with 10 Gb/s all links carry the same, and 2 \
         Gb/s more with MTU 9000",
    ),
    cable_bps: CABLE_BPS,
    ..PAIRS
};

pub(super) const SWITCHED_UDP: Experiment = Experiment {
    name: "claassen2016-switched-udp",
    about: "1 to 128 pairs of containers on two hosts, one UDP stream per pair",
    techniques: || Technique::by_link(sets::SWITCHED, &[Endpoint::UDP, Endpoint::IPERF3_UDP]),
    paper: Some(
        "Claassen et al. 2016: between two machines, with MTU 1500, macvlan is ahead of ipvlan and \
         veth",
    ),
    cable_bps: CABLE_BPS,
    ..PAIRS
};

/// The rate of the network of the paper's machines.
const CABLE_BPS: Option<u64> = Some(10_000_000_000);

/// Settings common to all experiments of this paper.
const PAIRS: Experiment = Experiment {
    // With UDP, the paper ends at 16 pairs: with more, iperf3's own messages did not get through.
    shapes: &[
        Shape::Pairs(1),
        Shape::Pairs(2),
        Shape::Pairs(4),
        Shape::Pairs(8),
        Shape::Pairs(16),
        Shape::Pairs(32),
        Shape::Pairs(64),
        Shape::Pairs(128),
    ],
    // The paper measured with iperf3; it is measured here if it is named.
    usual: |technique| !Endpoint::OF_IPERF3.contains(&technique.endpoint),
    mtus: &[1500, 9000],
    sizes: &[],
    trials: 10,
    timing: Timing::of_ms(1000, 3000, 1000),
    machine_limit: MachineLimit::Never,
    layout: Layout::PairsByTechnique,
    ..Experiment::USUAL
};
