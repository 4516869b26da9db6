//! Jobs of roles, and their reports.

use std::time::Duration;

use dray_port::PortUri;
use dray_results::{Check, Way};
use dray_upf::UpfConfig;
use dray_wire::{Flow, MacAddr};
use serde::{Deserialize, Serialize};

use crate::stream::{StreamReceiveReport, StreamSendReport, StreamUri};
use crate::users::Users;
use crate::{Arrivals, Latency, Sample};

/// A role with all of its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// Send test frames.
    Send(SendJob),
    /// Receive and check test frames.
    Receive(ReceiveJob),
    /// Send and receive test frames through one port at the same time.
    Duplex(Box<DuplexJob>),
    /// Move frames from port to port.
    Forward(ForwardJob),
    /// Move users' packets between tunnels and a network.
    Upf(Box<UpfJob>),
    /// Send every frame back.
    Echo(EchoJob),
    /// Send frames to an echo and measure their round-trip times.
    Ping(PingJob),
    /// Send byte streams.
    StreamSend(StreamSendJob),
    /// Receive and check byte streams.
    StreamReceive(StreamReceiveJob),
    /// Pollute the shared caches.
    Neighbour(NeighbourJob),
}

/// One of a sender's ports, and the addresses of its frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Port to send through.
    pub port: PortUri,
    /// Addresses of the output's first flow.
    pub flow: Flow,
}

/// See [`sender`](crate::sender).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SendJob {
    /// Outputs that take bursts in turn. At least one.
    pub outputs: Vec<Output>,
    /// Flows per output, 1 or more; output `i` has the streams `i * flows .. (i + 1) * flows`.
    pub flows: u16,
    /// MAC address pairs to rotate through in each output, 1 or more. Above 1 there is one flow
    /// only.
    pub stations: u16,
    /// Frame size in bytes; with users, the size of the frames that leave their tunnels.
    pub size: usize,
    /// Users whose packets the frames carry, for a user plane function.
    pub users: Option<Users>,
    /// Frames per burst, 1 to [`BATCH_MAX`](dray_port::BATCH_MAX).
    pub burst: usize,
    /// Frames per second over all outputs; `None` sends as fast as possible.
    pub rate: Option<f64>,
    /// Frames to send, after which the run ends; `None`: as many as the duration allows.
    #[serde(default)]
    pub count: Option<u64>,
    /// Length of the run.
    pub duration: Duration,
    /// Number of frames after which the sender yields to another role on this CPU; it also yields
    /// while there is nothing to do.
    pub turn: Option<usize>,
    /// Initial time without measuring, if latency is measured. Then each frame has its own due
    /// time, and frames due at the same time go out in one burst. Otherwise a burst has one due
    /// time.
    #[serde(default)]
    pub timed: Option<Duration>,
    /// Time between samples.
    pub interval: Duration,
}

impl SendJob {
    /// Turn that suits any port: what is in between finds room in the receiver's queue, even if it
    /// was not quite empty.
    pub const TURN: usize = 256;
}

/// See [`receiver`](crate::receiver).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceiveJob {
    /// Ports to receive from. At least one.
    pub ports: Vec<PortUri>,
    /// Addresses of the first frame that each port sends, by port, so that a learning switch
    /// learns the first of its stations. Empty: none sends any.
    pub announce: Vec<Flow>,
    /// Number of stations that each port announces.
    pub stations: u16,
    /// How thoroughly to check received frames.
    pub check: Check,
    /// True if frames arrive through a GTP-U tunnel.
    pub tunnelled: bool,
    /// Initial time without measuring, if latency is measured, which requires a sender on this
    /// host.
    #[serde(default)]
    pub timed: Option<Duration>,
    /// Number of intact frames after which the receiver ends by itself.
    #[serde(default)]
    pub count: Option<u64>,
    /// True if another role shares this CPU: yield instead of spinning.
    pub yielding: bool,
    /// Time between samples.
    pub interval: Duration,
}

/// See [`duplex`](crate::duplex).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DuplexJob {
    /// Job of the sender, which has one port.
    pub send: SendJob,
    /// Job of the receiver, which has the same port.
    pub receive: ReceiveJob,
}

/// See [`neighbour`](crate::neighbour).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NeighbourJob {
    /// Size of the memory to which the neighbour writes.
    pub memory_bytes: usize,
    /// Time between samples.
    pub interval: Duration,
}

/// See [`forwarder`](crate::forwarder).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForwardJob {
    /// The two ports.
    pub ports: (PortUri, PortUri),
    /// True to forward from the second to the first port as well.
    pub both_ways: bool,
    /// Destination and source MAC address of frames that leave by the second port; `None` to leave
    /// frames unchanged.
    pub addresses: Option<[MacAddr; 2]>,
    /// True if another role shares this CPU: yield instead of spinning.
    pub yielding: bool,
    /// Time between samples.
    pub interval: Duration,
}

/// See [`upf`](crate::upf).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpfJob {
    /// Port to the gNB.
    pub n3: PortUri,
    /// Port to the data network.
    pub n6: PortUri,
    /// Addresses, neighbours and sessions.
    pub config: UpfConfig,
    /// Directions that run.
    pub way: Way,
    /// CPU of each direction that runs, in the order of [`Way::directions`].
    pub cpus: Vec<usize>,
    /// True if another role shares this CPU: yield instead of spinning.
    pub yielding: bool,
    /// True to sleep until the kernel has packets, instead of yielding and polling.
    pub sleeping: bool,
    /// Time between samples.
    pub interval: Duration,
}

/// See [`echo`](crate::echo).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EchoJob {
    /// The port.
    pub port: PortUri,
    /// True if another role shares this CPU: yield instead of spinning.
    pub yielding: bool,
    /// Time between samples.
    pub interval: Duration,
}

/// See [`ping`](crate::ping).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PingJob {
    /// Port to send and receive through, and the addresses.
    pub output: Output,
    /// Frame size in bytes.
    pub size: usize,
    /// Frames per second, independent of replies; `None` sends the next frame when the last reply
    /// arrives.
    pub rate: Option<f64>,
    /// Maximum number of frames per burst, if several are due. 1 to
    /// [`BATCH_MAX`](dray_port::BATCH_MAX).
    pub burst: usize,
    /// Frames to send, after which the run ends; `None`: as many as the duration allows.
    #[serde(default)]
    pub count: Option<u64>,
    /// Initial time in which nothing is measured.
    pub warm_up: Duration,
    /// Length of the run, including the warm-up.
    pub duration: Duration,
    /// True if another role shares this CPU: yield instead of spinning.
    pub yielding: bool,
    /// Time between samples.
    pub interval: Duration,
}

/// See [`stream::sender`](crate::stream::sender).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamSendJob {
    /// The receiver.
    pub to: StreamUri,
    /// Number of streams, 1 or more.
    pub streams: u16,
    /// Length of the run.
    pub duration: Duration,
    /// Time between samples.
    pub interval: Duration,
}

/// See [`stream::receiver`](crate::stream::receiver).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamReceiveJob {
    /// Address to listen on.
    pub at: StreamUri,
    /// How thoroughly to check received bytes.
    pub check: Check,
    /// Time between samples.
    pub interval: Duration,
}

/// Report of a role, from its start to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// Report of a sender.
    Send(SendReport),
    /// Report of a receiver.
    Receive(ReceiveReport),
    /// Report of a forwarder, an echo or a user plane function.
    Forward(ForwardReport),
    /// Report of a ping.
    Ping(PingReport),
    /// Report of a sender of streams.
    StreamSend(StreamSendReport),
    /// Report of a receiver of streams.
    StreamReceive(StreamReceiveReport),
    /// Reports of two directions that one role serves.
    Both(Box<[Report; 2]>),
    /// Report of a neighbour.
    Neighbour(NeighbourReport),
}

impl Report {
    /// Returns the role's samples; of two directions, those of the first.
    pub fn samples(&self) -> &[Sample] {
        match self {
            Self::Send(report) => &report.samples,
            Self::Receive(report) => &report.samples,
            Self::Forward(report) => &report.samples,
            Self::Ping(report) => &report.receive.samples,
            Self::StreamSend(report) => &report.samples,
            Self::StreamReceive(report) => &report.samples,
            Self::Both(reports) => reports[0].samples(),
            Self::Neighbour(report) => &report.samples,
        }
    }
}

/// Report of a sender.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SendReport {
    /// Frames to send at the given rate, if there was one.
    pub offered: Option<u64>,
    /// Frames that the ports accepted.
    pub sent: u64,
    /// Bytes of the frames sent.
    pub bytes: u64,
    /// Number of times that a full port refused a frame, which was then offered again.
    pub refused: u64,
    /// Frames sent in each stream.
    pub streams: Vec<u64>,
    /// Time from start to end, in nanoseconds.
    pub elapsed_ns: u64,
    /// Delay between a frame's due time and its hand-over to the port, if latency is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<Latency>,
    /// Counts of frames sent.
    pub samples: Vec<Sample>,
}

impl SendReport {
    /// Returns true if the sender fell short of the requested rate by more than 1 %.
    pub fn sent_less_than_offered(&self) -> bool {
        self.offered.is_some_and(|offered| (self.sent as f64) < offered as f64 * 0.99)
    }
}

/// Report of a receiver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReceiveReport {
    /// Intact frames, each counted once.
    pub received: u64,
    /// Bytes of the frames received.
    pub bytes: u64,
    /// Frames missing below the highest sequence number of their stream.
    pub lost: u64,
    /// Frames that arrived more than once, or too late to be told from a duplicate.
    pub duplicated: u64,
    /// Frames that arrived after a later one.
    pub reordered: u64,
    /// Damaged test frames; they count as missing in their streams.
    pub corrupt: u64,
    /// Frames that are not test frames.
    pub foreign: u64,
    /// Intact frames of an earlier sender, which were held up on the way.
    #[serde(default)]
    pub earlier: u64,
    /// Frames that the ports dropped because they were not received in time.
    pub dropped: u64,
    /// Rate of the intact frames.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// Counters of each stream that was seen; empty without checks.
    pub streams: Vec<StreamReport>,
    /// Latency from due time to reception, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Counts of intact frames received.
    pub samples: Vec<Sample>,
}

/// Report on one stream; the fields are explained at [`ReceiveReport`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the words are explained at ReceiveReport")]
pub struct StreamReport {
    pub stream: u16,
    pub received: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub reordered: u64,
    /// Damaged frames whose header still identified the stream.
    pub corrupt: u64,
    /// Highest sequence number seen, plus one.
    pub next: u64,
}

/// Report of a neighbour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NeighbourReport {
    /// Bytes of the cache lines written.
    pub written_bytes: u64,
    /// Time from start to end, in nanoseconds.
    pub elapsed_ns: u64,
    /// Samples that count lines.
    pub samples: Vec<Sample>,
}

/// Report of a forwarder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ForwardReport {
    /// Frames received.
    pub received: u64,
    /// Frames transmitted.
    pub transmitted: u64,
    /// Bytes of the frames received.
    pub bytes: u64,
    /// Frames received but not transmitted: the outgoing port was full, or the frame too long for
    /// it.
    pub refused: u64,
    /// Frames that the ports dropped because they were not received in time.
    pub dropped: u64,
    /// Rate of the frames received.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// Counts of frames received.
    pub samples: Vec<Sample>,
}

/// Report of a ping.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PingReport {
    /// Report on the frames sent.
    pub send: SendReport,
    /// Report on the frames that came back. Both reports have the same samples, which count these
    /// frames.
    pub receive: ReceiveReport,
    /// Round-trip times, from when a frame was due.
    pub latency: Latency,
}
