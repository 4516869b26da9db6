//! One trial: start the roles, let them run, drain what is queued, and read every counter.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dray_lab::{ContainerId, InterfaceCounters, Lab, LabError};
use dray_port::clock;
use dray_traffic::agent::Request;
use dray_traffic::sample::monotonic_ns;
use dray_traffic::{ForwardReport, Job, ReceiveReport, Report, Sample, SendReport};

use crate::accounting::{Audit, Books, Crossing};
use crate::cpu::{self, CpuCost, RoleTimes};
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

/// What a trial showed. Rates and CPU time are of the measurement, counts of the whole trial.
#[derive(Clone, Debug)]
pub struct Trial {
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
}

/// Runs one trial over a topology that nothing else uses.
pub fn run(
    lab: &mut Lab,
    topology: &Topology,
    load: &Load,
    timing: &Timing,
) -> Result<Trial, LabError> {
    let cancel = lab.cancel().clone();
    let start = |lab: &mut Lab, container: ContainerId, job: Job| {
        lab[container].request(&Request::Start(Box::new(job)))?;
        lab[container].wait_until_ready(&cancel)
    };
    let counters_before = counters(lab, topology)?;

    let interval = timing.interval;
    let receiver = topology.receiver.container;
    start(lab, receiver, topology.receive_job(load, interval))?;
    for forwarder in &topology.forwarders {
        start(lab, forwarder.container, topology.forward_job(forwarder, load, interval))?;
    }
    // The sender opens its ports and builds its frames first; all samples fall on multiples of the
    // interval, so it starts on one.
    let duration = timing.warm_up + timing.measure;
    let earliest = monotonic_ns() + LEAD.as_nanos() as u64;
    let start_at_ns = earliest.next_multiple_of(interval.as_nanos() as u64);
    let sender = topology.sender.container;
    start(lab, sender, topology.send_job(load, start_at_ns, duration, interval))?;

    let until_start = Duration::from_nanos(start_at_ns.saturating_sub(monotonic_ns()));
    let window_start = Instant::now() + until_start + timing.warm_up;
    let read_cpus = || cpu::read().map_err(|error| system("/proc/stat", error));
    cancel.sleep_until(window_start)?;
    let cpus_before = read_cpus()?;
    cancel.sleep_until(window_start + timing.measure)?;
    let cpus_after = read_cpus()?;

    let sender = match lab[sender].wait_until_done(&cancel, duration + PATIENCE)? {
        Report::Send(report) => report,
        other => return Err(unexpected("sender", &other)),
    };
    // Drain in the direction of travel: a station is quiet only once those before it are done.
    let mut forwarders = Vec::new();
    for forwarder in &topology.forwarders {
        match drain(lab, forwarder.container)? {
            Report::Forward(report) => forwarders.push(report),
            other => return Err(unexpected("forwarder", &other)),
        }
    }
    let receiver = match drain(lab, receiver)? {
        Report::Receive(report) => report,
        other => return Err(unexpected("receiver", &other)),
    };
    let counters_after = counters(lab, topology)?;

    let window = Window {
        from_ns: start_at_ns + timing.warm_up.as_nanos() as u64,
        to_ns: start_at_ns + duration.as_nanos() as u64,
        late_ns: interval.as_nanos() as u64 / 2,
    };
    let missing = missing(&sender, &receiver);
    let counted = |hop: &Hop| {
        let key = (hop.here().container, hop.here().interface.clone());
        let (before, after) = (&counters_before[&key], &counters_after[&key]);
        difference(after, before)
    };
    let audit = books(topology, &sender, &forwarders, &receiver, missing, counted).audit();

    let samples: Vec<&[Sample]> = std::iter::once(window.of(&sender.samples))
        .chain(forwarders.iter().map(|report| window.of(&report.samples)))
        .chain([window.of(&receiver.samples)])
        .collect();
    let stations = topology.stations().zip(&samples);
    let times = stations
        .map(|(station, samples)| role_times(station, samples, timing.measure))
        .collect::<Result<Vec<_>, _>>()?;
    let costs = cpu::attribute(&cpus_before, &cpus_after, &times);
    let cpu_s: f64 = costs.iter().map(CpuCost::total_s).sum();
    let roles = topology.stations().map(|station| station.role.clone());

    let received = samples.last().copied().unwrap_or_default();
    let frames = received.last().map_or(0, |last| last.frames - received[0].frames);
    Ok(Trial {
        audit,
        receive_rates: received.windows(2).map(rate).collect(),
        sent_pps: rate(samples[0]),
        received_pps: rate(received),
        cpu: roles.zip(costs).collect(),
        // Elsewhere the counter runs at a rate of its own, far below the CPU's.
        cycles_per_frame: (frames > 0 && cfg!(target_arch = "x86_64"))
            .then(|| cpu_s * clock::ticks_per_second() as f64 / frames as f64),
        sender,
        receiver,
    })
}

/// Time for the sender to get ready before it starts.
const LEAD: Duration = Duration::from_millis(20);
/// How much longer than planned a role may take to report.
const PATIENCE: Duration = Duration::from_secs(20);

fn drain(lab: &mut Lab, container: ContainerId) -> Result<Report, LabError> {
    let cancel = lab.cancel().clone();
    lab[container].request(&Request::Drain)?;
    lab[container].wait_until_done(&cancel, PATIENCE)
}

type Counters = BTreeMap<(ContainerId, String), InterfaceCounters>;

fn counters(lab: &Lab, topology: &Topology) -> Result<Counters, LabError> {
    let ends = topology.stations().flat_map(|station| station.ins.iter().chain(&station.outs));
    ends.map(|hop| {
        let end = hop.here();
        Ok(((end.container, end.interface.clone()), lab.counters(end)?))
    })
    .collect()
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
    missing: u64,
    counted: impl Fn(&Hop) -> InterfaceCounters,
) -> Books {
    // A role reports one number over all of its ports, so its interfaces are added up.
    let crossing = |ours, hops: &[Hop]| {
        let mut kernel = InterfaceCounters::default();
        for hop in hops {
            let counters = counted(hop);
            kernel.rx_packets += counters.rx_packets;
            kernel.tx_packets += counters.tx_packets;
            kernel.tx_dropped += counters.tx_dropped;
        }
        Crossing { ours, kernel }
    };
    let mut books = Books {
        sent: sender.sent,
        received: receiver.received,
        missing,
        corrupt: receiver.corrupt,
        outs: vec![crossing(sender.sent, &topology.sender.outs)],
        ..Books::default()
    };
    for (station, report) in topology.forwarders.iter().zip(forwarders) {
        books.ins.push(crossing(report.received + report.dropped, &station.ins));
        books.outs.push(crossing(report.transmitted, &station.outs));
        books.dropped += report.dropped;
        books.refused += report.refused;
    }
    let arrived = receiver.received + receiver.duplicated + receiver.corrupt + receiver.foreign;
    books.ins.push(crossing(arrived + receiver.dropped, &topology.receiver.ins));
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

fn unexpected(role: &str, report: &Report) -> LabError {
    let what = format!("reported as another role: {report:?}");
    LabError::Container { container: role.to_owned(), what }
}

fn system(what: &str, error: std::io::Error) -> LabError {
    LabError::System { what: what.to_owned(), error }
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
