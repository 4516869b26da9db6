//! iperf3 at both ends of each link. Figures are those that it reports; the payload is not checked.

use std::time::{Duration, Instant};

use dray_lab::peer::{Iperf3 as Program, Iperf3Report, Iperf3Role};
use dray_lab::{Lab, LabError};
use dray_results::Agreements;
use dray_traffic::sample::monotonic_ns;
use dray_traffic::stream::StreamBytes;
use dray_traffic::{Report, Sample, SendReport, StreamReceiveReport, StreamSendReport};
use dray_wire::ethernet::ETHERNET_LEN;

use super::sampling::{check_one_port, measure, receiver, sample, sender};
use crate::endpoint::Iperf3;
use crate::reading::KernelReading;
use crate::run::Run;
use crate::timing::Timing;
use crate::topology::{Load, Topology};

/// Bytes of the headers of IPv4 and UDP.
const UDP_HEADERS: usize = 20 + 8;
/// Shortest interval that iperf3 reports on.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Time for the ends to agree on a test before it begins.
const LEAD: Duration = Duration::from_millis(300);

/// Client and server of a pair, and samples of their CPU time.
struct Pair {
    ends: [Program; 2],
    samples: [Vec<Sample>; 2],
}

/// Runs a trial of a client and a server for each topology.
pub(crate) fn observe(
    lab: &mut Lab,
    topologies: &[Topology],
    iperf3: Iperf3,
    load: &Load,
    timing: &Timing,
) -> Result<Run, LabError> {
    let cancel = lab.cancel().clone();
    let interval = timing.interval.max(INTERVAL_MIN);
    let length = load.size - ETHERNET_LEN - UDP_HEADERS;
    let udp = (iperf3 == Iperf3::Udp).then_some((length, load.rate));
    // The time limit of a test has a resolution of seconds.
    let seconds = (LEAD + timing.warm_up + timing.measure).as_secs() + 1;
    let offered = load.rate.map(|rate| (rate * seconds as f64) as u64);
    let started = Instant::now();
    let mut servers = Vec::new();
    for topology in topologies {
        check_one_port(topology, "iperf3")?;
        let to = &topology.receiver;
        let role = Iperf3Role::Server { at: to.ins[0].local().ip };
        servers.push(lab.start_iperf3(to.container, to.cpu, role, interval)?);
    }
    let kernel_before = KernelReading::take();
    let mut pairs = Vec::new();
    for (topology, server) in topologies.iter().zip(servers) {
        let from = &topology.sender;
        let to = topology.receiver.ins[0].local().ip;
        let role = Iperf3Role::Client { to, streams: load.flows, seconds, udp };
        let client = lab.start_iperf3(from.container, from.cpu, role, interval)?;
        pairs.push(Pair { ends: [client, server], samples: [Vec::new(), Vec::new()] });
    }
    let ready_after = started.elapsed();
    lab.sleep_until(Instant::now() + LEAD)?;
    let (measure_from_ns, cpus) = measure(lab, timing, || {
        for Pair { ends, samples } in &mut pairs {
            for (program, samples) in ends.iter().zip(samples) {
                samples.push(sample(0, 0, program.cpu_time()?));
            }
        }
        Ok(())
    })?;
    let mut reports = Vec::new();
    for pair in pairs {
        let Pair { ends: [mut client, mut server], samples: [sent, received] } = pair;
        let began_ns = monotonic_ns() - client.started().elapsed().as_nanos() as u64;
        let of_client = client.end(&cancel)?;
        let of_server = server.end(&cancel)?;
        let fill = |samples, report| fill(samples, report, began_ns, length as u64);
        let samples = [fill(sent, &of_client), fill(received, &of_server)];
        reports.push(match iperf3 {
            Iperf3::Tcp => streams([of_client, of_server], samples, load.flows),
            Iperf3::Udp => datagrams([of_client, of_server], samples, length as u64, offered),
        });
    }
    let kernel = [kernel_before, KernelReading::take()];
    Ok(Run { ready_after, agreements: Agreements::new(), measure_from_ns, reports, cpus, kernel })
}

/// Adds the counts of a report to samples of CPU time. The test began at `began_ns`, and a datagram
/// has `length` bytes.
fn fill(samples: Vec<Sample>, report: &Iperf3Report, began_ns: u64, length: u64) -> Vec<Sample> {
    let fill = |sample: Sample| {
        let seconds = sample.at_ns.saturating_sub(began_ns) as f64 / 1e9;
        let bytes = report.bytes_until(seconds);
        Sample { bytes, frames: bytes / length, ..sample }
    };
    samples.into_iter().map(fill).collect()
}

fn streams(
    [client, server]: [Iperf3Report; 2],
    [sent, received]: [Vec<Sample>; 2],
    count: u16,
) -> Vec<Report> {
    // The server stops counting when the client says that it has ended.
    let bytes = server.bytes();
    let send = StreamSendReport {
        bytes: client.bytes(),
        streams: vec![client.bytes()],
        retransmits: client.retransmits(),
        segment_max: client.segment_max(),
        congestion: client.congestion().to_owned(),
        samples: sent,
        ..StreamSendReport::default()
    };
    let receive = StreamReceiveReport {
        bytes,
        by_tcp: bytes,
        streams: vec![StreamBytes { stream: count, bytes, ended: true }],
        samples: received,
        ..StreamReceiveReport::default()
    };
    vec![Report::StreamSend(send), Report::StreamReceive(receive)]
}

fn datagrams(
    [client, server]: [Iperf3Report; 2],
    [sent, received]: [Vec<Sample>; 2],
    length: u64,
    offered: Option<u64>,
) -> Vec<Report> {
    let counts = |report: &Iperf3Report| (report.bytes() / length, report.bytes());
    let send = SendReport { offered, ..sender(counts(&client), sent) };
    let receive = receiver(counts(&server), received);
    vec![Report::Send(send), Report::Receive(receive)]
}
