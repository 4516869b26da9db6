//! `dray send`, `receive`, `forward`, `echo`, `ping`: one role, by hand, on any ports.

mod captured;
mod common;
pub(crate) mod describe;
mod run;
mod waiting;

use std::net::Ipv4Addr;
use std::time::Duration;

use dray_port::{BATCH_MAX, PortUri, UriError};
use dray_traffic::{
    Check, EchoJob, ForwardJob, Job, Output, PingJob, ReceiveJob, SendJob, StreamReceiveJob,
    StreamSendJob, StreamUri,
};
use dray_wire::{FRAME_MAX, FRAME_MIN, Flow, MacAddr};

use crate::common::{Failure, usage};
use crate::parse::{self, Rate};
use common::Common;
use run::run;

/// Adds what all roles have in common to a help text.
macro_rules! help {
    ($text:literal) => {
        concat!(
            $text,
            "\n\n\
Exit status:
  0  frames, replies or bytes came through
  1  nothing came through, or a failure; standard error says why
  2  invalid arguments
SIGINT (Ctrl-C), SIGTERM and SIGHUP end a role early: it reports, with the same status."
        )
    };
}

/// Value of `--count`: more would take years.
fn count(text: &str) -> Result<u64, String> {
    const MOST: u64 = 1_000_000_000_000_000;
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1_000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    let count = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(factor));
    let count = count.filter(|count| (1..=MOST).contains(count));
    count.ok_or_else(|| "give a number of frames, 1 or more, such as 1000, 20k or 1M".to_owned())
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
                return Err(usage!("--port {stream}: {why}"));
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
#[command(after_help = help!("\
Examples:
  dray send --port raw:eth0 --size 64 --rate 100k --duration 10
  dray send --port raw:eth0 --size 1500 --rate 1Gbit -t 10 -i 2
  dray send --port afxdp:eth0 --rate 1M --count 1000000
  dray send --port 'udp:10.0.0.1:9000-10.0.0.2:9000?batch=64' --size 1500
  dray send --port tcp:10.0.0.2:9000 --flows 4 --duration 10"))]
pub(crate) struct SendArguments {
    /// Port to send through; given more than once, ports take bursts in turn. Byte streams go to
    /// one tcp: receiver.
    #[arg(short, long, value_name = "URI", required = true)]
    port: Vec<Target>,
    /// Frame size in bytes, from destination MAC to end of payload; the default is the minimum, 64.
    #[arg(short, long, value_name = "BYTES")]
    size: Option<usize>,
    /// Frames per second (20k, 20kpps), or bits per second of the frames, from destination MAC to
    /// end of payload (1Gbit); without it, as many frames as possible.
    #[arg(short, long, value_name = "RATE", allow_hyphen_values = true, value_parser = parse::offered)]
    rate: Option<Rate>,
    /// Bits per second, as for iperf3 (500M, 10G): the same as --rate 10Gbit.
    #[arg(short, long, value_name = "BITS", conflicts_with = "rate", allow_hyphen_values = true, value_parser = parse::bits)]
    bitrate: Option<Rate>,
    /// End after this number of frames.
    #[arg(short, long, value_name = "FRAMES", allow_hyphen_values = true, value_parser = count)]
    count: Option<u64>,
    /// Frames per burst [default: 64, or fewer: what --rate sends in a millisecond].
    #[arg(long, value_name = "FRAMES")]
    burst: Option<usize>,
    /// Flows per port, with different UDP source ports; udp: ports have one. For tcp: number of
    /// streams.
    #[arg(short = 'P', long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16384))]
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
#[command(after_help = help!("\
Examples:
  dray receive --port raw:eth0
  dray receive --port raw:eth0 --count 1000 -t 60     status 1 if fewer come within a minute
  dray receive --port 'afxdp:eth0?defer=50&wait=poll'
  dray receive --port 'udp:10.0.0.2:9000?batch=64&wait=poll' --duration 10 --json
  dray receive --port 'raw:eth0?wait=poll' --latency
  dray receive --port netmap:vale0:b
  dray receive --port tcp:0.0.0.0:9000"))]
pub(crate) struct ReceiveArguments {
    /// Port to receive from; may be given more than once, except for byte streams.
    #[arg(short, long, value_name = "URI", required = true)]
    port: Vec<Target>,
    /// Check every byte of only one frame in 64, and only the headers of the others; for streams,
    /// some bytes of each page.
    #[arg(long)]
    sampled: bool,
    /// Report the latency of frames, from when they were due at a sender on this host.
    #[arg(long)]
    latency: bool,
    /// End after this number of test frames; status 1 if the role ends with fewer.
    #[arg(short, long, value_name = "FRAMES", allow_hyphen_values = true, value_parser = count)]
    count: Option<u64>,
    #[command(flatten)]
    common: Common,
}

/// Move frames from one port to another.
#[derive(clap::Args)]
#[command(after_help = help!("\
Examples:
  dray forward --from raw:eth0 --to raw:eth1
  dray forward --from 'raw:eth0?batch=64' --to 'raw:eth1?batch=64' --both-ways
  dray forward --from 'afxdp:eth0?umem=both' --to 'afxdp:eth1?umem=both'
  dray forward --from 'netmap:x}1' --to 'netmap:x{2'"))]
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
#[command(after_help = help!("\
Examples:
  dray ping --port raw:eth0 --dst-mac 02:00:00:00:00:07 --count 1000
  dray ping --port 'virtio:/run/dray/a.sock?wait=poll' --rate 1k --duration 10 --json"))]
pub(crate) struct PingArguments {
    /// Port to send and receive through.
    #[arg(short, long, value_name = "URI")]
    port: PortUri,
    /// Frame size in bytes, from destination MAC to end of payload.
    #[arg(short, long, value_name = "BYTES", default_value_t = FRAME_MIN)]
    size: usize,
    /// Frames per second (1k, 1kpps), or bits per second of the frames (1Mbit); without it, each
    /// frame is sent when the last reply arrives.
    #[arg(short, long, value_name = "RATE", allow_hyphen_values = true, value_parser = parse::offered)]
    rate: Option<Rate>,
    /// End after this number of frames.
    #[arg(short, long, value_name = "FRAMES", allow_hyphen_values = true, value_parser = count)]
    count: Option<u64>,
    #[command(flatten)]
    addresses: Addresses,
    #[command(flatten)]
    common: Common,
}

/// Send every IPv4/UDP frame back to its sender.
#[derive(clap::Args)]
#[command(after_help = help!("\
Example:
  dray echo --port raw:eth0"))]
pub(crate) struct EchoArguments {
    /// Port to receive from and send back to.
    #[arg(short, long, value_name = "URI")]
    port: PortUri,
    #[command(flatten)]
    common: Common,
}

/// Duration without `--duration`: longer than any machine runs.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

pub(crate) fn send(arguments: SendArguments) -> Result<(), Failure> {
    let SendArguments { port, size, rate, bitrate, count, .. } = arguments;
    let SendArguments { burst, flows, stations, addresses, common, .. } = arguments;
    let rate = rate.or(bitrate);
    let port = match one_stream_or_ports(port)? {
        Err(ports) => ports,
        Ok(to) => {
            let none = "byte streams have neither frames nor a rate: \
                        leave out --size, --rate, --count, --burst and --stations";
            let frames = size.is_some() || rate.is_some() || count.is_some() || burst.is_some();
            if frames || stations > 1 {
                return Err(usage!("--port {to}: {none}"));
            }
            let duration = common.duration.unwrap_or(FOREVER);
            let job = StreamSendJob { to, streams: flows, duration, interval: common.samples() };
            return run(Job::StreamSend(job), &common);
        }
    };
    let size = size.unwrap_or(FRAME_MIN);
    check_size(size)?;
    let rate = rate.map(|rate| rate.frames_per_second(size));
    let burst = burst.unwrap_or_else(|| usual_burst(rate));
    if flows > 1 && stations > 1 {
        return Err(usage!("--stations {stations} and --flows {flows}: give only one of them"));
    }
    if port.len() * usize::from(flows) > 1 << 16 {
        return Err(usage!(
            "--flows {flows}: {} ports; ports times flows may be at most 65536",
            port.len()
        ));
    }
    if !(1..=BATCH_MAX).contains(&burst) {
        return Err(usage!("--burst {burst}: give 1 to {BATCH_MAX} frames"));
    }
    let flow = addresses.flow();
    let job = Job::Send(SendJob {
        outputs: port.into_iter().map(|port| Output { port, flow }).collect(),
        flows,
        stations,
        size,
        users: None,
        burst,
        rate,
        count,
        duration: common.duration.unwrap_or(FOREVER),
        turn: Some(SendJob::TURN),
        timed: None,
        interval: common.samples(),
    });
    run(job, &common)
}

/// Returns the number of frames per burst: more at a time than in a millisecond would make a slow
/// rate uneven.
fn usual_burst(rate: Option<f64>) -> usize {
    rate.map_or(64, |rate| (rate / 1e3).clamp(1.0, 64.0) as usize)
}

fn check_size(size: usize) -> Result<(), Failure> {
    if (FRAME_MIN..=FRAME_MAX).contains(&size) {
        return Ok(());
    }
    Err(usage!("--size {size}: give {FRAME_MIN} to {FRAME_MAX} bytes"))
}

pub(crate) fn ping(arguments: PingArguments) -> Result<(), Failure> {
    let PingArguments { port, size, rate, count, addresses, common } = arguments;
    check_size(size)?;
    let job = PingJob {
        output: Output { port, flow: addresses.flow() },
        size,
        rate: rate.map(|rate| rate.frames_per_second(size)),
        burst: 1,
        count,
        warm_up: Duration::ZERO,
        duration: common.duration.unwrap_or(FOREVER),
        yielding: true,
        interval: common.samples(),
    };
    run(Job::Ping(job), &common)
}

pub(crate) fn receive(arguments: ReceiveArguments) -> Result<(), Failure> {
    let check = if arguments.sampled { Check::Sampled } else { Check::Whole };
    let ports = match one_stream_or_ports(arguments.port)? {
        Err(ports) => ports,
        Ok(at) if arguments.latency => {
            return Err(usage!(
                "--port {at}: byte streams have no frames to time: leave out --latency"
            ));
        }
        Ok(at) if arguments.count.is_some() => {
            return Err(usage!("--port {at}: byte streams have no frames: leave out --count"));
        }
        Ok(at) => {
            let job = StreamReceiveJob { at, check, interval: arguments.common.samples() };
            return run(Job::StreamReceive(job), &arguments.common);
        }
    };
    for (index, port) in ports.iter().enumerate() {
        if let Some(both) = ports[..index].iter().find_map(|other| other.common_with(port)) {
            // Each would receive every frame.
            return Err(usage!("--port {port}: {both} is given twice"));
        }
    }
    let job = ReceiveJob {
        ports,
        announce: Vec::new(),
        stations: 0,
        check,
        tunnelled: false,
        timed: arguments.latency.then_some(Duration::ZERO),
        count: arguments.count,
        yielding: true,
        interval: arguments.common.samples(),
    };
    run(Job::Receive(job), &arguments.common)
}

pub(crate) fn forward(arguments: ForwardArguments) -> Result<(), Failure> {
    let ForwardArguments { from, to, both_ways, common } = arguments;
    if let Some(both) = from.common_with(&to) {
        return Err(usage!("--from {from} and --to {to} both use {both}: give two ports"));
    }
    run(
        Job::Forward(ForwardJob {
            ports: (from, to),
            both_ways,
            addresses: None,
            yielding: true,
            interval: common.samples(),
        }),
        &common,
    )
}

pub(crate) fn echo(arguments: EchoArguments) -> Result<(), Failure> {
    let interval = arguments.common.samples();
    let job = EchoJob { port: arguments.port, yielding: true, interval };
    run(Job::Echo(job), &arguments.common)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_suffixes() {
        assert_eq!(count("7"), Ok(7));
        assert_eq!(count("20k"), Ok(20_000));
        assert_eq!(count("1M"), Ok(1_000_000));
        for wrong in ["0", "", "k", "-1", "1.5k", "2000000000M", "18446744073709552k", "1G"] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn slow_rates_are_sent_evenly() {
        for (rate, burst) in [
            (None, 64),
            (Some(0.5), 1),
            (Some(1000.0), 1),
            (Some(20e3), 20),
            (Some(64e3), 64),
            (Some(1e9), 64),
        ] {
            assert_eq!(usual_burst(rate), burst, "{rate:?}");
        }
    }
}
