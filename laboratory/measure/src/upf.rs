//! Configuration of a user plane function between a sender and a receiver.

use std::net::IpAddr;
use std::time::Duration;

use dray_lab::End;
use dray_results::{UpfLoad, Way};
use dray_traffic::{Job, UpfJob, Users};
use dray_upf::UpfConfig;
use dray_upf::config::{Generator, InterfaceConfig, Neighbour, Route};
use dray_wire::gtpu::Direction;

use crate::shape::Shape;
use crate::topology::{Load, Topology};

/// Ends of the user plane function and its peers: the gNB at N3, the server at N6.
struct Sides<'t> {
    n3: &'t End,
    gnb: &'t End,
    n6: &'t End,
    server: &'t End,
}

/// Direction of the topology's packets.
pub(crate) fn direction(topology: &Topology) -> Direction {
    match topology.shape {
        Shape::Upf(UpfLoad { way: Way::Downlink, .. }) => Direction::Downlink,
        _ => Direction::Uplink,
    }
}

fn sides(topology: &Topology) -> Sides<'_> {
    let station = &topology.forwarders[0];
    let (from, to) = (&station.ins[0], &station.outs[0]);
    match direction(topology) {
        Direction::Uplink => {
            Sides { n3: from.local(), gnb: from.remote(), n6: to.local(), server: to.remote() }
        }
        Direction::Downlink => {
            Sides { n3: to.local(), gnb: to.remote(), n6: from.local(), server: from.remote() }
        }
    }
}

/// Users whose packets the sender sends.
pub(crate) fn users(topology: &Topology, load: UpfLoad) -> Users {
    let Sides { n3, gnb, server, .. } = sides(topology);
    Users {
        count: load.sessions,
        direction: direction(topology),
        tunnel: (gnb.ip, n3.ip),
        server: server.ip,
    }
}

/// Job of the user plane function of a topology. It serves a second direction as well, if `other`
/// is the topology of that one.
pub(crate) fn job(
    topology: &Topology,
    other: Option<&Topology>,
    UpfLoad { sessions, pdrs, .. }: UpfLoad,
    load: &Load,
    interval: Duration,
) -> Job {
    let station = &topology.forwarders[0];
    let direction = direction(topology);
    let Sides { n3, gnb, n6, server } = sides(topology);
    let (from, to) = (&station.ins[0], &station.outs[0]);
    let [from, to] = [from, to].map(|hop| topology.port(station, hop, load));
    let (n3_port, n6_port) = if direction == Direction::Uplink { (from, to) } else { (to, from) };
    let stations = [station].into_iter().chain(other.map(|other| &other.forwarders[0]));
    let everywhere = "0.0.0.0/0".parse().expect("valid prefix");
    let interface = |own: &End, peer: &End, routes| InterfaceConfig {
        mac: own.station,
        addresses: vec![own.ip.into()],
        mtu: topology.mtu as u16,
        routes,
        gnbs: Vec::new(),
        neighbours: vec![Neighbour { address: peer.ip.into(), mac: peer.station }],
    };
    let config = UpfConfig {
        n3: interface(n3, gnb, Vec::new()),
        n6: interface(n6, server, vec![Route { to: everywhere, via: server.ip.into() }]),
        sessions_max: sessions as usize,
        buffer_packets: 0,
        buffer_per_session: 0,
        buffer_ms: 1,
        applications: Vec::new(),
        generate: Some(Generator {
            count: sessions,
            teid: Users::TEID,
            gnb_teid: Users::TEID,
            gnbs: vec![gnb.ip.into()],
            ue: IpAddr::from(Users::ADDRESS).into(),
            qfi: Some(Users::QFI),
            pdrs,
            mbr_kbps: None,
            urr: false,
        }),
        sessions: Vec::new(),
    };
    Job::Upf(Box::new(UpfJob {
        n3: n3_port,
        n6: n6_port,
        config,
        way: match (other, direction) {
            (Some(_), _) => Way::Both,
            (None, Direction::Uplink) => Way::Uplink,
            (None, Direction::Downlink) => Way::Downlink,
        },
        cpus: stations.map(|station| station.cpu).collect(),
        yielding: station.shares_cpu,
        sleeping: station.shares_cpu && !topology.technique.link.shares_memory(),
        interval,
    }))
}
