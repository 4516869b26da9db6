//! One trial: start the roles, let them run, drain what is queued, and read every counter.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dray_lab::peer::{CpuTime, PeerSwitch};
use dray_lab::{Attachment, ContainerId, InterfaceCounters, Lab, LabError};
use dray_port::clock;
use dray_traffic::agent::Request;
use dray_traffic::sample::monotonic_ns;
use dray_traffic::{
    Agreement, ForwardReport, Latency, ReceiveReport, Report, Sample, SendReport, Signal,
};

use crate::accounting::{Audit, Books, Crossing};
use crate::cpu::{self, CpuCost, CpuTimes, RoleTimes};
use crate::endpoint::Io;
use crate::isolation::Isolation;
use crate::peer_ends;
use crate::topology::{Hop, Load, Station, Topology};

/// How long a trial lasts and how often it is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Sending before the measurement starts.
    pub warm_up: Duration,
    /// The measurement.
    pub measure: Duration,
    /// Time between samples; both of the above are multiples of it.
    pub interval: Duration,
}

/// What was agreed on for the ports of each role that has such a port.
pub type Agreements = BTreeMap<String, Vec<Agreement>>;

/// What a trial showed. Rates and CPU time are of the measurement, counts of the whole trial.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What was agreed on for the ports.
    pub agreements: Agreements,
    /// What the sender reports.
    pub sender: SendReport,
    /// What the receiver reports.
    pub receiver: ReceiveReport,
    /// Where frames were lost, and whether all counters agree.
    pub audit: Audit,
    /// Received frames per second, one figure per interval.
    pub receive_rates: Vec<f64>,
    /// Sent frames per second over the measurement.
    pub sent_pps: f64,
    /// Received frames per second over the measurement.
    pub received_pps: f64,
    /// CPU time of each role over the measurement.
    pub cpu: Vec<(String, CpuCost)>,
    /// CPU cycles of all roles per frame received: CPU time times the time-stamp counter's rate.
    pub cycles_per_frame: Option<f64>,
    /// Those of the switch alone, where there is one in user space.
    pub switch_cycles_per_frame: Option<f64>,
    /// Times of round trips, where those were measured.
    pub latency: Option<Latency>,
    /// Whether containers were kept apart, where the link does that.
    pub isolation: Option<Isolation>,
}

/// Runs one trial over a topology that nothing else uses.
pub fn run(
    lab: &mut Lab,
    topology: &Topology,
    load: &Load,
    timing: &Timing,
) -> Result<Trial, LabError> {
    let first = &topology.sender.outs[0];
    let left_before = lab.parent_counters(&first.link)?;
    let before = counters(lab, topology)?;
    let observed = match topology.technique.endpoint.io {
        Io::DpdkAfxdp => peer_ends::observe_one_way(lab, topology, load.size, timing)?,
        Io::DpdkVirtio(rings) => peer_ends::observe_round(lab, topology, rings, load.size, timing)?,
        Io::Udp(_) | Io::Raw(_) | Io::Afxdp { .. } | Io::Tap | Io::Virtio(_) => {
            observe(lab, topology, load, timing)?
        }
    };
    let after = counters(lab, topology)?;
    let counted = |hop: &Hop| {
        let key = (hop.here().container, hop.here().attachment.clone());
        Some(difference(after.get(&key)?, before.get(&key)?))
    };
    let isolation = match (left_before, lab.parent_counters(&first.link)?) {
        (Some(before), Some(after)) => counted(first)
            .zip(counted(&topology.last().ins[0]))
            .map(|(sent, came)| Isolation::of(&sent, &difference(&after, &before), &came)),
        _ => None,
    };
    Ok(Trial { isolation, ..evaluate(topology, timing, observed, counted)? })
}

/// What was seen of a trial.
pub(crate) struct Observed {
    /// By role, of those that told.
    pub(crate) agreements: Agreements,
    /// When the measurement began, on the monotonic clock.
    pub(crate) measure_from_ns: u64,
    pub(crate) sender: SendReport,
    /// In the topology's order: of the forwarders, or of the echo.
    pub(crate) forwarders: Vec<ForwardReport>,
    pub(crate) receiver: ReceiveReport,
    pub(crate) latency: Option<Latency>,
    /// The CPUs at both ends of the measurement.
    pub(crate) cpus: [CpuReading; 2],
}

/// What CPUs have done until some moment.
pub(crate) struct CpuReading {
    at: Instant,
    all: BTreeMap<usize, CpuTimes>,
    /// By the switch's forwarding thread.
    switch: Option<CpuTime>,
}

impl CpuReading {
    pub(crate) fn take(lab: &Lab) -> Result<Self, LabError> {
        let what = "/proc/stat".to_owned();
        let all = cpu::read().map_err(|error| LabError::System { what, error })?;
        let switch = lab.switch().map(PeerSwitch::cpu_time).transpose()?;
        Ok(Self { at: Instant::now(), all, switch })
    }

    /// What the switch did between two readings, scaled to `measure`.
    fn switch_times(&self, after: &Self, cpu: usize, measure: Duration) -> Option<RoleTimes> {
        let (before, switch) = (self.switch?, after.switch?);
        let scale = measure.as_secs_f64() / (after.at - self.at).as_secs_f64();
        let of =
            |before: Duration, after: Duration| after.saturating_sub(before).as_secs_f64() * scale;
        Some(RoleTimes {
            cpu,
            user_s: of(before.user, switch.user),
            system_s: of(before.system, switch.system),
        })
    }
}

/// Starts the roles, lets them run, and drains what is queued.
fn observe(
    lab: &mut Lab,
    topology: &Topology,
    load: &Load,
    timing: &Timing,
) -> Result<Observed, LabError> {
    let cancel = lab.cancel().clone();
    let Timing { warm_up, measure, interval } = *timing;
    let switched_before = switched(lab)?;
    // Those that share memory wait for each other: all are started before the first is waited for.
    for (station, job) in topology.jobs(load, timing) {
        lab[station.container].request(&Request::Start(Box::new(job)))?;
    }
    let mut agreements = BTreeMap::new();
    for station in topology.stations() {
        let agreed = lab[station.container].wait_until_ready(&cancel)?;
        if !agreed.is_empty() {
            agreements.insert(station.role.clone(), agreed);
        }
    }
    // All samples fall on multiples of the interval, so it starts on one.
    let lead = if topology.technique.link.learns { LEAD_LEARNING } else { LEAD };
    let earliest = monotonic_ns() + lead.as_nanos() as u64;
    let start_at_ns = earliest.next_multiple_of(interval.as_nanos() as u64);
    for station in topology.stations() {
        lab[station.container].request(&Request::Begin { at_ns: start_at_ns })?;
    }

    let until_start = Duration::from_nanos(start_at_ns.saturating_sub(monotonic_ns()));
    let measure_from = Instant::now() + until_start + warm_up;
    let read_cpus_at = |moment| {
        cancel.sleep_until(moment)?;
        CpuReading::take(lab)
    };
    let cpus = [read_cpus_at(measure_from)?, read_cpus_at(measure_from + measure)?];

    let done = lab[topology.sender.container].wait_until_done(&cancel, PATIENCE)?;
    let (sender, mut receiver, latency) = match done {
        Report::Send(report) => (report, None, None),
        Report::Ping(report) => (report.send, Some(report.receive), Some(report.latency)),
        other => return Err(unexpected(&topology.sender, &other)),
    };
    if let Some(before) = switched_before {
        // The receiver's silence means nothing while the switch does not get to run.
        let deadline = Instant::now() + Signal::DRAIN_MAX;
        while switched(lab)?.is_some_and(|now| now - before < sender.sent)
            && Instant::now() < deadline
        {
            cancel.sleep_until(Instant::now() + Duration::from_millis(2))?;
        }
    }
    // Drain in the direction of travel: a station is quiet only once those before it are done.
    let mut drain = |station: &Station| {
        lab[station.container].request(&Request::Drain)?;
        lab[station.container].wait_until_done(&cancel, PATIENCE)
    };
    let mut forwarders = Vec::new();
    for station in topology.forwarders.iter().chain([&topology.receiver]) {
        match drain(station)? {
            Report::Forward(report) => forwarders.push(report),
            Report::Receive(report) => receiver = Some(report),
            other => return Err(unexpected(station, &other)),
        }
    }
    let receiver = receiver.expect("what ends at a receiver, or where it began");
    let measure_from_ns = start_at_ns + warm_up.as_nanos() as u64;
    Ok(Observed { agreements, measure_from_ns, sender, forwarders, receiver, latency, cpus })
}

/// Frames that the switch, where there is one that counts, has taken from the sender so far.
fn switched(lab: &Lab) -> Result<Option<u64>, LabError> {
    let counters = lab.switch().map(PeerSwitch::counters).transpose()?.flatten();
    Ok(counters.and_then(|ports| Some(ports.first()?.received_frames)))
}

/// Makes figures of what was seen. `counted` is what the kernel counted at an interface.
fn evaluate(
    topology: &Topology,
    timing: &Timing,
    observed: Observed,
    counted: impl Fn(&Hop) -> Option<InterfaceCounters>,
) -> Result<Trial, LabError> {
    let Observed { agreements, measure_from_ns, sender, forwarders, receiver, latency, cpus } =
        observed;
    let audit = books(topology, &sender, &forwarders, &receiver, counted).audit();

    let window = Window {
        from_ns: measure_from_ns,
        to_ns: measure_from_ns + timing.measure.as_nanos() as u64,
        late_ns: timing.interval.as_nanos() as u64 / 2,
    };
    let sent = window.of(&sender.samples);
    let received = window.of(&receiver.samples);
    let forwarded = forwarders.iter().map(|report| window.of(&report.samples));
    let samples = std::iter::once(sent).chain(forwarded).chain([received]);
    let mut times = topology
        .stations()
        .zip(samples)
        .map(|(station, samples)| role_times(station, samples, timing.measure))
        .collect::<Result<Vec<_>, _>>()?;
    let [before, after] = &cpus;
    let switch =
        topology.switch_cpu.and_then(|cpu| before.switch_times(after, cpu, timing.measure));
    times.extend(switch);
    let costs = cpu::attribute(&before.all, &after.all, &times);
    let cycles = |costs: &[CpuCost]| {
        costs.iter().map(CpuCost::total_s).sum::<f64>() * clock::ticks_per_second() as f64
    };
    let roles = topology.stations().map(|station| station.role.clone());
    let roles = roles.chain(switch.map(|_| SWITCH.to_owned()));
    let received_pps = rate(received);
    let frames = received_pps * timing.measure.as_secs_f64();
    // Elsewhere the counter runs at a rate of its own, far below the CPU's.
    let has_cycles = frames > 0.0 && cfg!(target_arch = "x86_64");
    Ok(Trial {
        agreements,
        audit,
        receive_rates: received.windows(2).map(rate).collect(),
        sent_pps: rate(sent),
        received_pps,
        cycles_per_frame: has_cycles.then(|| cycles(&costs) / frames),
        switch_cycles_per_frame: switch
            .filter(|_| has_cycles)
            .and_then(|_| Some(cycles(std::slice::from_ref(costs.last()?)) / frames)),
        cpu: roles.zip(costs).collect(),
        sender,
        receiver,
        latency,
        isolation: None,
    })
}

/// The switch's name among the roles.
const SWITCH: &str = "switch";
/// Time for the sender to see when it starts.
const LEAD: Duration = Duration::from_millis(20);
/// Time for a switch to learn where the receiver is.
const LEAD_LEARNING: Duration = Duration::from_millis(200);
/// How long a role may take to report after it should have ended.
const PATIENCE: Duration = Duration::from_secs(20);

type Counters = BTreeMap<(ContainerId, Attachment), InterfaceCounters>;

fn counters(lab: &Lab, topology: &Topology) -> Result<Counters, LabError> {
    let hops = topology.stations().flat_map(|station| station.ins.iter().chain(&station.outs));
    let switch = lab.switch().map(PeerSwitch::counters).transpose()?.flatten();
    let mut counters = Counters::new();
    for hop in hops {
        let end = hop.here();
        let counted = match &switch {
            _ if end.interface().is_some() => lab.counters(end)?,
            // What one sends the other receives.
            Some(ports) => InterfaceCounters {
                rx_packets: ports[end.port].sent_frames,
                tx_packets: ports[end.port].received_frames,
                tx_dropped: 0,
            },
            None => continue,
        };
        counters.insert((end.container, end.attachment.clone()), counted);
    }
    Ok(counters)
}

fn difference(after: &InterfaceCounters, before: &InterfaceCounters) -> InterfaceCounters {
    InterfaceCounters {
        rx_packets: after.rx_packets - before.rx_packets,
        tx_packets: after.tx_packets - before.tx_packets,
        tx_dropped: after.tx_dropped - before.tx_dropped,
    }
}

/// Frames sent of which the receiver saw nothing.
fn missing(sender: &SendReport, receiver: &ReceiveReport) -> u64 {
    let behind_the_last = sender.streams.iter().enumerate().map(|(stream, &sent)| {
        let at = receiver.streams.binary_search_by_key(&stream, |seen| seen.stream.into());
        sent.saturating_sub(at.map_or(0, |at| receiver.streams[at].next))
    });
    receiver.lost + behind_the_last.sum::<u64>()
}

fn books(
    topology: &Topology,
    sender: &SendReport,
    forwarders: &[ForwardReport],
    receiver: &ReceiveReport,
    counted: impl Fn(&Hop) -> Option<InterfaceCounters>,
) -> Books {
    // A role reports one number over all of its ports, so its interfaces are added up.
    let crossing = |ours, hops: &[Hop]| {
        let mut kernel = InterfaceCounters::default();
        for hop in hops {
            let Some(counters) = counted(hop) else {
                // Nobody counts there but we.
                let kernel =
                    InterfaceCounters { rx_packets: ours, tx_packets: ours, tx_dropped: 0 };
                return Crossing { ours, kernel };
            };
            kernel.rx_packets += counters.rx_packets;
            kernel.tx_packets += counters.tx_packets;
            kernel.tx_dropped += counters.tx_dropped;
        }
        Crossing { ours, kernel }
    };
    let mut books = Books {
        sent: sender.sent,
        received: receiver.received,
        missing: missing(sender, receiver),
        corrupt: receiver.corrupt,
        outs: vec![crossing(sender.sent, &topology.sender.outs)],
        ..Books::default()
    };
    // The echo is one of these: it forwards to where frames came from.
    let between = topology.forwarders.iter().chain([&topology.receiver]);
    for (station, report) in between.zip(forwarders) {
        books.ins.push(crossing(report.received + report.dropped, &station.ins));
        books.outs.push(crossing(report.transmitted, &station.outs));
        books.dropped += report.dropped;
        books.refused += report.refused;
    }
    let arrived = receiver.received + receiver.duplicated + receiver.corrupt + receiver.foreign;
    books.ins.push(crossing(arrived + receiver.dropped, &topology.last().ins));
    books.dropped += receiver.dropped;
    books
}

/// How early a sample may come: the error of the time-stamp counter's measured rate.
const EARLY_NS: u64 = 100_000;

/// The part of a trial that is measured, on the monotonic clock.
struct Window {
    from_ns: u64,
    to_ns: u64,
    /// How late a sample may come and still belong to its moment: a role that sleeps or shares its
    /// CPU does not get to it at once.
    late_ns: u64,
}

impl Window {
    /// The last sample of a role is taken at its end, not at a multiple of the interval.
    fn of<'a>(&self, samples: &'a [Sample]) -> &'a [Sample] {
        let samples = samples.split_last().map_or(samples, |(_, regular)| regular);
        let first = samples.partition_point(|sample| sample.at_ns + EARLY_NS < self.from_ns);
        let end = samples.partition_point(|sample| sample.at_ns <= self.to_ns + self.late_ns);
        &samples[first.min(end)..end]
    }
}

/// Frames per second between the first and the last of some samples.
fn rate(samples: &[Sample]) -> f64 {
    match (samples.first(), samples.last()) {
        (Some(first), Some(last)) if last.at_ns > first.at_ns => {
            (last.frames - first.frames) as f64 * 1e9 / (last.at_ns - first.at_ns) as f64
        }
        _ => 0.0,
    }
}

/// A role's CPU time over the measurement. A sample may come late; the time between the first and
/// the last is scaled to the measurement's length.
fn role_times(
    station: &Station,
    samples: &[Sample],
    measure: Duration,
) -> Result<RoleTimes, LabError> {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return Err(too_few_samples(station));
    };
    let elapsed_ns = last.at_ns - first.at_ns;
    if (elapsed_ns as f64) < measure.as_nanos() as f64 / 2.0 {
        return Err(too_few_samples(station));
    }
    let scale = measure.as_secs_f64() / elapsed_ns as f64;
    Ok(RoleTimes {
        cpu: station.cpu,
        user_s: last.user_ns.saturating_sub(first.user_ns) as f64 * scale,
        system_s: last.system_ns.saturating_sub(first.system_ns) as f64 * scale,
    })
}

fn too_few_samples(station: &Station) -> LabError {
    let what = format!("took too few samples: CPU {} has too much other work", station.cpu);
    LabError::Container { container: station.role.clone(), what }
}

fn unexpected(station: &Station, report: &Report) -> LabError {
    let what = format!("reported as another role: {report:?}");
    LabError::Container { container: station.role.clone(), what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_traffic::StreamReport;

    fn sample(at_ns: u64, frames: u64) -> Sample {
        Sample { at_ns, frames, bytes: 0, user_ns: 0, system_ns: 0 }
    }

    #[test]
    fn a_window_takes_samples_that_are_a_little_late() {
        const MS: u64 = 1_000_000;
        let moments = [0, 99, 101, 203, 300, 412, 440];
        let samples: Vec<_> = moments.iter().map(|at| sample(at * MS, at * 2)).collect();
        let window = |from, to| Window { from_ns: from * MS, to_ns: to * MS, late_ns: 50 * MS };
        let inside: Vec<_> = window(100, 400).of(&samples).iter().map(|s| s.at_ns / MS).collect();
        assert_eq!(inside, [101, 203, 300, 412]);
        assert_eq!(rate(window(100, 400).of(&samples)), 2e3);
        assert!(window(900, 950).of(&samples).is_empty());
        assert!(window(30, 40).of(&samples).is_empty());
    }

    #[test]
    fn frames_behind_the_last_one_seen_are_missing_too() {
        let sender = SendReport { streams: vec![10, 10, 9], ..Default::default() };
        let seen = |stream, received, lost, next| StreamReport {
            stream,
            received,
            lost,
            next,
            ..Default::default()
        };
        let streams = vec![seen(0, 6, 2, 8), seen(2, 9, 0, 9)];
        let receiver = ReceiveReport { lost: 2, streams, ..Default::default() };
        assert_eq!(missing(&sender, &receiver), 2 + 2 + 10);
    }
}
