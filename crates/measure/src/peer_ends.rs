//! A trial whose sender and receiver are DPDK's testpmd. They send as fast as they can, look at no
//! payload, and are known by their counters alone.

use std::time::{Duration, Instant};

use dray_lab::peer::{Driver, EndpointPort, EndpointRole, EndpointSettings, Memory, PeerEndpoint};
use dray_lab::{Lab, LabError};
use dray_traffic::sample::monotonic_ns;
use dray_traffic::{ReceiveReport, Sample, SendReport, StreamReport};

use crate::topology::{Hop, Station, Topology};
use crate::trial::{CpuReading, Observed, Timing};

/// Time for a switch to serve a new endpoint, and to learn where it is.
const SETTLE: Duration = Duration::from_millis(300);
/// How long nothing must arrive before everything has.
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
    let driver = Driver::VirtioUser { packed, queue_size: 256 };
    let start = |station: &Station, hop: &Hop, role: EndpointRole| {
        let (here, there) = (hop.here(), hop.there());
        let port = EndpointPort {
            driver,
            mac: here.station,
            peer_mac: there.station,
            ..EndpointPort::connecting(here.socket().expect("they share memory"), 0, 0)
        };
        let settings = EndpointSettings {
            name: station.role.clone(),
            role,
            cpu: station.cpu,
            shares_cpu: station.shares_cpu,
            memory: Memory::HugePages,
            ports: vec![port],
        };
        let mut endpoint = PeerEndpoint::start(&dir, &settings)?;
        endpoint.wait_until_ready(&cancel)?;
        Ok::<_, LabError>(endpoint)
    };
    let role = EndpointRole::Receiver;
    let mut receiver = start(&topology.receiver, &topology.receiver.ins[0], role)?;
    let role = EndpointRole::Sender { frame_size: size as u16 };
    let mut sender = start(&topology.sender, &topology.sender.outs[0], role)?;
    receiver.start_traffic()?;
    cancel.sleep_until(Instant::now() + SETTLE)?;
    // What the receiver sends first is no part of the trial.
    let sent_before = sender.counters()?[0].sent_frames;
    let received_before = receiver.counters()?[0].received_frames;
    sender.start_traffic()?;

    let begin = Instant::now();
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    let look = |samples: &mut Vec<Sample>, endpoint: &PeerEndpoint, is_sender: bool| {
        let cpu = endpoint.cpu_time()?;
        let port = endpoint.counters()?[0];
        let (frames, bytes) = if is_sender {
            (port.sent_frames - sent_before, port.sent_bytes)
        } else {
            (port.received_frames - received_before, port.received_bytes)
        };
        samples.push(Sample {
            at_ns: monotonic_ns(),
            frames,
            bytes,
            user_ns: cpu.user.as_nanos() as u64,
            system_ns: cpu.system.as_nanos() as u64,
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
        look(&mut received, &receiver, false)?;
        look(&mut sent, &sender, true)?;
    }
    let after = CpuReading::take(lab)?;
    sender.stop_traffic()?;
    let mut last = None;
    loop {
        cancel.sleep_until(Instant::now() + QUIET)?;
        let now = (sender.counters()?[0].sent_frames, receiver.counters()?[0].received_frames);
        if last.replace(now) == Some(now) {
            break;
        }
    }
    look(&mut received, &receiver, false)?;
    look(&mut sent, &sender, true)?;
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
