//! Roles around a switch with many ports.

use std::time::Duration;

use dray_lab::{Lab, LabError};
use dray_port::Wait;
use dray_results::{Check, PortLoad, Traffic};
use dray_traffic::agent::Request;
use dray_traffic::sample::monotonic_ns;
use dray_traffic::{Job, Lane, ReceiveJob, SendJob};
use dray_wire::Flow;

use crate::shape::Shape;
use crate::topology::{Hop, Load, Station, Topology};

/// Number of times that each station is announced: ports that are full take fewer frames.
const ANNOUNCEMENTS: u64 = 3;
/// Maximum time for the announcements.
const PATIENCE: Duration = Duration::from_secs(30);

/// Addresses of the frames that go into a link, to the first of the stations that they are for.
pub(crate) fn flow(topology: &Topology, load: PortLoad, hop: &Hop) -> Flow {
    let own = hop.link.flow();
    match load.traffic {
        Traffic::Pairs => own,
        // Each port sends to the stations of all receiving ports, which are numbered from the first.
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
        endpoint.port(hop.here(), hop.there(), load.burst, Wait::Block)
    };
    Job::Receive(ReceiveJob {
        ports: station.ins.iter().map(port).collect(),
        announce: Vec::new(),
        check: Check::None,
        tunnelled: false,
        timed: None,
        count: None,
        yielding: station.shares_cpu,
        interval,
    })
}

/// Lets a learning switch learn which stations are behind which port of the receiver.
pub(crate) fn announce(lab: &mut Lab, topology: &Topology, load: &Load) -> Result<(), LabError> {
    let Shape::Ports(of) = topology.shape else { return Ok(()) };
    if !topology.technique.link.learns {
        return Ok(());
    }
    let lane = |(number, hop): (usize, &Hop)| {
        let first = match of.traffic {
            Traffic::Pairs => 0,
            Traffic::All => number as u16 * of.stations,
        };
        let Flow { dst_mac, .. } = flow(topology, of, hop).between_others(first);
        // The switch drops frames from a station to itself after it has learned the station.
        let flow = Flow { src_mac: dst_mac, dst_mac, ..hop.link.flow() };
        Lane { port: topology.port(&topology.receiver, hop, load), flow }
    };
    let receiver = topology.receiver.container;
    let lanes: Vec<_> = topology.receiver.ins.iter().enumerate().map(lane).collect();
    let (ports, each) = (lanes.len() as u64, u64::from(of.stations).max(load.burst as u64));
    let job = Job::Send(SendJob {
        lanes,
        flows: 1,
        stations: of.stations,
        size: load.size,
        users: None,
        burst: load.burst,
        rate: None,
        count: Some(ANNOUNCEMENTS * each * ports),
        duration: PATIENCE,
        timed: None,
        turn: None,
        interval: PATIENCE,
    });
    lab[receiver].request(&Request::Start(Box::new(job)))?;
    lab.wait_until_ready(receiver)?;
    lab[receiver].request(&Request::Begin { at_ns: monotonic_ns() })?;
    lab.wait_until_done(receiver, 2 * PATIENCE).map(drop)
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
