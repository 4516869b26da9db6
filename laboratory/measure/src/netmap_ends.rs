//! Trials whose roles are netmap's own programs. Only their counters show what passed; the payload
//! is not checked.

use std::time::{Duration, Instant};

use dray_lab::peer::{NetmapProgram, NetmapRole};
use dray_lab::{End, Lab, LabError};
use dray_results::Agreements;
use dray_traffic::sample::monotonic_ns;
use dray_traffic::{ForwardReport, ReceiveReport, Report, Sample, SendReport, StreamReport};

use crate::reading::{CpuReading, KernelReading};
use crate::run::Run;
use crate::timing::Timing;
use crate::topology::{Hop, Load, Topology};

/// Time for frames in flight to arrive.
const QUIET: Duration = Duration::from_millis(60);

/// Runs a trial with frames from a `pkt-gen`, through a `bridge` for each forwarder, to a `pkt-gen`.
pub(crate) fn observe(
    lab: &mut Lab,
    topology: &Topology,
    load: &Load,
    timing: &Timing,
) -> Result<Run, LabError> {
    let cancel = lab.cancel().clone();
    let Topology { sender: from, receiver: to, .. } = topology;
    if from.outs.len() > 1 {
        let what = "it sends to one port only, and these forwarders are side by side".to_owned();
        return Err(LabError::Peer { peer: "pkt-gen".to_owned(), what });
    }
    let asked = Instant::now();
    // From the last to the first: a frame always finds the next program.
    let role = NetmapRole::Receiver { port: port(to.ins[0].here()) };
    let mut receiver = lab.start_netmap(&to.role, role, to.cpu, timing.interval)?;
    let mut forwarders = Vec::new();
    for station in topology.forwarders.iter().rev() {
        let ports = [&station.ins[0], &station.outs[0]].map(|hop: &Hop| port(hop.here()));
        let role = NetmapRole::Forwarder { ports };
        forwarders.insert(0, lab.start_netmap(&station.role, role, station.cpu, timing.interval)?);
    }
    let hop = &from.outs[0];
    let Load { size, rate, .. } = *load;
    let role = NetmapRole::Sender { port: port(hop.here()), size, flow: hop.link.flow(), rate };
    let kernel_before = KernelReading::take();
    let mut sender = lab.start_netmap(&from.role, role, from.cpu, timing.interval)?;
    let ready_after = asked.elapsed();
    sender.wait_until_working(&cancel)?;

    lab.sleep_until(Instant::now() + timing.warm_up)?;
    let (start, measure_from_ns) = (Instant::now(), monotonic_ns());
    let before = CpuReading::take(lab)?;
    let mut samples = vec![Vec::new(); 2 + forwarders.len()];
    let intervals = (timing.measure.as_nanos() / timing.interval.as_nanos()) as u32;
    for number in 0..=intervals {
        lab.sleep_until(start + number * timing.interval)?;
        let programs = [&sender].into_iter().chain(&forwarders).chain([&receiver]);
        for (program, samples) in programs.zip(&mut samples) {
            samples.push(sample(program, size)?);
        }
    }
    let cpus = [before, CpuReading::take(lab)?];
    sender.stop(&cancel)?;
    lab.sleep_until(Instant::now() + QUIET)?;
    receiver.stop(&cancel)?;
    let (sent, received) = (sender.frames(), receiver.frames());
    let mut reports = Vec::new();
    let last = samples.len() - 1;
    for (number, samples) in samples.into_iter().enumerate() {
        reports.push(match number {
            0 => Report::Send(SendReport {
                sent,
                bytes: sent * size as u64,
                streams: vec![sent],
                samples,
                ..SendReport::default()
            }),
            number if number == last => Report::Receive(ReceiveReport {
                received,
                bytes: received * size as u64,
                // All frames are one stream; its missing frames are those sent but not received.
                streams: vec![StreamReport { received, next: received, ..StreamReport::default() }],
                samples,
                ..ReceiveReport::default()
            }),
            // A bridge counts nothing: what it passed on is what arrived behind it.
            _ => Report::Forward(ForwardReport {
                received,
                transmitted: received,
                samples,
                ..ForwardReport::default()
            }),
        });
    }
    let kernel = [kernel_before, KernelReading::take()];
    let (agreements, reports) = (Agreements::new(), vec![reports]);
    Ok(Run { ready_after, agreements, measure_from_ns, reports, cpus, kernel })
}

fn port(end: &End) -> &str {
    end.netmap().expect("netmap's programs go with netmap's links")
}

fn sample(program: &NetmapProgram, size: usize) -> Result<Sample, LabError> {
    let (frames, cpu) = (program.frames(), program.cpu_time()?);
    Ok(Sample {
        at_ns: monotonic_ns(),
        frames,
        bytes: frames * size as u64,
        user_ns: cpu.user.as_nanos() as u64,
        system_ns: cpu.system.as_nanos() as u64,
        work_ns: None,
    })
}
