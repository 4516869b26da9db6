//! Jobs of the roles in a trial.

use std::time::Duration;

use dray_lab::link::Carries;
use dray_port::PortUri;
use dray_port::netmap::NetmapUri;
use dray_results::{Traffic, UpfLoad, Way};
use dray_traffic::{
    DuplexJob, EchoJob, ForwardJob, Job, Output, PingJob, ReceiveJob, SendJob, StreamReceiveJob,
    StreamSendJob,
};

use crate::endpoint::{Programs, Stream};
use crate::shape::Shape;
use crate::timing::Timing;
use crate::topology::{Hop, Load, Station, Topology};
use crate::{ports, upf};

/// Returns the jobs of all roles; the role that begins last comes last.
pub(crate) fn of<'t>(
    topology: &'t Topology,
    load: &Load,
    timing: &'t Timing,
) -> Vec<(&'t Station, Job)> {
    let jobs = Jobs { topology, load: *load, timing };
    let Topology { sender, receiver, forwarders, .. } = topology;
    match (topology.technique.endpoint.programs, topology.shape) {
        (Programs::Streams(stream), _) => jobs.streams(stream).into(),
        (_, Shape::Echo) => vec![(receiver, jobs.echo()), (sender, jobs.ping())],
        (_, shape) => {
            let middle = |station| match shape {
                Shape::Upf(users) => upf::job(topology, None, users, load, timing.interval),
                Shape::Ports(_) => ports::silence(topology, station, load, timing.interval),
                _ => jobs.forward(station),
            };
            let forwarders = forwarders.iter().map(|station| (station, middle(station)));
            let first = std::iter::once((receiver, Job::Receive(jobs.receive())));
            first.chain(forwarders).chain([(sender, Job::Send(jobs.send()))]).collect()
        }
    }
}

/// Returns the jobs of two topologies that are the two directions through one user plane function.
pub(crate) fn both_ways<'t>(
    [up, down]: [&'t Topology; 2],
    load: &Load,
    timing: &'t Timing,
) -> Vec<(&'t Station, Job)> {
    // The rate is that of both directions together.
    let each = Load { rate: load.rate.map(|rate| rate / 2.0), ..*load };
    let [of_up, of_down] = [up, down].map(|topology| Jobs { topology, load: each, timing });
    let both = |send: &Jobs<'_>, receive: &Jobs<'_>| {
        let (send, receive) = (send.send(), receive.receive());
        Job::Duplex(Box::new(DuplexJob { send, receive }))
    };
    let Shape::Upf(users) = up.shape else { panic!("{:?} has one direction", up.shape) };
    vec![
        (&up.forwarders[0], upf::job(up, Some(down), users, load, timing.interval)),
        (&up.receiver, both(&of_down, &of_up)),
        (&up.sender, both(&of_up, &of_down)),
    ]
}

/// Jobs of one topology in one trial.
struct Jobs<'t> {
    topology: &'t Topology,
    load: Load,
    timing: &'t Timing,
}

impl<'t> Jobs<'t> {
    fn duration(&self) -> Duration {
        self.timing.warm_up + self.timing.measure
    }

    fn streams(&self, stream: Stream) -> [(&'t Station, Job); 2] {
        let Topology { sender, receiver, .. } = self.topology;
        let (duration, interval) = (self.duration(), self.timing.interval);
        let at = stream.uri(receiver.ins[0].local());
        let send = StreamSendJob { to: at.clone(), streams: self.load.flows, duration, interval };
        let receive = StreamReceiveJob { at, check: self.load.check, interval };
        [(receiver, Job::StreamReceive(receive)), (sender, Job::StreamSend(send))]
    }

    fn echo(&self) -> Job {
        let Topology { receiver, .. } = self.topology;
        Job::Echo(EchoJob {
            port: self.topology.port(receiver, &receiver.outs[0], &self.load),
            yielding: receiver.shares_cpu,
            interval: self.timing.interval,
        })
    }

    fn ping(&self) -> Job {
        let (Topology { sender, .. }, load) = (self.topology, &self.load);
        let hop = &sender.outs[0];
        Job::Ping(PingJob {
            output: Output { port: self.topology.port(sender, hop, load), flow: hop.link.flow() },
            size: load.size,
            rate: load.rate,
            burst: load.burst,
            count: None,
            warm_up: self.timing.warm_up,
            duration: self.duration(),
            yielding: sender.shares_cpu,
            interval: self.timing.interval,
        })
    }

    fn send(&self) -> SendJob {
        let Self { topology, ref load, timing } = *self;
        let flow = |hop: &Hop| match topology.shape {
            Shape::Ports(load) => ports::flow(topology, load, hop),
            _ => hop.link.flow(),
        };
        let output = |hop: &Hop| Output {
            port: topology.port(&topology.sender, hop, load),
            flow: flow(hop),
        };
        // Number of frames that the receiver's queue holds: of our rings, and about of a socket.
        let queue = if topology.technique.link.shares_memory() { 1024 } else { 512 };
        // A link that learns addresses does not wait for one receiver: it drops frames that find no
        // room. Otherwise a longer turn has fewer context switches.
        let turn = if topology.technique.link.learns { queue / 2 } else { queue / 4 * 3 };
        SendJob {
            outputs: topology.sender.outs.iter().map(output).collect(),
            flows: load.flows,
            stations: match topology.shape {
                Shape::Ports(of) if of.traffic == Traffic::All => of.all_stations(),
                Shape::Ports(of) => of.stations,
                _ => load.stations,
            },
            size: load.size,
            users: match topology.shape {
                Shape::Upf(users) => Some(upf::users(topology, users)),
                _ => None,
            },
            burst: load.burst,
            rate: load.rate,
            count: None,
            duration: self.duration(),
            timed: load.timed(timing),
            turn: topology.sender.shares_cpu.then_some(turn),
            interval: timing.interval,
        }
    }

    fn receive(&self) -> ReceiveJob {
        let Self { topology, ref load, timing } = *self;
        let ports =
            topology.receiver.ins.iter().map(|hop| topology.port(&topology.receiver, hop, load));
        // Flow from the receiver to the sender.
        let back = topology.receiver.ins[0].link.flow().reversed();
        let announcement = |(number, hop)| match topology.shape {
            Shape::Ports(of) => ports::announcement(topology, of, (number, hop)),
            _ => back,
        };
        let learns = topology.technique.link.learns;
        let announcing = topology.receiver.ins.iter().enumerate().filter(|_| learns);
        let announce = announcing.map(announcement).collect();
        let stations = match topology.shape {
            Shape::Ports(of) => of.stations,
            _ => load.stations,
        };
        let tunnelled = matches!(topology.shape, Shape::Upf(UpfLoad { way: Way::Downlink, .. }));
        ReceiveJob {
            ports: ports.collect(),
            announce,
            stations,
            check: load.check,
            tunnelled,
            timed: load.timed(timing),
            count: None,
            yielding: topology.receiver.shares_cpu,
            interval: timing.interval,
        }
    }

    fn forward(&self, forwarder: &Station) -> Job {
        let Self { topology, ref load, timing } = *self;
        let port = |hops: &[Hop]| {
            let mut port = topology.port(forwarder, &hops[0], load);
            if let PortUri::Afxdp(uri) = &mut port {
                // Ports that share a UMEM forward without a copy.
                uri.umem = Some("forwarder".to_owned());
            }
            if let PortUri::Netmap(uri) = &mut port {
                // As do ports of one memory region.
                uri.memory = Some(NetmapUri::COMMON_MEMORY);
            }
            port
        };
        let ports = (port(&forwarder.ins), port(&forwarder.outs));
        let out = &forwarder.outs[0];
        // A link that delivers only what is addressed to an end drops frames for the one before.
        let has_addresses = topology.technique.link.carries == Carries::OwnMac;
        let addresses = has_addresses.then(|| [out.remote().station, out.local().station]);
        Job::Forward(ForwardJob {
            ports,
            both_ways: false,
            addresses,
            yielding: forwarder.shares_cpu,
            interval: timing.interval,
        })
    }
}
