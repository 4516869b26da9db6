//! netmap's own programs in all roles. Only their counters show what passed; the payload
//! is not checked.

use std::time::Instant;

use dray_lab::peer::NetmapRole;
use dray_lab::{End, Lab, LabError};
use dray_results::Agreements;
use dray_traffic::{ForwardReport, Report};

use super::sampling::{self, QUIET, check_one_port, measure, sample};
use crate::reading::KernelReading;
use crate::run::Run;
use crate::timing::Timing;
use crate::topology::{Hop, Load, Topology};

/// Runs a trial with frames from a `pkt-gen`, through a `bridge` for each forwarder, to a
/// `pkt-gen`.
pub(crate) fn observe(
    lab: &mut Lab,
    topology: &Topology,
    load: &Load,
    timing: &Timing,
) -> Result<Run, LabError> {
    let cancel = lab.cancel().clone();
    let Topology { sender: from, receiver: to, .. } = topology;
    check_one_port(topology, "pkt-gen")?;
    let started = Instant::now();
    // From the last to the first: a frame always finds the next program.
    let role = NetmapRole::Receiver { port: port(to.ins[0].local()) };
    let mut receiver = lab.start_netmap(&to.role, role, to.cpu, timing.interval)?;
    let mut forwarders = Vec::new();
    for station in topology.forwarders.iter().rev() {
        let ports = [&station.ins[0], &station.outs[0]].map(|hop: &Hop| port(hop.local()));
        let role = NetmapRole::Forwarder { ports };
        forwarders.insert(0, lab.start_netmap(&station.role, role, station.cpu, timing.interval)?);
    }
    let hop = &from.outs[0];
    let Load { size, rate, .. } = *load;
    let role = NetmapRole::Sender { port: port(hop.local()), size, flow: hop.link.flow(), rate };
    let kernel_before = KernelReading::take();
    let mut sender = lab.start_netmap(&from.role, role, from.cpu, timing.interval)?;
    let ready_after = started.elapsed();
    sender.wait_until_working(&cancel)?;

    let mut samples = vec![Vec::new(); 2 + forwarders.len()];
    let (measure_from_ns, cpus) = measure(lab, timing, || {
        let programs = [&sender].into_iter().chain(&forwarders).chain([&receiver]);
        for (program, samples) in programs.zip(&mut samples) {
            let frames = program.frames();
            samples.push(sample(frames, frames * size as u64, program.cpu_time()?));
        }
        Ok(())
    })?;
    sender.stop(&cancel)?;
    lab.sleep_until(Instant::now() + QUIET)?;
    receiver.stop(&cancel)?;
    let (sent, received) = (sender.frames(), receiver.frames());
    let counts = |frames: u64| (frames, frames * size as u64);
    let mut samples = samples.into_iter();
    let mut next = || samples.next().expect("samples of every program");
    let mut reports = vec![Report::Send(sampling::sender(counts(sent), next()))];
    reports.extend(forwarders.iter().map(|_| {
        let samples = next();
        // A bridge counts nothing: what it passed on is what arrived behind it.
        let transmitted = received;
        Report::Forward(ForwardReport { received, transmitted, samples, ..Default::default() })
    }));
    reports.push(Report::Receive(sampling::receiver(counts(received), next())));
    let kernel = [kernel_before, KernelReading::take()];
    let (agreements, reports) = (Agreements::new(), vec![reports]);
    Ok(Run { ready_after, agreements, measure_from_ns, reports, cpus, kernel })
}

fn port(end: &End) -> &str {
    end.netmap().expect("netmap's programs go with netmap's links")
}
