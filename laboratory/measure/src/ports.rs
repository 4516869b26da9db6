//! Roles around a switch with many ports.

use std::time::Duration;

use dray_port::Wait;
use dray_results::{Check, PortLoad, Traffic};
use dray_traffic::{Job, ReceiveJob};
use dray_wire::Flow;

use crate::shape::Shape;
use crate::topology::{Hop, Load, Station, Topology};

/// Addresses of the frames into a link, to the first of their destination stations.
pub(crate) fn flow(topology: &Topology, load: PortLoad, hop: &Hop) -> Flow {
    let own = hop.link.flow();
    match load.traffic {
        Traffic::Pairs => own,
        // Each port sends to the stations of all receiving ports, which are numbered from the
        // first.
        Traffic::All => Flow { dst_mac: topology.receiver.ins[0].link.flow().dst_mac, ..own },
    }
}

/// Job of the role that keeps the silent ports connected.
pub(crate) fn silence(
    topology: &Topology,
    station: &Station,
    load: &Load,
    interval: Duration,
) -> Job {
    let port = |hop: &Hop| {
        // It always sleeps: its peers are silent.
        let endpoint = topology.technique.endpoint;
        endpoint.port(hop.local(), hop.remote(), load.burst, Wait::Block)
    };
    Job::Receive(ReceiveJob {
        ports: station.ins.iter().map(port).collect(),
        announce: Vec::new(),
        stations: 0,
        check: Check::None,
        tunnelled: false,
        timed: None,
        count: None,
        yielding: station.shares_cpu,
        interval,
    })
}

/// Returns the addresses of a frame that announces the first station behind a port of the receiver,
/// by the port's number, to a learning switch: from the station to itself, so that it is not
/// forwarded.
pub(crate) fn announcement(
    topology: &Topology,
    of: PortLoad,
    (number, hop): (usize, &Hop),
) -> Flow {
    let first = match of.traffic {
        Traffic::Pairs => 0,
        Traffic::All => number as u16 * of.stations,
    };
    let Flow { dst_mac, .. } = flow(topology, of, hop).between_others(first);
    Flow { src_mac: dst_mac, dst_mac, ..hop.link.flow() }
}

/// Returns the frames that the receiving port with the fewest received, as a share of the mean;
/// `received` returns the number at one port, if it is known.
pub(crate) fn lowest_share(
    topology: &Topology,
    received: impl Fn(&Hop) -> Option<u64>,
) -> Option<f64> {
    let Shape::Ports(_) = topology.shape else { return None };
    let counts: Option<Vec<u64>> = topology.receiver.ins.iter().map(received).collect();
    let counts = counts?;
    let sum: u64 = counts.iter().sum();
    let lowest = *counts.iter().min()?;
    (sum > 0).then(|| lowest as f64 * counts.len() as f64 / sum as f64)
}
