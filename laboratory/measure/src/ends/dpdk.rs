//! DPDK's testpmd at the ends.
//!
//! If ends and switch share memory, one testpmd is both ends: it sends frames into each port and
//! passes on the frames that the other port receives, so they circulate in both directions as fast
//! as testpmd and the switch can move them. That also treats DPDK fairly on a machine where the
//! ends share a CPU: two polling programs there would take turns of milliseconds. If each end is on
//! an interface or a card's function, it has its own testpmd and its own CPU. Only testpmd's
//! counters show what passed; the payload is not checked.

use std::time::{Duration, Instant};

use dray_lab::peer::{
    AtLinks, Driver, EndpointPort, EndpointRole, EndpointSettings, Memory, PeerEndpoint,
    PortCounters,
};
use dray_lab::{Lab, LabError};
use dray_results::Agreements;
use dray_traffic::{ForwardReport, Report, Sample};

use super::sampling::{Measured, check_one_port, measure, measure_rest, receiver, sample, sender};
use crate::endpoint::Rings;
use crate::reading::KernelReading;
use crate::run::Run;
use crate::timing::Timing;
use crate::topology::{Hop, Station, Topology};

/// Time for a switch to start serving a new endpoint.
const SETTLE: Duration = Duration::from_millis(300);
const RING: u16 = 256;
/// Bursts of 32 frames that circulate in each direction: as many as a ring holds if a frame takes
/// two descriptors. testpmd drops frames that do not fit, and would continue with fewer.
const BURSTS: u16 = RING / 2 / 32;

/// Runs a trial with frames of `size` bytes that circulate through one testpmd.
pub(crate) fn observe_round(
    lab: &mut Lab,
    topology: &Topology,
    rings: Rings,
    size: usize,
    timing: &Timing,
) -> Result<Run, LabError> {
    let cancel = lab.cancel().clone();
    let dir = lab.dir()?;
    let driver = match rings {
        Rings::Memif => Driver::Memif { queue_size: RING },
        rings => Driver::VirtioUser { packed: rings == Rings::Packed, queue_size: RING },
    };
    let port = |hop: &Hop| EndpointPort {
        driver,
        mac: hop.local().station,
        peer_mac: hop.remote().station,
        ..EndpointPort::connecting(hop.local().socket().expect("hop shares memory"), 0, 0)
    };
    let mut endpoint = PeerEndpoint::start(
        &dir,
        &EndpointSettings {
            name: "ends".to_owned(),
            role: EndpointRole::Loop { frame_size: size as u16, bursts: BURSTS },
            cpu: topology.sender.cpu,
            memory: Memory::HugePages,
            ports: topology.sender.outs.iter().map(port).collect(),
        },
    )?;
    endpoint.wait_until_ready(&cancel)?;
    lab.sleep_until(Instant::now() + SETTLE)?;
    let kernel = KernelReading::take();
    endpoint.start_traffic()?;
    let mut samples = Samples::default();
    let measured = measure(lab, timing, || samples.take(&endpoint, &[], None).map(drop))?;
    endpoint.drain_traffic()?;
    measure_rest(lab, || samples.take(&endpoint, &[], None))?;
    Ok(samples.observed(measured, kernel))
}

/// Runs a trial with frames of `size` bytes from a testpmd at the sender's link, through one in
/// each forwarder, to one at the receiver's.
pub(crate) fn observe_one_way(
    lab: &mut Lab,
    topology: &Topology,
    size: usize,
    timing: &Timing,
) -> Result<Run, LabError> {
    let cancel = lab.cancel().clone();
    let dir = lab.dir()?;
    check_one_port(topology, "testpmd")?;
    let start = |lab: &Lab, station: &Station, hops: &[&Hop], role| {
        let settings = AtLinks {
            name: &station.role,
            role,
            cpu: station.cpu,
            namespace: lab[station.container].namespace(),
            attachments: hops.iter().map(|hop| &hop.local().attachment).collect(),
            peer_macs: hops.iter().map(|hop| hop.remote().station).collect(),
        };
        let mut endpoint = PeerEndpoint::start_at_links(&dir, &settings)?;
        endpoint.wait_until_ready(&cancel)?;
        Ok::<_, LabError>(endpoint)
    };
    // From the last to the first: a frame always finds the next program.
    let Topology { sender: from, receiver: to, .. } = topology;
    let mut receiver = start(lab, to, &[&to.ins[0]], EndpointRole::Receiver)?;
    receiver.start_traffic()?;
    let mut forwarders = Vec::new();
    for station in topology.forwarders.iter().rev() {
        let hops = [&station.ins[0], &station.outs[0]];
        let mut forwarder = start(lab, station, &hops, EndpointRole::MacForwarder)?;
        forwarder.start_traffic()?;
        forwarders.insert(0, forwarder);
    }
    let role = EndpointRole::Sender { frame_size: size as u16 };
    let mut sender = start(lab, from, &[&from.outs[0]], role)?;
    lab.sleep_until(Instant::now() + SETTLE)?;
    let kernel = KernelReading::take();
    sender.start_traffic()?;
    let mut samples = Samples::default();
    let mut take = || samples.take(&sender, &forwarders, Some(&receiver));
    let measured = measure(lab, timing, || take().map(drop))?;
    sender.stop_traffic()?;
    measure_rest(lab, || samples.take(&sender, &forwarders, Some(&receiver)))?;
    Ok(samples.observed(measured, kernel))
}

/// Samples of the testpmds' counters.
#[derive(Default)]
struct Samples {
    sent: Vec<Sample>,
    received: Vec<Sample>,
    forwarded: Vec<ForwardReport>,
}

impl Samples {
    /// Samples the counters of a sender, of forwarders and, if it is another program, of a
    /// receiver. Returns the number of frames in all of them.
    fn take(
        &mut self,
        sender: &PeerEndpoint,
        forwarders: &[PeerEndpoint],
        receiver: Option<&PeerEndpoint>,
    ) -> Result<u64, LabError> {
        let ports = sender.counters()?;
        let (frames, bytes) = sent(&ports);
        let sent_sample = sample(frames, bytes, sender.cpu_time()?);
        let received_sample = match receiver {
            Some(receiver) => {
                let (frames, bytes) = received(&receiver.counters()?);
                sample(frames, bytes, receiver.cpu_time()?)
            }
            // One thread is both ends: its time counts once.
            None => {
                let (frames, bytes) = received(&ports);
                Sample { frames, bytes, user_ns: 0, system_ns: 0, ..sent_sample }
            }
        };
        let mut all = sent_sample.frames + received_sample.frames;
        self.sent.push(sent_sample);
        self.received.push(received_sample);
        self.forwarded.resize_with(forwarders.len(), ForwardReport::default);
        for (forwarder, report) in forwarders.iter().zip(&mut self.forwarded) {
            let ports = forwarder.counters()?;
            (report.received, report.bytes) = received(&ports[..1]);
            report.transmitted = sent(&ports[1..]).0;
            report.refused = report.received.saturating_sub(report.transmitted);
            report.samples.push(sample(report.received, report.bytes, forwarder.cpu_time()?));
            all += report.received + report.transmitted;
        }
        Ok(all)
    }

    fn observed(self, (measure_from_ns, cpus): Measured, before: KernelReading) -> Run {
        let counts = |samples: &[Sample]| {
            let last = samples.last().expect("at least one sample");
            (last.frames, last.bytes)
        };
        let (sent, received) = (counts(&self.sent), counts(&self.received));
        let mut reports = vec![Report::Send(sender(sent, self.sent))];
        reports.extend(self.forwarded.into_iter().map(Report::Forward));
        reports.push(Report::Receive(receiver(received, self.received)));
        let (reports, kernel) = (vec![reports], [before, KernelReading::take()]);
        let (ready_after, agreements) = (Duration::ZERO, Agreements::new());
        Run { ready_after, agreements, measure_from_ns, reports, cpus, kernel }
    }
}

/// Frames and bytes that ports sent.
fn sent(ports: &[PortCounters]) -> (u64, u64) {
    let sum = |field: fn(&PortCounters) -> u64| ports.iter().map(field).sum();
    (sum(|port| port.sent_frames), sum(|port| port.sent_bytes))
}

/// Frames and bytes that ports received.
fn received(ports: &[PortCounters]) -> (u64, u64) {
    let sum = |field: fn(&PortCounters) -> u64| ports.iter().map(field).sum();
    (sum(|port| port.received_frames), sum(|port| port.received_bytes))
}
