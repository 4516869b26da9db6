//! `dray send`, `receive`, `forward`, `echo`, `ping`: one role, by hand, on any ports.

use std::io::IsTerminal;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use dray_datapath::{Cancel, Placement};
use dray_port::{BATCH_MAX, PortUri, UriError};
use dray_traffic::agent::Role;
use dray_traffic::{
    Check, EchoJob, ForwardJob, Job, Lane, Latency, OnSample, Percentiles, PingJob, ReceiveJob,
    Report, RoleError, Sample, SendJob, Signal, StreamReceiveJob, StreamSendJob, StreamUri,
};
use dray_wire::{FRAME_MAX, FRAME_MIN, Flow, MacAddr};

use crate::common::{Failure, cancel_on_signals, print};
use crate::parse;

/// Arguments that all roles have in common.
#[derive(clap::Args)]
struct Common {
    /// End after this time; without it, on Ctrl-C.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse::duration)]
    duration: Option<Duration>,
    /// Run on this CPU.
    #[arg(long)]
    cpu: Option<usize>,
    /// Write the report as JSON.
    #[arg(long)]
    json: bool,
}

/// Value of `--port`.
#[derive(Clone)]
enum Target {
    /// A port.
    Port(PortUri),
    /// Receiver of byte streams.
    Stream(StreamUri),
}

impl std::str::FromStr for Target {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        if StreamUri::is_stream(text) {
            text.parse().map(Self::Stream)
        } else {
            text.parse().map(Self::Port)
        }
    }
}

/// Returns the single stream that `targets` name, or the ports.
fn one_stream_or_ports(targets: Vec<Target>) -> Result<Result<StreamUri, Vec<PortUri>>, Failure> {
    let mut ports = Vec::new();
    let count = targets.len();
    for target in targets {
        match target {
            Target::Port(port) => ports.push(port),
            Target::Stream(stream) if count == 1 => return Ok(Ok(stream)),
            Target::Stream(stream) => {
                let why = "give a byte stream alone; --flows for several streams";
                return Err(Failure::usage(anyhow::anyhow!("--port {stream}: {why}")));
            }
        }
    }
    Ok(Err(ports))
}

/// Header fields of the frames to send.
#[derive(clap::Args)]
struct Addresses {
    /// Source MAC (not for udp: ports, where the kernel writes the headers).
    #[arg(long, value_name = "MAC", default_value_t = Flow::default().src_mac)]
    src_mac: MacAddr,
    /// Destination MAC.
    #[arg(long, value_name = "MAC", default_value_t = Flow::default().dst_mac)]
    dst_mac: MacAddr,
    /// Source IPv4 address.
    #[arg(long, value_name = "IP", default_value_t = Flow::default().src_ip)]
    src_ip: Ipv4Addr,
    /// Destination IPv4 address.
    #[arg(long, value_name = "IP", default_value_t = Flow::default().dst_ip)]
    dst_ip: Ipv4Addr,
}

impl Addresses {
    fn flow(&self) -> Flow {
        Flow {
            src_mac: self.src_mac,
            dst_mac: self.dst_mac,
            src_ip: self.src_ip,
            dst_ip: self.dst_ip,
            ..Flow::default()
        }
    }
}

/// Send test frames or byte streams.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dray send --port raw:eth0 --size 64 --rate 100k --duration 10
  dray send --port afxdp:eth0 --rate 1M
  dray send --port 'udp:10.0.0.1:9000-10.0.0.2:9000?batch=64' --size 1500
  dray send --port tcp:10.0.0.2:9000 --flows 4 --duration 10")]
pub(crate) struct SendArguments {
    /// Port to send through; given more than once, ports take bursts in turn. Byte streams go to
    /// one tcp: receiver.
    #[arg(long, value_name = "URI", required = true)]
    port: Vec<Target>,
    /// Frame size in bytes, from destination MAC to end of payload; the default is the minimum, 64.
    #[arg(long, value_name = "BYTES")]
    size: Option<usize>,
    /// Frames per second; without it, as many as possible.
    #[arg(long, value_name = "PPS", allow_hyphen_values = true, value_parser = parse::rate)]
    rate: Option<f64>,
    /// Frames per burst [default: 64].
    #[arg(long, value_name = "FRAMES")]
    burst: Option<usize>,
    /// Flows per port, with different UDP source ports; udp: ports have one. For tcp: number of
    /// streams.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16384))]
    flows: u16,
    /// MAC address pairs to rotate through; requires a single flow.
    #[arg(long, value_name = "PAIRS", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16384))]
    stations: u16,
    #[command(flatten)]
    addresses: Addresses,
    #[command(flatten)]
    common: Common,
}

/// Receive test frames and count what was received, lost, duplicated, reordered or damaged; or
/// receive byte streams.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dray receive --port raw:eth0
  dray receive --port 'afxdp:eth0?defer=50&wait=poll'
  dray receive --port 'udp:10.0.0.2:9000?batch=64&wait=poll' --duration 10 --json
  dray receive --port 'raw:eth0?wait=poll' --latency
  dray receive --port tcp:0.0.0.0:9000")]
pub(crate) struct ReceiveArguments {
    /// Port to receive from; may be given more than once, except for byte streams.
    #[arg(long, value_name = "URI", required = true)]
    port: Vec<Target>,
    /// Check every byte of only one frame in 64, and only the headers of the others; for streams,
    /// some bytes of each page.
    #[arg(long)]
    sampled: bool,
    /// Report the latency of frames, from when they were due at a sender on this host.
    #[arg(long)]
    latency: bool,
    #[command(flatten)]
    common: Common,
}

/// Move frames from one port to another.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dray forward --from raw:eth0 --to raw:eth1
  dray forward --from 'raw:eth0?batch=64' --to 'raw:eth1?batch=64' --both-ways
  dray forward --from 'afxdp:eth0?umem=both' --to 'afxdp:eth1?umem=both'")]
pub(crate) struct ForwardArguments {
    /// Port to receive from.
    #[arg(long, value_name = "URI")]
    from: PortUri,
    /// Port to transmit to.
    #[arg(long, value_name = "URI")]
    to: PortUri,
    /// Forward from the second port to the first as well.
    #[arg(long)]
    both_ways: bool,
    #[command(flatten)]
    common: Common,
}

/// Send one frame at a time to an echo, and report the round-trip times.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dray ping --port raw:eth0 --dst-mac 02:00:00:00:00:07 --duration 10
  dray ping --port 'virtio:/run/dray/a.sock?wait=poll' --rate 1k --duration 10 --json")]
pub(crate) struct PingArguments {
    /// Port to send and receive through.
    #[arg(long, value_name = "URI")]
    port: PortUri,
    /// Frame size in bytes, from destination MAC to end of payload.
    #[arg(long, value_name = "BYTES", default_value_t = FRAME_MIN)]
    size: usize,
    /// Frames per second; without it, each frame is sent when the last reply arrives.
    #[arg(long, value_name = "PPS", allow_hyphen_values = true, value_parser = parse::rate)]
    rate: Option<f64>,
    #[command(flatten)]
    addresses: Addresses,
    #[command(flatten)]
    common: Common,
}

/// Send every IPv4/UDP frame back to its sender.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  dray echo --port raw:eth0")]
pub(crate) struct EchoArguments {
    /// Port to receive from and send back to.
    #[arg(long, value_name = "URI")]
    port: PortUri,
    #[command(flatten)]
    common: Common,
}

const INTERVAL: Duration = Duration::from_secs(1);
/// Duration without `--duration`: longer than any machine runs.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

pub(crate) fn send(arguments: SendArguments) -> Result<(), Failure> {
    let SendArguments { port, size, rate, burst, flows, stations, addresses, common } = arguments;
    let port = match one_stream_or_ports(port)? {
        Err(ports) => ports,
        Ok(to) => {
            let none = "byte streams have neither frames nor a rate: \
                        leave out --size, --rate, --burst and --stations";
            if size.is_some() || rate.is_some() || burst.is_some() || stations > 1 {
                return Err(Failure::usage(anyhow::anyhow!("--port {to}: {none}")));
            }
            let duration = common.duration.unwrap_or(FOREVER);
            let job = StreamSendJob { to, streams: flows, duration, interval: INTERVAL };
            return run(Job::StreamSend(job), &common);
        }
    };
    let (size, burst) = (size.unwrap_or(FRAME_MIN), burst.unwrap_or(64));
    check_size(size)?;
    if flows > 1 && stations > 1 {
        let why =
            anyhow::anyhow!("--stations {stations} and --flows {flows}: give only one of them");
        return Err(Failure::usage(why));
    }
    if port.len() * usize::from(flows) > 1 << 16 {
        let most = format!("{} ports; ports times flows may be at most 65536", port.len());
        return Err(Failure::usage(anyhow::anyhow!("--flows {flows}: {most}")));
    }
    if !(1..=BATCH_MAX).contains(&burst) {
        return Err(Failure::usage(anyhow::anyhow!(
            "--burst {burst}: give 1 to {BATCH_MAX} frames"
        )));
    }
    let flow = addresses.flow();
    let job = Job::Send(SendJob {
        lanes: port.into_iter().map(|port| Lane { port, flow }).collect(),
        flows,
        stations,
        size,
        users: None,
        burst,
        rate,
        duration: common.duration.unwrap_or(FOREVER),
        turn: Some(SendJob::TURN),
        timed: None,
        interval: INTERVAL,
    });
    run(job, &common)
}

fn check_size(size: usize) -> Result<(), Failure> {
    if (FRAME_MIN..=FRAME_MAX).contains(&size) {
        return Ok(());
    }
    let range = format!("give {FRAME_MIN} to {FRAME_MAX} bytes");
    Err(Failure::usage(anyhow::anyhow!("--size {size}: {range}")))
}

pub(crate) fn ping(arguments: PingArguments) -> Result<(), Failure> {
    let PingArguments { port, size, rate, addresses, common } = arguments;
    check_size(size)?;
    let job = PingJob {
        lane: Lane { port, flow: addresses.flow() },
        size,
        rate,
        burst: 1,
        warm_up: Duration::ZERO,
        duration: common.duration.unwrap_or(FOREVER),
        yielding: true,
        interval: INTERVAL,
    };
    run(Job::Ping(job), &common)
}

pub(crate) fn receive(arguments: ReceiveArguments) -> Result<(), Failure> {
    let check = if arguments.sampled { Check::Sampled } else { Check::Whole };
    let ports = match one_stream_or_ports(arguments.port)? {
        Err(ports) => ports,
        Ok(at) if arguments.latency => {
            let why = anyhow::anyhow!(
                "--port {at}: byte streams have no frames to time: leave out --latency"
            );
            return Err(Failure::usage(why));
        }
        Ok(at) => {
            let job = StreamReceiveJob { at, check, interval: INTERVAL };
            return run(Job::StreamReceive(job), &arguments.common);
        }
    };
    let job = ReceiveJob {
        ports,
        announce: Vec::new(),
        check,
        tunnelled: false,
        timed: arguments.latency.then_some(Duration::ZERO),
        yielding: true,
        interval: INTERVAL,
    };
    run(Job::Receive(job), &arguments.common)
}

pub(crate) fn forward(arguments: ForwardArguments) -> Result<(), Failure> {
    let ForwardArguments { from, to, both_ways, common } = arguments;
    run(
        Job::Forward(ForwardJob {
            ports: (from, to),
            both_ways,
            yielding: true,
            interval: INTERVAL,
        }),
        &common,
    )
}

pub(crate) fn echo(arguments: EchoArguments) -> Result<(), Failure> {
    let job = EchoJob { port: arguments.port, yielding: true, interval: INTERVAL };
    run(Job::Echo(job), &arguments.common)
}

/// Runs the role on a thread of its own and signals it when to end.
fn run(job: Job, common: &Common) -> Result<(), Failure> {
    if let Some(cpu) = common.cpu {
        Placement::of(&[cpu]).map_err(Failure::usage)?;
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu);
        rustix::thread::sched_setaffinity(None, &set).context("setting the CPU affinity")?;
    }
    let cancel = cancel_on_signals()?;
    dray_daemon::watch_threads();
    // A sender measures its duration itself, to the tick.
    let keeps_time = matches!(job, Job::Send(_) | Job::Ping(_) | Job::StreamSend(_));
    let mut role = Role::open(job).map_err(|error| match error {
        wrong if wrong.is_wrong_usage() => Failure::usage(wrong),
        other => other.into(),
    })?;
    role.agreements().iter().for_each(|agreement| eprintln!("{agreement}"));
    let signal = Signal::default();
    let limit = common.duration.filter(|_| !keeps_time);
    let deadline = limit.map(|duration| Instant::now() + duration);
    let (report, left) = thread::scope(|scope| -> anyhow::Result<(Report, usize)> {
        let run = || {
            if keeps_time {
                // The duration starts when the peers are connected.
                role.connect(&signal)?;
            }
            let report = role.run(&signal, show_rates())?;
            Ok::<_, RoleError>((report, role.part()))
        };
        let role = thread::Builder::new().name("role".to_owned()).spawn_scoped(scope, run)?;
        while !role.is_finished() {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                signal.stop();
            }
            if cancel.check().is_err() {
                signal.drain();
            }
            thread::sleep(Cancel::INTERVAL);
        }
        Ok(role.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
    })?;
    if left > 0 {
        let seconds = Role::PARTING.as_secs();
        eprintln!("{left} transmitted frames were not taken within {seconds} s and are lost");
    }
    if common.json {
        print(&(serde_json::to_string_pretty(&report)? + "\n"))
    } else {
        print(&describe(&report))
    }
}

/// On a terminal, prints the rate of every second.
fn show_rates() -> Option<OnSample> {
    std::io::stderr().is_terminal().then(|| {
        Box::new(|last: &Sample, now: &Sample| {
            let seconds = (now.at_ns - last.at_ns) as f64 / 1e9;
            let (frames, bytes) = (now.frames - last.frames, now.bytes - last.bytes);
            let (kpps, mbits) = (frames as f64 / seconds / 1e3, bytes as f64 * 8.0 / seconds / 1e6);
            // Streams have no frames.
            let has_frames = frames > 0 || bytes == 0;
            let kpps = if has_frames { format!("{kpps:10.1} kpps ") } else { String::new() };
            eprintln!("{kpps}{mbits:10.1} Mb/s");
        }) as OnSample
    })
}

/// Returns the rate per second of what `count` counts, from the first to the last whole second that
/// counted something, or over the whole time if there was no whole second.
fn rate_while_busy(samples: &[Sample], count: fn(&Sample) -> u64) -> f64 {
    let steps: Vec<_> =
        samples.windows(2).filter(|pair| count(&pair[1]) > count(&pair[0])).collect();
    let steps = if steps.len() > 2 { &steps[1..steps.len() - 1] } else { &steps };
    match (steps.first(), steps.last()) {
        (Some(first), Some(last)) => {
            let (first, last) = (first[0], last[1]);
            (count(&last) - count(&first)) as f64 * 1e9 / (last.at_ns - first.at_ns) as f64
        }
        _ => 0.0,
    }
}

/// Formats percentiles in microseconds, if there are any.
fn percentiles(latency: &Latency) -> String {
    let us = |ns: u64| format!("{:.2}", ns as f64 / 1e3);
    let Some(times) = latency.percentiles() else { return String::new() };
    let Percentiles { p50, p90, p99, p999, p9999, max } = times;
    let [p50, p90, p99, p999, max] = [p50, p90, p99, p999, max].map(us);
    let p9999 = p9999.map_or(String::new(), |ns| format!(", p99.99 {}", us(ns)));
    format!("; us: p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {p999}{p9999}, max {max}")
}

fn describe(report: &Report) -> String {
    let rate = rate_while_busy(report.samples(), |sample| sample.frames) / 1e3;
    let gbits = rate_while_busy(report.samples(), |sample| sample.bytes) * 8.0 / 1e9;
    match report {
        Report::Send(send) => {
            let note = match send.offered {
                Some(offered) if send.sent_less_than_offered() => {
                    format!("; sent less than offered: {offered}")
                }
                _ => String::new(),
            };
            format!("sent {} frames, {rate:.1} kpps{note}\n", send.sent)
        }
        Report::Receive(receive) => format!(
            "received {} frames, {:.1} kpps; lost {}, duplicated {}, reordered {}, corrupt {}, \
             foreign {}, dropped at the port {}{}\n",
            receive.received,
            rate,
            receive.lost,
            receive.duplicated,
            receive.reordered,
            receive.corrupt,
            receive.foreign,
            receive.dropped,
            receive.latency.as_ref().map_or(String::new(), percentiles),
        ),
        Report::Forward(forward) => format!(
            "received {} frames, {:.1} kpps; transmitted {}, refused {}, dropped at the port {}\n",
            forward.received, rate, forward.transmitted, forward.refused, forward.dropped,
        ),
        Report::Ping(ping) => {
            let times = percentiles(&ping.latency);
            let (sent, back) = (ping.send.sent, ping.receive.received);
            format!("sent {sent} frames, {back} came back, {rate:.1} k round trips/s{times}\n")
        }
        Report::Neighbour(neighbour) => format!("written {} bytes\n", neighbour.written_bytes),
        Report::StreamSend(send) => {
            let copied = send.zerocopy.map_or(String::new(), |zerocopy| {
                let (copied, completed) = (zerocopy.copied, zerocopy.completed);
                format!("; the kernel copied in {copied} of {completed} calls")
            });
            let (bytes, streams, again) = (send.bytes, send.streams.len(), send.retransmits);
            format!(
                "sent {bytes} bytes in {streams} streams, {gbits:.2} Gb/s; {again} segments sent \
                 again{copied}\n"
            )
        }
        Report::StreamReceive(receive) => {
            let (streams, bytes) = (receive.streams.len(), receive.bytes);
            let ended = receive.streams.iter().filter(|stream| stream.ended).count();
            let (corrupt, foreign) = (receive.corrupt, receive.foreign);
            format!(
                "received {bytes} bytes in {streams} streams, {gbits:.2} Gb/s; {ended} ended, \
                 {corrupt} corrupt reads, {foreign} foreign connections\n"
            )
        }
    }
}
