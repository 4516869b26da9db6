//! Runs the programs of a trial, by [family of endpoints](crate::endpoint).

mod dpdk;
mod iperf3;
mod ns3;
mod ours;
mod pkt_gen;
mod sampling;

use dray_lab::{Lab, LabError};

use crate::endpoint::{Dpdk, Programs};
use crate::run::Run;
use crate::timing::Timing;
use crate::topology::{Load, Topology};

/// Starts the roles, lets them run, and drains what is queued. Third-party programs but
/// iperf3 have one topology.
pub(crate) fn observe(
    lab: &mut Lab,
    topologies: &[Topology],
    load: &Load,
    timing: &Timing,
) -> Result<Run, LabError> {
    let first = &topologies[0];
    match first.technique.endpoint.programs {
        Programs::Frames(_) | Programs::Streams(_) => ours::observe(lab, topologies, load, timing),
        Programs::Dpdk(Dpdk::Afxdp | Dpdk::VhostNet | Dpdk::Function) => {
            dpdk::observe_one_way(lab, first, load.size, timing)
        }
        Programs::Dpdk(Dpdk::Memory(rings)) => {
            dpdk::observe_round(lab, first, rings, load.size, timing)
        }
        Programs::Ns3(ns3) => ns3::observe(lab, first, ns3, load, timing),
        Programs::Iperf3(iperf3) => iperf3::observe(lab, topologies, iperf3, load, timing),
        Programs::PktGen => pkt_gen::observe(lab, first, load, timing),
    }
}
