//! Topologies: a sender, forwarders in a chain or side by side, and a receiver; or a ping and an
//! echo. Several topologies can exist at the same time.

use std::time::Duration;

use dray_lab::link::LinkOptions;
use dray_lab::placement::Cpu;
use dray_lab::{ContainerId, End, Lab, LabError, Link, LinkKind, Placement};
use dray_port::netmap::NetmapUri;
use dray_port::{PortUri, Wait};
use dray_results::{Check, Traffic, UPF, UpfLoad};
use dray_traffic::{
    EchoJob, ForwardJob, Job, Lane, PingJob, ReceiveJob, SendJob, StreamReceiveJob, StreamSendJob,
};
use dray_wire::gtpu::Direction;

use crate::ports;
use crate::shape::Shape;
use crate::technique::Technique;
use crate::timing::Timing;
use crate::upf;

/// A role in its container, with its links in and out.
#[derive(Debug)]
pub struct Station {
    /// Role name: `sender`, `receiver`, `forwarder-1` and so on; `ping`, `echo`.
    pub role: String,
    /// Container of the role: named after it, followed by the pair's number if there are several
    /// pairs.
    pub container: ContainerId,
    /// CPU that the role runs on.
    pub cpu: usize,
    /// True if another role runs on that CPU too.
    pub shares_cpu: bool,
    /// True if the kernel keeps that CPU free of other work.
    pub isolated: bool,
    /// True if another role runs on that core too, even on another hyperthread.
    pub shares_core: bool,
    /// Links on which frames arrive, seen from this role's end.
    pub ins: Vec<Hop>,
    /// Links on which frames leave.
    pub outs: Vec<Hop>,
}

/// One link, seen from one of its ends.
#[derive(Clone, Debug)]
pub struct Hop {
    /// The link, in the direction from sender to receiver.
    pub link: Link,
    /// 0 at the end that sends into the link, 1 at the end that receives from it.
    pub side: usize,
}

impl Hop {
    /// This end.
    pub fn here(&self) -> &End {
        &self.link.ends[self.side]
    }

    /// The other end.
    pub fn there(&self) -> &End {
        &self.link.ends[1 - self.side]
    }
}

/// A topology that was built.
#[derive(Debug)]
pub struct Topology {
    /// Arrangement of the roles.
    pub shape: Shape,
    /// First role, which sends first.
    pub sender: Station,
    /// Roles in between, in the order that frames pass them; in any order if they are side by side.
    pub forwarders: Vec<Station>,
    /// Last role, which receives or sends back.
    pub receiver: Station,
    /// CPU of the switch between the roles, if there is one.
    pub switch_cpu: Option<usize>,
    /// Link between the roles, and their I/O method.
    pub technique: Technique,
    /// MTU of the links, in bytes.
    pub mtu: u32,
}

/// Load that the sender offers, and how it is measured.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Frame size in bytes.
    pub size: usize,
    /// Frames per burst.
    pub burst: usize,
    /// Flows per lane.
    pub flows: u16,
    /// MAC address pairs that frames rotate through.
    pub stations: u16,
    /// Total frames per second; `None` for as many as possible.
    pub rate: Option<f64>,
    /// How closely the receiver checks frames.
    pub check: Check,
    /// True if the time that each frame takes is measured.
    pub timed: bool,
}

impl Load {
    /// Time at the start in which frames are not timed; `None` if they are never timed.
    fn timed(&self, timing: &Timing) -> Option<Duration> {
        self.timed.then_some(timing.warm_up)
    }
}

impl Topology {
    /// Makes the containers and links. Returns one topology per pair of `shape`.
    pub fn build(
        lab: &mut Lab,
        technique: Technique,
        shape: Shape,
        placement: &Placement,
        mtu: u32,
    ) -> Result<Vec<Self>, LabError> {
        let link = technique.link;
        if matches!(shape, Shape::Upf(_)) && link.switch().is_some() && link.learns {
            let what = "N3 and N6 are separate networks, but a learning switch puts all of its \
                        ports into one; choose a switch that joins ports in pairs, such as \
                        switch/patch";
            return Err(LabError::Peer { peer: link.to_string(), what: what.to_owned() });
        }
        let names = match shape {
            Shape::Echo => ["ping", "echo"],
            _ => ["sender", "receiver"],
        };
        let names = names.map(str::to_owned).into_iter();
        let middle = |number| match shape {
            Shape::Upf(_) => UPF.to_owned(),
            Shape::Ports(_) => "silent".to_owned(),
            _ => format!("forwarder-{number}"),
        };
        let names = names.chain((1..=shape.forwarders()).map(middle));
        let names: Vec<String> = names.collect();
        let roles = names.len() * shape.pairs();
        let needs_less = link.is_bypassed() || technique.endpoint.is_ns3();
        let (switch, mut cpus) = if link.switch().is_some() && needs_less {
            // The roles need more time than the switch: each gets a CPU first.
            let mut cpus = placement.assign(roles + 1);
            (cpus.pop(), cpus)
        } else if link.switch().is_some() {
            let (switch, cpus) = placement.assign_around_switch(roles);
            (Some(switch), cpus)
        } else if matches!(shape, Shape::Upf(_)) {
            // Figures are per core of the user plane function, so it gets the core to itself.
            let (upf, mut cpus) = placement.assign_around_switch(roles - 1);
            cpus.push(upf);
            (None, cpus)
        } else {
            (None, placement.assign(roles))
        };
        if technique.endpoint.is_both_ends() {
            // One program is both ends.
            cpus[1] = cpus[0];
        }
        let sharing = |is_shared: &dyn Fn(&Cpu) -> bool| {
            cpus.iter().chain(&switch).filter(|other| is_shared(other)).count() > 1
        };
        if technique.link.runtime().is_some() {
            lab.have_network(technique.link, mtu);
        }
        let mut stations = Vec::new();
        for (index, (role, cpu)) in names.iter().cycle().zip(&cpus).enumerate() {
            let container = match shape.pairs() {
                1 => role.clone(),
                _ => format!("{role}-{}", index / names.len() + 1),
            };
            stations.push(Station {
                container: lab.start_container(&container, &[cpu.id])?,
                role: role.clone(),
                cpu: cpu.id,
                shares_cpu: sharing(&|other| other.id == cpu.id),
                isolated: cpu.isolated,
                shares_core: sharing(&|other| other.core == cpu.core),
                ins: Vec::new(),
                outs: Vec::new(),
            });
        }
        lab.wait_until_up()?;
        if technique.endpoint.is_short_cut() {
            lab.short_cut_tcp()?;
        }

        let switch_cpu = switch.map(|cpu| cpu.id);
        let options = LinkOptions {
            mtu,
            addressed: technique.endpoint.is_addressed(),
            has_programs: technique.endpoint.has_xdp_program(),
            has_machines: technique.endpoint.is_machine(),
            switch_cpu: switch_cpu.unwrap_or_default(),
            switch_sleeps: needs_less,
        };
        for segment in segments(shape, technique.link) {
            let ends = segment.iter().map(|pair| pair.map(|station| stations[station].container));
            let links = lab.link(technique.link, &ends.collect::<Vec<_>>(), options)?;
            for ([from, to], link) in segment.into_iter().zip(links) {
                if shape == Shape::Echo {
                    stations[to].outs.push(Hop { link: link.clone(), side: 1 });
                    stations[from].ins.push(Hop { link: link.clone(), side: 0 });
                }
                // A silent role is at both ends of its links, and does not send.
                let hops = &mut stations[from];
                let hops = if from == to { &mut hops.ins } else { &mut hops.outs };
                hops.push(Hop { link: link.clone(), side: 0 });
                stations[to].ins.push(Hop { link: link.clone(), side: 1 });
                if technique.endpoint.is_both_ends() {
                    // Frames circulate: both ends send and receive.
                    stations[from].outs.push(Hop { link: link.clone(), side: 1 });
                    stations[to].ins.push(Hop { link, side: 0 });
                }
            }
        }
        let mut stations = stations.into_iter();
        let topology = |_| {
            let mut next = || stations.next().expect("each pair has all roles");
            let (sender, receiver) = (next(), next());
            let forwarders = std::iter::repeat_with(next).take(shape.forwarders()).collect();
            Self { shape, sender, receiver, forwarders, switch_cpu, technique, mtu }
        };
        Ok((0..shape.pairs()).map(topology).collect())
    }

    /// All roles: sender, forwarders, receiver.
    pub fn stations(&self) -> impl Iterator<Item = &Station> {
        std::iter::once(&self.sender).chain(&self.forwarders).chain([&self.receiver])
    }

    /// Returns true if any roles share a core.
    pub fn shares_cores(&self) -> bool {
        self.stations().any(|station| station.shares_core)
    }

    /// Returns true if the kernel keeps the CPUs of all roles free of other work.
    pub fn has_isolated_cores(&self) -> bool {
        self.stations().all(|station| station.isolated)
    }

    /// Role at which frames end: the receiver, or the ping that sent them.
    pub fn last(&self) -> &Station {
        match self.shape {
            Shape::Echo => &self.sender,
            _ => &self.receiver,
        }
    }

    /// Jobs of all roles; the role that begins last comes last.
    pub fn jobs(&self, load: &Load, timing: &Timing) -> Vec<(&Station, Job)> {
        let interval = timing.interval;
        let duration = timing.warm_up + timing.measure;
        if let Some(to) = self.technique.endpoint.stream(self.receiver.ins[0].here()) {
            let receive = StreamReceiveJob { at: to.clone(), check: load.check, interval };
            let send = StreamSendJob { to, streams: load.flows, duration, interval };
            return vec![
                (&self.receiver, Job::StreamReceive(receive)),
                (&self.sender, Job::StreamSend(send)),
            ];
        }
        if self.shape == Shape::Echo {
            let port = |station: &Station| self.port(station, &station.outs[0], load);
            let echo = EchoJob {
                port: port(&self.receiver),
                yielding: self.receiver.shares_cpu,
                interval,
            };
            let ping = PingJob {
                lane: Lane { port: port(&self.sender), flow: self.sender.outs[0].link.flow() },
                size: load.size,
                rate: load.rate,
                burst: load.burst,
                count: None,
                warm_up: timing.warm_up,
                duration,
                yielding: self.sender.shares_cpu,
                interval,
            };
            return vec![(&self.receiver, Job::Echo(echo)), (&self.sender, Job::Ping(ping))];
        }
        let receiver = (&self.receiver, self.receive_job(load, timing));
        let forwarders = self.forwarders.iter();
        let forwarders = forwarders.map(|station| {
            let job = match self.shape {
                Shape::Upf(users) => upf::job(self, station, users, load, interval),
                Shape::Ports(_) => ports::silence(self, station, load, interval),
                _ => self.forward_job(station, load, interval),
            };
            (station, job)
        });
        let sender = (&self.sender, self.send_job(load, timing));
        std::iter::once(receiver).chain(forwarders).chain([sender]).collect()
    }

    fn send_job(&self, load: &Load, timing: &Timing) -> Job {
        let Timing { warm_up, measure, interval } = *timing;
        let flow = |hop: &Hop| match self.shape {
            Shape::Ports(load) => ports::flow(self, load, hop),
            _ => hop.link.flow(),
        };
        let lane = |hop: &Hop| Lane { port: self.port(&self.sender, hop, load), flow: flow(hop) };
        // Number of frames that the receiver's queue holds: of our rings, and about of a socket.
        let queue = if self.technique.link.shares_memory() { 1024 } else { 512 };
        // A link that learns addresses does not wait for one receiver: it drops frames that find no
        // room. Otherwise a longer turn has fewer context switches.
        let turn = if self.technique.link.learns { queue / 2 } else { queue / 4 * 3 };
        Job::Send(SendJob {
            lanes: self.sender.outs.iter().map(lane).collect(),
            flows: load.flows,
            stations: match self.shape {
                Shape::Ports(of) if of.traffic == Traffic::All => of.all_stations(),
                Shape::Ports(of) => of.stations,
                _ => load.stations,
            },
            size: load.size,
            users: match self.shape {
                Shape::Upf(users) => Some(upf::users(self, users)),
                _ => None,
            },
            burst: load.burst,
            rate: load.rate,
            count: None,
            duration: warm_up + measure,
            timed: load.timed(timing),
            turn: self.sender.shares_cpu.then_some(turn),
            interval,
        })
    }

    fn receive_job(&self, load: &Load, timing: &Timing) -> Job {
        let ports = self.receiver.ins.iter().map(|hop| self.port(&self.receiver, hop, load));
        let yielding = self.receiver.shares_cpu;
        // Flow from the receiver to the sender.
        let back = self.receiver.ins[0].link.flow().reversed();
        let announcement = |(number, hop)| match self.shape {
            Shape::Ports(of) => ports::announcement(self, of, (number, hop)),
            _ => back,
        };
        let learns = self.technique.link.learns;
        let announcing = self.receiver.ins.iter().enumerate().filter(|_| learns);
        let announce = announcing.map(announcement).collect();
        let stations = match self.shape {
            Shape::Ports(of) => of.stations,
            _ => load.stations,
        };
        let ports = ports.collect();
        let tunnelled =
            matches!(self.shape, Shape::Upf(UpfLoad { direction: Direction::Downlink, .. }));
        let (check, timed, interval) = (load.check, load.timed(timing), timing.interval);
        Job::Receive(ReceiveJob {
            ports,
            announce,
            stations,
            check,
            tunnelled,
            timed,
            count: None,
            yielding,
            interval,
        })
    }

    fn forward_job(&self, forwarder: &Station, load: &Load, interval: Duration) -> Job {
        let port = |hops: &[Hop]| {
            let mut port = self.port(forwarder, &hops[0], load);
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
        let yielding = forwarder.shares_cpu;
        Job::Forward(ForwardJob { ports, both_ways: false, yielding, interval })
    }

    /// Port of a role at one end of a link.
    ///
    /// A role with a CPU to itself polls; one that shares a CPU sleeps while it has no work. If
    /// frames are timed, all roles poll, and yield a shared CPU to each other.
    pub(crate) fn port(&self, station: &Station, hop: &Hop, load: &Load) -> PortUri {
        let wait = match self.shape {
            _ if load.timed => Wait::Poll { pause_us: 0 },
            _ if station.shares_cpu => Wait::Block,
            _ => Wait::POLL,
        };
        self.technique.endpoint.port(hop.here(), hop.there(), load.burst, wait)
    }
}

/// Pairs of linked roles, by their numbers in the order of all topologies; pairs that share a
/// segment are grouped.
fn segments(shape: Shape, link: LinkKind) -> Vec<Vec<[usize; 2]>> {
    let (sender, receiver) = (0, 1);
    let forwarders = 2..2 + shape.forwarders();
    // Each hop is a segment of its own: a forwarder passes frames on unchanged, so on a shared
    // segment they would return to it.
    let alone = |pair| vec![pair];
    match shape {
        Shape::Chain(_) | Shape::Upf(_) => {
            let path: Vec<usize> =
                std::iter::once(sender).chain(forwarders).chain([receiver]).collect();
            let pairs = path.windows(2).map(|pair| [pair[0], pair[1]]);
            // A lab has one switch, so all hops share it. Frames do not return to a user plane
            // function, which has addresses of its own, nor through a switch with ports in pairs.
            let returns = matches!(shape, Shape::Chain(_)) && link.learns;
            match link.switch() {
                Some(_) if !returns => vec![pairs.collect()],
                _ => pairs.map(alone).collect(),
            }
        }
        Shape::Fan(_) => {
            let hops = forwarders.flat_map(|middle| [[sender, middle], [middle, receiver]]);
            hops.map(alone).collect()
        }
        Shape::Echo => vec![alone([sender, receiver])],
        Shape::Ports(load) => {
            let (pairs, silent) = (usize::from(load.active / 2), usize::from(load.silent() / 2));
            let silent = forwarders.flat_map(|role| std::iter::repeat_n([role, role], silent));
            vec![std::iter::repeat_n([sender, receiver], pairs).chain(silent).collect()]
        }
        Shape::Pairs(count) => vec![(0..count).map(|pair| [2 * pair, 2 * pair + 1]).collect()],
    }
}
