//! Trials: reads all counters before and after the roles run, and evaluates what they report.

use std::collections::BTreeMap;
use std::time::Duration;

use dray_lab::peer::PeerSwitch;
use dray_lab::{Attachment, ContainerId, InterfaceCounters, Lab, LabError};
use dray_port::clock;
use dray_results::{Agreements, CpuCost, Isolation, Noise, SWITCH};
use dray_traffic::{ForwardReport, Latency, ReceiveReport, Report, SendReport};
use serde::{Deserialize, Serialize};

use crate::accounting::{Audit, Crossing, FrameCounts};
use crate::cost::costs;
use crate::distance::LineTimes;
use crate::run::{Run, ended_early, unexpected};
use crate::span::Span;
use crate::state::State;
use crate::streams::StreamTrial;
use crate::timing::Timing;
use crate::topology::{Hop, Load, Topology};
use crate::{ends, isolation, ports};

/// Result of a trial, over all topologies. Rates and CPU time cover the measurement, counts the
/// whole trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Parameters negotiated for the ports.
    pub agreements: Agreements,
    /// Length of the measurement.
    pub measure: Duration,
    /// Frames sent.
    pub sent: u64,
    /// Frames required by the offered rate, if there is one.
    pub offered: Option<u64>,
    /// Intact frames received, each counted once.
    pub received: u64,
    /// Repeated arrivals of frames that had already arrived.
    pub duplicated: u64,
    /// Frames that arrived after a later one.
    pub reordered: u64,
    /// Frames that arrived damaged.
    pub corrupt: u64,
    /// Lost frames by place, and whether all counters agree.
    pub audit: Audit,
    /// Received frames per second in each interval.
    pub receive_rates: Vec<f64>,
    /// Sent frames per second over the measurement.
    pub sent_pps: f64,
    /// Received frames per second over the measurement.
    pub received_pps: f64,
    /// CPU time over the measurement of each role, and of the kernel's own work.
    pub cpu: Vec<(String, CpuCost)>,
    /// CPU cycles of all roles per frame received: CPU time times the time-stamp counter's rate.
    pub cycles_per_frame: Option<f64>,
    /// CPU cycles of a user-space switch alone per frame received.
    pub switch_cycles_per_frame: Option<f64>,
    /// Frames at the receiving port with the fewest, as a share of the mean, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowest_share: Option<f64>,
    /// Round-trip times, if measured.
    pub latency: Option<Latency>,
    /// One-way times, if measured.
    pub one_way: Option<Latency>,
    /// Delay from the due time of frames until they were passed to the sender's port, if frames
    /// were timed.
    pub sender_late: Option<Latency>,
    /// Time until all roles had their ports open.
    pub ready_after: Duration,
    /// Bytes per second that a neighbour wrote, if there was one that writes.
    pub neighbour_bytes_per_s: Option<f64>,
    /// Result of the isolation check, if the link keeps containers apart.
    pub isolation: Option<Isolation>,
    /// Other activity of the machine.
    pub noise: Noise,
    /// Times between the CPUs, if there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lines: Option<LineTimes>,
}

/// Runs one trial over all `topologies` at the same time. They have the same technique, and nothing
/// else uses them.
pub fn run(
    lab: &mut Lab,
    topologies: &[Topology],
    load: &Load,
    timing: &Timing,
) -> Result<Trial, LabError> {
    let link = topologies[0].sender.outs[0].link.clone();
    let left_before = lab.parent_counters(&link)?;
    let before = counters(lab, topologies)?;
    let run = ends::observe(lab, topologies, load, timing)?;
    let after = counters(lab, topologies)?;
    let counted = |hop: &Hop| {
        let key = (hop.local().container, hop.local().attachment.clone());
        Some(difference(after.get(&key)?, before.get(&key)?))
    };
    let isolation = match (left_before, lab.parent_counters(&link)?) {
        (Some(before), Some(after)) => {
            let sum = |hop: fn(&Topology) -> &Hop| {
                let add = |sum, topology| Some(sum + counted(hop(topology))?);
                topologies.iter().try_fold(InterfaceCounters::default(), add)
            };
            sum(|topology| &topology.sender.outs[0])
                .zip(sum(|topology| &topology.last().ins[0]))
                .map(|(sent, came)| isolation::of(&sent, &difference(&after, &before), &came))
        }
        _ => None,
    };
    Ok(Trial { isolation, ..evaluate(topologies, timing, &run, counted)? })
}

/// Runs one trial of byte streams in the same way as [`run`].
pub fn run_streams(
    lab: &mut Lab,
    topologies: &[Topology],
    load: &Load,
    timing: &Timing,
) -> Result<StreamTrial, LabError> {
    let run = ends::observe(lab, topologies, load, timing)?;
    StreamTrial::of(topologies, timing, &run)
}

/// Reports of one topology by role.
struct Path<'r> {
    sender: &'r SendReport,
    /// Reports of the forwarders, or of the echo.
    forwarders: Vec<&'r ForwardReport>,
    receiver: &'r ReceiveReport,
    latency: Option<&'r Latency>,
}

impl<'r> Path<'r> {
    fn of(topology: &Topology, reports: &'r [Report]) -> Result<Self, LabError> {
        let (mut sender, mut receiver, mut latency) = (None, None, None);
        let mut forwarders = Vec::new();
        for (station, report) in topology.stations().zip(reports) {
            match report {
                Report::Send(report) => sender = Some(report),
                Report::Forward(report) => forwarders.push(report),
                // The last one counts: a role with silent ports receives nothing.
                Report::Receive(report) => receiver = Some(report),
                Report::Ping(report) => {
                    (sender, receiver) = (Some(&report.send), Some(&report.receive));
                    latency = Some(&report.latency);
                }
                other => return Err(unexpected(station, other)),
            }
        }
        match (sender, receiver) {
            (Some(sender), Some(receiver)) => Ok(Self { sender, forwarders, receiver, latency }),
            _ => Err(unexpected(&topology.sender, &reports[0])),
        }
    }
}

/// Computes the result of a run. `counted` returns the kernel's counters of an interface over the
/// trial.
fn evaluate(
    topologies: &[Topology],
    timing: &Timing,
    run: &Run,
    counted: impl Fn(&Hop) -> Option<InterfaceCounters>,
) -> Result<Trial, LabError> {
    let span = Span::new(run.measure_from_ns, timing);
    let cpu = costs(topologies, timing, run)?;
    let seconds = |is_counted: &dyn Fn(&str) -> bool| {
        cpu.iter().filter(|(role, _)| is_counted(role)).map(|(_, cost)| cost.total_s()).sum()
    };
    let (all, of_switch): (f64, f64) = (seconds(&|_| true), seconds(&|role| role == SWITCH));
    let noise = run.noise(topologies, &cpu);
    let mut trial = Trial {
        cpu,
        measure: timing.measure,
        noise,
        agreements: run.agreements.clone(),
        ready_after: run.ready_after,
        ..Trial::default()
    };
    for (topology, reports) in topologies.iter().zip(&run.reports) {
        let path = Path::of(topology, reports)?;
        trial.audit += counts(topology, &path, &counted).audit();
        let rates = |station, samples| {
            let rates = span.rates(samples, |sample| sample.frames);
            rates.ok_or_else(|| ended_early(station))
        };
        trial.sent_pps += rates(&topology.sender, &path.sender.samples)?.1;
        let (each, received_pps) = rates(topology.last(), &path.receiver.samples)?;
        trial.received_pps += received_pps;
        trial.receive_rates.resize(each.len(), 0.0);
        trial.receive_rates.iter_mut().zip(each).for_each(|(sum, rate)| *sum += rate);
        trial.add_counts(&path);
        let received = |hop: &Hop| counted(hop).map(|counters| counters.rx_packets);
        trial.lowest_share = ports::lowest_share(topology, received);
    }
    let frames = trial.received_pps * timing.measure.as_secs_f64();
    // On other architectures, the counter has its own rate, far below the CPU's.
    if frames > 0.0 && cfg!(target_arch = "x86_64") {
        let per_frame = |seconds: f64| seconds * clock::ticks_per_second() as f64 / frames;
        trial.cycles_per_frame = Some(per_frame(all));
        let has_switch = topologies[0].switch_cpu.is_some();
        trial.switch_cycles_per_frame = has_switch.then(|| per_frame(of_switch));
    }
    Ok(trial)
}

impl Trial {
    /// Adds the counts of one topology's roles.
    fn add_counts(&mut self, path: &Path<'_>) {
        let Path { sender, receiver, .. } = path;
        self.sent += sender.sent;
        self.offered = sender.offered.map(|offered| self.offered.unwrap_or(0) + offered);
        self.received += receiver.received;
        self.duplicated += receiver.duplicated;
        self.reordered += receiver.reordered;
        self.corrupt += receiver.corrupt;
        for (sum, part) in [
            (&mut self.latency, path.latency),
            (&mut self.one_way, receiver.latency.as_ref()),
            (&mut self.sender_late, sender.late.as_ref()),
        ] {
            if let Some(part) = part {
                sum.get_or_insert_default().add(part);
            }
        }
    }

    /// Returns the state of the machine. A trial that shows an error is never left out as
    /// disturbed, and where no frame passes the state is of no matter.
    pub(crate) fn state(&self) -> State {
        let is_wrong = self.audit.agrees == Some(false) || self.corrupt > 0 || self.duplicated > 0;
        match self.isolation {
            Some(_) => State::default(),
            None if is_wrong => State::of(self.lines, Noise::default()),
            None => State::of(self.lines, self.noise),
        }
    }

    /// Returns true if the senders fell short of the offered rate by more than 1 %.
    pub fn sent_less_than_offered(&self) -> bool {
        self.offered.is_some_and(|offered| (self.sent as f64) < offered as f64 * 0.99)
    }
}

type Counters = BTreeMap<(ContainerId, Attachment), InterfaceCounters>;

fn counters(lab: &Lab, topologies: &[Topology]) -> Result<Counters, LabError> {
    let stations = topologies.iter().flat_map(Topology::stations);
    let hops = stations.flat_map(|station| station.ins.iter().chain(&station.outs));
    let switch = lab.switch().map(PeerSwitch::counters).transpose()?.flatten();
    let mut counters = Counters::new();
    if !topologies[0].technique.is_counted() {
        return Ok(counters);
    }
    for hop in hops {
        let end = hop.local();
        let counted = match &switch {
            _ if end.interface().is_some() => lab.counters(end)?,
            // The switch's sent frames are the role's received ones, and vice versa.
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

/// Number of sent frames that the receiver did not see.
fn missing(sender: &SendReport, receiver: &ReceiveReport) -> u64 {
    if receiver.streams.is_empty() {
        // The receiver did not check frames, or received none.
        return sender.sent.saturating_sub(receiver.received);
    }
    let behind_the_last = sender.streams.iter().enumerate().map(|(stream, &sent)| {
        let at = receiver.streams.binary_search_by_key(&stream, |seen| seen.stream.into());
        sent.saturating_sub(at.map_or(0, |at| receiver.streams[at].next))
    });
    receiver.lost + behind_the_last.sum::<u64>()
}

fn counts(
    topology: &Topology,
    Path { sender, forwarders, receiver, .. }: &Path<'_>,
    counted: impl Fn(&Hop) -> Option<InterfaceCounters>,
) -> FrameCounts {
    // A role reports one number for all its ports, so the counters of its interfaces are summed.
    let crossing = |ours, hops: &[Hop]| {
        let mut kernel = InterfaceCounters::default();
        for hop in hops {
            let Some(counters) = counted(hop) else {
                return Crossing { ours, kernel: None };
            };
            kernel = kernel + counters;
        }
        Crossing { ours, kernel: Some(kernel) }
    };
    let mut counts = FrameCounts {
        sent: sender.sent,
        received: receiver.received,
        missing: missing(sender, receiver),
        corrupt: receiver.corrupt,
        earlier: receiver.earlier,
        outs: vec![crossing(sender.sent, &topology.sender.outs)],
        ..FrameCounts::default()
    };
    // The echo is a forwarder too: it sends frames back to their origin.
    let between = topology.forwarders.iter().chain([&topology.receiver]);
    for (station, report) in between.zip(forwarders) {
        counts.ins.push(crossing(report.received + report.dropped, &station.ins));
        counts.outs.push(crossing(report.transmitted, &station.outs));
        counts.dropped += report.dropped;
        counts.refused += report.refused;
    }
    let tests = receiver.received + receiver.duplicated + receiver.corrupt + receiver.earlier;
    let arrived = tests + receiver.foreign + receiver.dropped;
    counts.ins.push(crossing(arrived, &topology.last().ins));
    counts.dropped += receiver.dropped;
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_traffic::StreamReport;

    #[test]
    fn missing_includes_frames_after_last_seen() {
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
        let blind = ReceiveReport { received: 7, ..Default::default() };
        let sender = SendReport { sent: 29, ..sender };
        assert_eq!(missing(&sender, &blind), 22);
    }
}
