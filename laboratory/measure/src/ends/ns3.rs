//! ns-3 simulations at the ends, with forwarders of ours in between.

use std::time::{Duration, Instant};

use dray_lab::peer::{Ns3Count, Ns3End, Ns3Sample};
use dray_lab::{Lab, LabError};
use dray_results::Agreements;
use dray_traffic::agent::Request;
use dray_traffic::sample::monotonic_ns;
use dray_traffic::{Job, ReceiveReport, Report, Sample, SendReport, StreamReport};

use crate::endpoint::Ns3;
use crate::jobs;
use crate::reading::{CpuReading, KernelReading};
use crate::run::Run;
use crate::timing::Timing;
use crate::topology::{Hop, Load, Station, Topology};

/// Time for frames in flight to arrive.
const QUIET: Duration = Duration::from_millis(60);
/// Time for the last sample of the measured part.
const MARGIN: Duration = Duration::from_millis(60);
/// Maximum time for a forwarder to report after it should have ended.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a trial with UDP packets from one simulation through forwarders to another one.
pub(crate) fn observe(
    lab: &mut Lab,
    topology: &Topology,
    ns3: Ns3,
    load: &Load,
    timing: &Timing,
) -> Result<Run, LabError> {
    let cancel = lab.cancel().clone();
    let Topology { sender: from, receiver: to, .. } = topology;
    if from.outs.len() > 1 {
        let what = "sends to one port, so forwarders cannot be side by side".to_owned();
        return Err(LabError::Peer { peer: "ns-3".to_owned(), what });
    }
    let asked = Instant::now();
    let start = |lab: &mut Lab, station: &Station, hop: &Hop, sends| {
        let port = ns3.uri(hop.here(), hop.there(), load.burst);
        let port = port.expect("simulations are measured on links that they open");
        let end = Ns3End {
            sends,
            port: &port,
            layer: ns3.layer,
            flow: from.outs[0].link.flow(),
            size: load.size,
            mtu: topology.mtu,
            rate: load.rate,
            interval_s: timing.interval.as_secs_f64(),
        };
        // netmap's ports are in the namespace of the "host".
        let container = hop.here().netmap().is_none().then_some(station.container);
        lab.start_ns3(container, &station.role, station.cpu, end)
    };
    let mut receiver = start(lab, to, &to.ins[0], false)?;
    let forwarders = || topology.forwarders.iter();
    for (station, job) in jobs::of(topology, load, timing) {
        if matches!(job, Job::Forward(_)) {
            lab[station.container].request(&Request::Start(Box::new(job)))?;
        }
    }
    let mut sender = start(lab, from, &from.outs[0], true)?;
    let mut agreements = Agreements::new();
    for station in forwarders() {
        let agreed = lab.wait_until_ready(station.container)?;
        if !agreed.is_empty() {
            agreements.insert(lab[station.container].name().to_owned(), agreed);
        }
    }
    // A frame that is sent earlier may be lost.
    receiver.wait_until_ready(&cancel)?;
    sender.wait_until_ready(&cancel)?;
    let ready_after = asked.elapsed();
    let kernel_before = KernelReading::take();
    for station in forwarders() {
        lab[station.container].request(&Request::Begin { at_ns: monotonic_ns() })?;
    }
    sender.begin()?;

    // The simulations take their samples at multiples of the interval.
    let earliest = monotonic_ns() + timing.warm_up.as_nanos() as u64;
    let measure_from_ns = earliest.next_multiple_of(timing.interval.as_nanos() as u64);
    let now = Instant::now();
    let from = now + Duration::from_nanos(measure_from_ns.saturating_sub(monotonic_ns()));
    lab.sleep_until(from)?;
    let before = CpuReading::take(lab)?;
    lab.sleep_until(from + timing.measure)?;
    let cpus = [before, CpuReading::take(lab)?];
    lab.sleep_until(from + timing.measure + MARGIN)?;

    let (samples, count) = sender.end(&cancel)?;
    let kernel = [kernel_before, KernelReading::take()];
    let mut reports = vec![Report::Send(send_report(&samples, &count, load))];
    for station in forwarders() {
        lab[station.container].request(&Request::Drain)?;
        reports.push(lab.wait_until_done(station.container, PATIENCE)?);
    }
    lab.sleep_until(Instant::now() + QUIET)?;
    let (samples, count) = receiver.end(&cancel)?;
    reports.push(Report::Receive(receive_report(&samples, &count, load)));
    Ok(Run { ready_after, agreements, measure_from_ns, reports: vec![reports], cpus, kernel })
}

fn samples(samples: &[Ns3Sample], size: usize) -> Vec<Sample> {
    let sample = |sample: &Ns3Sample| Sample {
        at_ns: sample.at_ns,
        frames: sample.packets,
        bytes: sample.packets * size as u64,
        user_ns: sample.user_ns,
        system_ns: sample.system_ns,
        work_ns: None,
    };
    samples.iter().map(sample).collect()
}

fn send_report(of: &[Ns3Sample], count: &Ns3Count, load: &Load) -> SendReport {
    let sent = count.sent - count.port_dropped;
    SendReport {
        sent,
        offered: load.rate.map(|rate| (rate * count.seconds) as u64),
        bytes: sent * load.size as u64,
        streams: vec![sent],
        samples: samples(of, load.size),
        ..SendReport::default()
    }
}

fn receive_report(of: &[Ns3Sample], count: &Ns3Count, load: &Load) -> ReceiveReport {
    let &Ns3Count { received, port_dropped, .. } = count;
    ReceiveReport {
        received,
        bytes: received * load.size as u64,
        dropped: port_dropped,
        // All frames are one stream; its missing frames are those sent but not received.
        streams: vec![StreamReport { received, next: received, ..StreamReport::default() }],
        samples: samples(of, load.size),
        ..ReceiveReport::default()
    }
}
