//! Topologies: a sender, forwarders in a chain or side by side, and a receiver; or a ping and an
//! echo. Several topologies can exist at the same time.

use std::time::Duration;

use dray_lab::link::{Carries, LinkOptions};
use dray_lab::placement::Cpu;
use dray_lab::{ContainerId, End, Lab, LabError, Link, LinkKind, Placement};
use dray_port::{PortUri, Wait};
use dray_results::{Check, UPF, UpfLoad, Way};

use crate::endpoint::{Programs, Stream};
use crate::shape::Shape;
use crate::technique::Technique;
use crate::timing::Timing;

/// A role in its container, with its links in and out.
#[derive(Clone, Debug)]
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
    pub fn local(&self) -> &End {
        &self.link.ends[self.side]
    }

    /// Returns the opposite end.
    pub fn remote(&self) -> &End {
        &self.link.ends[1 - self.side]
    }

    /// Returns the same end, for frames in the other direction.
    fn reversed(&self) -> Self {
        Self { link: self.link.reversed(), side: 1 - self.side }
    }
}

impl Station {
    /// Returns the same role, for frames in the other direction.
    fn reversed(&self) -> Self {
        let reversed = |hops: &[Hop]| hops.iter().map(Hop::reversed).collect();
        Self { ins: reversed(&self.outs), outs: reversed(&self.ins), ..self.clone() }
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
    /// Flows per output.
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
    pub(crate) fn timed(&self, timing: &Timing) -> Option<Duration> {
        self.timed.then_some(timing.warm_up)
    }
}

impl Topology {
    /// Makes the containers and links, with this MTU in bytes and bits per second of the cable
    /// between hosts. Returns one topology per pair of `shape`, or one per direction of a user
    /// plane function.
    pub fn build(
        lab: &mut Lab,
        technique: Technique,
        shape: Shape,
        placement: &Placement,
        (mtu, cable_bps): (u32, Option<u64>),
    ) -> Result<Vec<Self>, LabError> {
        let Technique { link, endpoint } = technique;
        check_upf(shape, link)?;
        let roles = roles(shape);
        let cpus = Cpus::assign(technique, shape, roles.len() * shape.pairs(), placement);
        if link.runtime().is_some() {
            lab.join_by_network(link, mtu);
        }
        let mut stations = start(lab, &roles, &cpus)?;
        if let Programs::Streams(Stream { short_cut: true, .. }) = endpoint.programs {
            lab.short_cut_tcp()?;
        }
        let switch_cpu = cpus.switch.map(|cpu| cpu.id);
        let segments = segments(shape, link);
        let options = LinkOptions {
            functions: 2 * segments.iter().map(Vec::len).sum::<usize>(),
            switch_sleeps: technique.outlasts_switch(),
            cable_bps,
            ..endpoint.link_options(mtu, switch_cpu.unwrap_or_default())
        };
        let container = |station: usize| stations[station].container;
        let ends = segments.iter().map(|segment| segment.iter().map(|pair| pair.map(container)));
        let ends: Vec<Vec<_>> = ends.map(Iterator::collect).collect();
        let links = lab.link_segments(link, &ends, options)?;
        for (pair, link) in segments.into_iter().flatten().zip(links.into_iter().flatten()) {
            add_hops(&mut stations, pair, &link, shape, endpoint.is_both_ends());
        }
        let mut stations = stations.into_iter();
        let topology = |_| {
            let mut next = || stations.next().expect("each pair has all roles");
            let (sender, receiver) = (next(), next());
            let forwarders = std::iter::repeat_with(next).take(shape.forwarders()).collect();
            Self { shape, sender, receiver, forwarders, switch_cpu, technique, mtu }
        };
        let topologies: Vec<Self> = (0..shape.pairs()).map(topology).collect();
        Ok(match shape {
            Shape::Upf(load @ UpfLoad { way: Way::Both, .. }) => {
                topologies[0].both_ways(load, &cpus).into()
            }
            _ => topologies,
        })
    }

    /// Returns a topology for each direction of a user plane function.
    fn both_ways(&self, load: UpfLoad, cpus: &Cpus) -> [Self; 2] {
        let [forwarder, ..] = &self.forwarders[..] else { panic!("no user plane function") };
        let cpu = cpus.second.expect("a second direction has a CPU");
        let shape = |way| Shape::Upf(UpfLoad { way, ..load });
        let station = |station: &Station| {
            // Sender and receiver of a station share its CPU.
            Station { shares_cpu: true, shares_core: true, ..station.clone() }
        };
        let ends = [station(&self.sender), station(&self.receiver)];
        let down = Station {
            cpu: cpu.id,
            shares_cpu: cpus.are_shared(|other| other.id == cpu.id),
            isolated: cpu.isolated,
            shares_core: cpus.are_shared(|other| other.core == cpu.core),
            ..forwarder.reversed()
        };
        let topology = |way, sender, forwarder, receiver| Self {
            shape: shape(way),
            sender,
            forwarders: vec![forwarder],
            receiver,
            ..*self
        };
        let back = ends.each_ref().map(Station::reversed);
        let ([from, to], [back_to, back_from]) = (ends, back);
        [
            topology(Way::Uplink, from, forwarder.clone(), to),
            topology(Way::Downlink, back_from, down, back_to),
        ]
    }

    /// Returns true if the topologies are the two directions of one user plane function.
    pub(crate) fn are_both_ways(topologies: &[Self]) -> bool {
        let [up, down] = topologies else { return false };
        up.sender.container == down.receiver.container
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
        self.technique.endpoint.port(hop.local(), hop.remote(), load.burst, wait)
    }
}

/// CPUs of the roles and of the switch between them.
struct Cpus {
    roles: Vec<Cpu>,
    switch: Option<Cpu>,
    /// For the second direction of a user plane function.
    second: Option<Cpu>,
}

impl Cpus {
    /// Assigns CPUs to `count` roles, and to the switch of the technique if it has one.
    fn assign(technique: Technique, shape: Shape, count: usize, placement: &Placement) -> Self {
        let has_switch = technique.link.switch().is_some();
        let is_both_ways = matches!(shape, Shape::Upf(UpfLoad { way: Way::Both, .. }));
        let count = count + usize::from(is_both_ways);
        let (switch, mut roles) = if has_switch && technique.outlasts_switch() {
            let mut cpus = placement.assign(count + 1);
            (cpus.pop(), cpus)
        } else if has_switch {
            let (switch, cpus) = placement.assign_around_switch(count);
            (Some(switch), cpus)
        } else if is_both_ways {
            // Each direction gets a core before sender and receiver.
            let mut cpus = placement.assign(count);
            cpus.rotate_left(2);
            (None, cpus)
        } else if matches!(shape, Shape::Upf(_)) {
            // Figures are per core of the user plane function, so it gets the core to itself.
            let (upf, mut cpus) = placement.assign_around_switch(count - 1);
            cpus.push(upf);
            (None, cpus)
        } else {
            (None, placement.assign(count))
        };
        if technique.endpoint.is_both_ends() {
            roles[1] = roles[0];
        }
        let second = if is_both_ways { roles.pop() } else { None };
        Self { roles, switch, second }
    }

    /// Returns true if several roles, or a role and the switch, run where `is_there` is true.
    fn are_shared(&self, is_there: impl Fn(&Cpu) -> bool) -> bool {
        self.roles
            .iter()
            .chain(&self.switch)
            .chain(&self.second)
            .filter(|cpu| is_there(cpu))
            .count()
            > 1
    }
}

/// Fails if a user plane function would have both of its networks on one switch, or would get no
/// packets for its users.
fn check_upf(shape: Shape, link: LinkKind) -> Result<(), LabError> {
    let Shape::Upf(UpfLoad { way, .. }) = shape else { return Ok(()) };
    let what = if link.switch().is_some() && link.learns && !link.has_segments() {
        "N3 and N6 are separate networks, but this switch puts all of its ports into one; choose a \
         switch whose ends share memory, such as switch/learning"
    } else if link.carries == Carries::OwnIp && way != Way::Uplink {
        "it delivers packets by the IP addresses of its interfaces, and users' addresses are none \
         of these, so no packet for a user reaches the user plane function; measured uplink only"
    } else {
        return Ok(());
    };
    Err(LabError::Peer { peer: link.to_string(), what: what.to_owned() })
}

/// Returns the names of the roles of a pair: first both ends, then the roles in between.
fn roles(shape: Shape) -> Vec<String> {
    let ends = match shape {
        Shape::Echo => ["ping", "echo"],
        _ => ["sender", "receiver"],
    };
    let middle = |number| match shape {
        Shape::Upf(_) => UPF.to_owned(),
        Shape::Ports(_) => "silent".to_owned(),
        _ => format!("forwarder-{number}"),
    };
    ends.map(str::to_owned).into_iter().chain((1..=shape.forwarders()).map(middle)).collect()
}

/// Starts a container for each role of each pair, and waits until all are up.
fn start(lab: &mut Lab, roles: &[String], cpus: &Cpus) -> Result<Vec<Station>, LabError> {
    let has_pairs = cpus.roles.len() > roles.len();
    let mut stations = Vec::new();
    for (index, (role, cpu)) in roles.iter().cycle().zip(&cpus.roles).enumerate() {
        let container =
            if has_pairs { format!("{role}-{}", index / roles.len() + 1) } else { role.clone() };
        let second = cpus.second.filter(|_| role == UPF).map(|cpu| cpu.id);
        let own: Vec<usize> = [cpu.id].into_iter().chain(second).collect();
        stations.push(Station {
            container: lab.start_container(&container, &own)?,
            role: role.clone(),
            cpu: cpu.id,
            shares_cpu: cpus.are_shared(|other| other.id == cpu.id),
            isolated: cpu.isolated,
            shares_core: cpus.are_shared(|other| other.core == cpu.core),
            ins: Vec::new(),
            outs: Vec::new(),
        });
    }
    lab.wait_until_up()?;
    Ok(stations)
}

/// Adds a link to the two roles that it joins.
fn add_hops(
    stations: &mut [Station],
    [from, to]: [usize; 2],
    link: &Link,
    shape: Shape,
    is_both_ends: bool,
) {
    let hop = |side| Hop { link: link.clone(), side };
    if shape == Shape::Echo {
        stations[to].outs.push(hop(1));
        stations[from].ins.push(hop(0));
    }
    // A silent role is at both ends of its links, and does not send.
    let Station { ins, outs, .. } = &mut stations[from];
    if from == to { ins } else { outs }.push(hop(0));
    stations[to].ins.push(hop(1));
    if is_both_ends {
        // Frames circulate: both ends send and receive.
        stations[from].outs.push(hop(1));
        stations[to].ins.push(hop(0));
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
            // Hops share one segment where frames do not return: to a user plane function, which
            // has addresses of its own, and through a switch with ports in pairs.
            let apart = link.learns && (matches!(shape, Shape::Chain(_)) || link.has_segments());
            match link.switch() {
                Some(_) if !apart => vec![pairs.collect()],
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
