//! Configuration of a user plane function between a sender and a receiver.

use std::net::IpAddr;
use std::time::Duration;

use dray_lab::End;
use dray_results::UpfLoad;
use dray_traffic::{Job, UpfJob, Users};
use dray_upf::UpfConfig;
use dray_upf::config::{Generator, InterfaceConfig, Neighbour, Route};
use dray_wire::gtpu::Direction;

use crate::topology::{Load, Station, Topology};

/// Ends of the user plane function and its peers: the gNB at N3, the server at N6.
struct Sides<'t> {
    n3: &'t End,
    gnb: &'t End,
    n6: &'t End,
    server: &'t End,
}

fn sides(topology: &Topology, direction: Direction) -> Sides<'_> {
    let station = &topology.forwarders[0];
    let (from, to) = (&station.ins[0], &station.outs[0]);
    match direction {
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
    let Sides { n3, gnb, server, .. } = sides(topology, load.direction);
    Users {
        count: load.sessions,
        direction: load.direction,
        tunnel: (gnb.ip, n3.ip),
        server: server.ip,
    }
}

/// Job of the user plane function at `station`.
pub(crate) fn job(
    topology: &Topology,
    station: &Station,
    users: UpfLoad,
    load: &Load,
    interval: Duration,
) -> Job {
    let UpfLoad { direction, sessions, pdrs } = users;
    let Sides { n3, gnb, n6, server } = sides(topology, direction);
    let (from, to) = (&station.ins[0], &station.outs[0]);
    let [from, to] = [from, to].map(|hop| topology.port(station, hop, load));
    let (n3_port, n6_port) = if direction == Direction::Uplink { (from, to) } else { (to, from) };
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
        direction,
        yielding: station.shares_cpu,
        sleeping: station.shares_cpu && !topology.technique.link.shares_memory(),
        interval,
    }))
}
