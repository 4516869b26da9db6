//! Topologies: a sender, forwarders in a chain or side by side, a receiver.

use std::time::Duration;

use dray_lab::link::LinkOptions;
use dray_lab::placement::Cpu;
use dray_lab::{ContainerId, End, Lab, LabError, Link, Placement};
use dray_port::Wait;
use dray_traffic::{Check, ForwardJob, Job, Lane, ReceiveJob, SendJob};

use crate::Technique;

/// How the roles are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Sender, this many forwarders one behind the other, receiver.
    Chain(usize),
    /// Sender, this many forwarders side by side, receiver. The sender's bursts go to the
    /// forwarders in turn.
    Fan(usize),
}

impl Shape {
    /// How many forwarders there are.
    pub fn forwarders(self) -> usize {
        match self {
            Self::Chain(count) | Self::Fan(count) => count,
        }
    }
}

/// A role in its container, with its way in and out.
#[derive(Debug)]
pub struct Station {
    /// `sender`, `receiver`, `forwarder-1` and so on.
    pub role: String,
    /// Where it runs.
    pub container: ContainerId,
    /// The CPU that it runs on.
    pub cpu: usize,
    /// Another role runs on that CPU too.
    pub shares_cpu: bool,
    /// Another role runs on that core too, be it on another hyperthread.
    pub shares_core: bool,
    /// The links that frames come in by: which, and the end that is here.
    pub ins: Vec<Hop>,
    /// The links that frames go out by.
    pub outs: Vec<Hop>,
}

/// One link, seen from one of its ends.
#[derive(Clone, Debug)]
pub struct Hop {
    /// The link, from sender towards receiver.
    pub link: Link,
    /// 0 at the end that sends into the link, 1 at the one that receives from it.
    pub side: usize,
}

impl Hop {
    /// The end that is here.
    pub fn here(&self) -> &End {
        &self.link.ends[self.side]
    }

    /// The other end.
    pub fn there(&self) -> &End {
        &self.link.ends[1 - self.side]
    }
}

/// A topology, built.
#[derive(Debug)]
pub struct Topology {
    /// Its first station: what sends.
    pub sender: Station,
    /// In the order that frames pass them; any order where they stand side by side.
    pub forwarders: Vec<Station>,
    /// Its last station: what receives.
    pub receiver: Station,
    /// The CPU of the switch between them, where there is one.
    pub switch_cpu: Option<usize>,
    /// How they are wired and do their I/O.
    pub technique: Technique,
}

/// What the sender shall do.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Frame size in bytes.
    pub size: usize,
    /// Frames per burst.
    pub burst: usize,
    /// Flows per lane.
    pub flows: u16,
    /// Frames per second in all; `None` for as many as possible.
    pub rate: Option<f64>,
    /// How closely the receiver looks at what arrives.
    pub check: Check,
}

impl Topology {
    /// Makes the containers and links.
    pub fn build(
        lab: &mut Lab,
        technique: Technique,
        shape: Shape,
        placement: &Placement,
        mtu: u32,
    ) -> Result<Self, LabError> {
        let names = ["sender", "receiver"].map(str::to_owned).into_iter();
        let names = names.chain((1..=shape.forwarders()).map(|n| format!("forwarder-{n}")));
        let roles = 2 + shape.forwarders();
        let (switch, cpus) = if technique.link.has_switch() {
            let (switch, cpus) = placement.assign_around_switch(roles);
            (Some(switch), cpus)
        } else {
            (None, placement.assign(roles))
        };
        let sharing = |is_shared: &dyn Fn(&Cpu) -> bool| {
            cpus.iter().chain(&switch).filter(|other| is_shared(other)).count() > 1
        };
        let mut stations = Vec::new();
        for (role, cpu) in names.zip(&cpus) {
            stations.push(Station {
                container: lab.start_container(&role, &[cpu.id])?,
                role,
                cpu: cpu.id,
                shares_cpu: sharing(&|other| other.id == cpu.id),
                shares_core: sharing(&|other| other.core == cpu.core),
                ins: Vec::new(),
                outs: Vec::new(),
            });
        }
        lab.wait_until_up()?;

        let switch_cpu = switch.map(|cpu| cpu.id);
        let options = LinkOptions {
            mtu,
            addressed: technique.endpoint.is_addressed(),
            switch_cpu: switch_cpu.unwrap_or_default(),
        };
        let (sender, receiver) = (0, 1);
        let forwarders = 2..2 + shape.forwarders();
        let pairs: Vec<(usize, usize)> = match shape {
            Shape::Chain(_) => {
                let path: Vec<usize> =
                    std::iter::once(sender).chain(forwarders).chain([receiver]).collect();
                path.windows(2).map(|pair| (pair[0], pair[1])).collect()
            }
            Shape::Fan(_) => {
                forwarders.flat_map(|middle| [(sender, middle), (middle, receiver)]).collect()
            }
        };
        for (from, to) in pairs {
            let ends = (stations[from].container, stations[to].container);
            let link = lab.link(technique.link, ends.0, ends.1, options)?;
            stations[from].outs.push(Hop { link: link.clone(), side: 0 });
            stations[to].ins.push(Hop { link, side: 1 });
        }
        let mut stations = stations.into_iter();
        let mut next = || stations.next().expect("sender and receiver were made first");
        let (sender, receiver) = (next(), next());
        Ok(Self { sender, receiver, forwarders: stations.collect(), switch_cpu, technique })
    }

    /// All stations: sender, forwarders, receiver.
    pub fn stations(&self) -> impl Iterator<Item = &Station> {
        std::iter::once(&self.sender).chain(&self.forwarders).chain([&self.receiver])
    }

    /// Whether any roles share a core.
    pub fn shares_cores(&self) -> bool {
        self.stations().any(|station| station.shares_core)
    }

    /// The sender's job.
    pub fn send_job(&self, load: &Load, duration: Duration, interval: Duration) -> Job {
        let lane =
            |hop: &Hop| Lane { port: self.port(&self.sender, hop, load), flow: hop.link.flow() };
        Job::Send(SendJob {
            lanes: self.sender.outs.iter().map(lane).collect(),
            flows: load.flows,
            size: load.size,
            burst: load.burst,
            rate: load.rate,
            duration,
            yielding: self.sender.shares_cpu,
            interval,
        })
    }

    /// The receiver's job.
    pub fn receive_job(&self, load: &Load, interval: Duration) -> Job {
        let ports = self.receiver.ins.iter().map(|hop| self.port(&self.receiver, hop, load));
        let yielding = self.receiver.shares_cpu;
        let hop = &self.receiver.ins[0];
        // From the receiver to the sender.
        let back = hop.link.flow().reversed();
        let announce = self.technique.link.learns().then_some(back);
        let ports = ports.collect();
        Job::Receive(ReceiveJob { ports, announce, check: load.check, yielding, interval })
    }

    /// The job of one of the forwarders.
    pub fn forward_job(&self, forwarder: &Station, load: &Load, interval: Duration) -> Job {
        let port = |hops: &[Hop]| self.port(forwarder, &hops[0], load);
        let ports = (port(&forwarder.ins), port(&forwarder.outs));
        let yielding = forwarder.shares_cpu;
        Job::Forward(ForwardJob { ports, both_ways: false, yielding, interval })
    }

    /// A role that has a CPU to itself polls; one that shares it sleeps while it has no work.
    fn port(&self, station: &Station, hop: &Hop, load: &Load) -> dray_port::PortUri {
        let wait = if station.shares_cpu { Wait::Block } else { Wait::POLL };
        self.technique.endpoint.port(hop.here(), hop.there(), load.burst, wait)
    }
}
