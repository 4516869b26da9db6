//! ns-3 simulations at the ends, with forwarders of ours in between.

use std::time::{Duration, Instant};

use dray_lab::peer::{Ns3End, Ns3Sample};
use dray_lab::{Lab, LabError};
use dray_traffic::agent::Request;
use dray_traffic::sample::monotonic_ns;
use dray_traffic::{Job, ReceiveReport, Report, Sample, SendReport};

use super::ours::{TIMEOUT, read_cpus, wait_until_ready};
use super::sampling::{self, QUIET, check_one_port};
use crate::endpoint::Ns3;
use crate::jobs;
use crate::reading::KernelReading;
use crate::run::Run;
use crate::timing::Timing;
use crate::topology::{Hop, Load, Station, Topology};

/// Time for the last sample of the measured part.
const MARGIN: Duration = Duration::from_millis(60);

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
    check_one_port(topology, "ns-3")?;
    let started = Instant::now();
    let start = |lab: &mut Lab, station: &Station, hop: &Hop, sends| {
        let port = ns3.uri(hop.local(), hop.remote(), load.burst);
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
        let container = hop.local().netmap().is_none().then_some(station.container);
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
    let agreements = wait_until_ready(lab, forwarders())?;
    // A frame that is sent earlier may be lost.
    receiver.wait_until_ready(&cancel)?;
    sender.wait_until_ready(&cancel)?;
    let ready_after = started.elapsed();
    let kernel_before = KernelReading::take();
    for station in forwarders() {
        lab[station.container].request(&Request::Begin { at_ns: monotonic_ns() })?;
    }
    sender.begin()?;

    // The simulations take their samples at multiples of the interval.
    let earliest = monotonic_ns() + timing.warm_up.as_nanos() as u64;
    let measure_from_ns = earliest.next_multiple_of(timing.interval.as_nanos() as u64);
    let cpus = read_cpus(lab, measure_from_ns, timing.measure)?;
    lab.sleep_until(Instant::now() + MARGIN)?;

    let (samples, count) = sender.end(&cancel)?;
    let kernel = [kernel_before, KernelReading::take()];
    let counted = |frames: u64, of: &[Ns3Sample]| {
        let size = load.size as u64;
        let sample = |sample: &Ns3Sample| Sample {
            at_ns: sample.at_ns,
            frames: sample.packets,
            bytes: sample.packets * size,
            user_ns: sample.user_ns,
            system_ns: sample.system_ns,
            work_ns: None,
        };
        ((frames, frames * size), of.iter().map(sample).collect())
    };
    let (sent, its_samples) = counted(count.sent - count.port_dropped, &samples);
    let offered = load.rate.map(|rate| (rate * count.seconds) as u64);
    let report = SendReport { offered, ..sampling::sender(sent, its_samples) };
    let mut reports = vec![Report::Send(report)];
    for station in forwarders() {
        lab[station.container].request(&Request::Drain)?;
        reports.push(lab.wait_until_done(station.container, TIMEOUT)?);
    }
    lab.sleep_until(Instant::now() + QUIET)?;
    let (samples, count) = receiver.end(&cancel)?;
    let (received, samples) = counted(count.received, &samples);
    let dropped = count.port_dropped;
    let report = ReceiveReport { dropped, ..sampling::receiver(received, samples) };
    reports.push(Report::Receive(report));
    Ok(Run { ready_after, agreements, measure_from_ns, reports: vec![reports], cpus, kernel })
}
