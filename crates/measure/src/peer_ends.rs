//! A trial whose ends are both one testpmd of DPDK: it puts frames into either port and passes on what
//! comes out of the other, so they go round, both ways, as fast as it and the switch can. So nothing
//! is done to DPDK's program on a machine where its ends share a CPU: two polling programs there would
//! take turns of milliseconds. Its counters alone say what passed; nobody looks at the payload.

use std::time::{Duration, Instant};

use dray_lab::peer::{
    Driver, EndpointPort, EndpointRole, EndpointSettings, Memory, PeerEndpoint, PortCounters,
};
use dray_lab::{Lab, LabError};
use dray_traffic::sample::monotonic_ns;
use dray_traffic::{ReceiveReport, Sample, SendReport, StreamReport};

use crate::topology::{Hop, Topology};
use crate::trial::{CpuReading, Observed, Timing};

/// Time for a switch to serve a new endpoint.
const SETTLE: Duration = Duration::from_millis(300);
const RING: u16 = 256;
/// Bursts of 32 frames that go round each way: as many as a ring holds where a frame takes two
/// descriptors. testpmd drops what does not fit, and would go on with fewer.
const BURSTS: u16 = RING / 2 / 32;
/// Time for what is under way to arrive.
const QUIET: Duration = Duration::from_millis(60);

/// Runs a trial with frames of `size` bytes.
pub(crate) fn observe(
    lab: &mut Lab,
    topology: &Topology,
    packed: bool,
    size: usize,
    timing: &Timing,
) -> Result<Observed, LabError> {
    let cancel = lab.cancel().clone();
    let dir = lab.dir()?;
    let port = |hop: &Hop| EndpointPort {
        driver: Driver::VirtioUser { packed, queue_size: RING },
        mac: hop.here().station,
        peer_mac: hop.there().station,
        ..EndpointPort::connecting(hop.here().socket().expect("they share memory"), 0, 0)
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
    cancel.sleep_until(Instant::now() + SETTLE)?;
    endpoint.start_traffic()?;

    let begin = Instant::now();
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    let mut look = |endpoint: &PeerEndpoint| {
        let cpu = endpoint.cpu_time()?;
        let ports = endpoint.counters()?;
        let sum = |field: fn(&PortCounters) -> u64| ports.iter().map(field).sum::<u64>();
        let sample = Sample {
            at_ns: monotonic_ns(),
            frames: sum(|port| port.sent_frames),
            bytes: sum(|port| port.sent_bytes),
            user_ns: cpu.user.as_nanos() as u64,
            system_ns: cpu.system.as_nanos() as u64,
        };
        sent.push(sample);
        // One thread is both ends: its time counts once.
        received.push(Sample {
            frames: sum(|port| port.received_frames),
            bytes: sum(|port| port.received_bytes),
            user_ns: 0,
            system_ns: 0,
            ..sample
        });
        Ok::<_, LabError>(())
    };
    cancel.sleep_until(begin + timing.warm_up)?;
    let from = Instant::now();
    let measure_from_ns = monotonic_ns();
    let before = CpuReading::take(lab)?;
    let intervals = (timing.measure.as_nanos() / timing.interval.as_nanos()) as u32;
    for number in 0..=intervals {
        cancel.sleep_until(from + number * timing.interval)?;
        look(&endpoint)?;
    }
    let after = CpuReading::take(lab)?;
    endpoint.drain_traffic()?;
    cancel.sleep_until(Instant::now() + QUIET)?;
    look(&endpoint)?;
    Ok(Observed {
        measure_from_ns,
        sender: send_report(sent),
        forwarders: Vec::new(),
        receiver: receive_report(received),
        latency: None,
        cpus: [before, after],
    })
}

fn send_report(samples: Vec<Sample>) -> SendReport {
    let last = *samples.last().expect("some were taken");
    let (sent, bytes) = (last.frames, last.bytes);
    SendReport { sent, bytes, streams: vec![sent], samples, ..SendReport::default() }
}

fn receive_report(samples: Vec<Sample>) -> ReceiveReport {
    let last = *samples.last().expect("some were taken");
    let (received, bytes) = (last.frames, last.bytes);
    // All are one stream, of which as many are missing as were sent and did not arrive.
    let streams = vec![StreamReport { received, next: received, ..StreamReport::default() }];
    ReceiveReport { received, bytes, streams, samples, ..ReceiveReport::default() }
}
