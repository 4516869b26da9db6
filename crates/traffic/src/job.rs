//! What a role is asked to do, and what it says when it is done.

use std::time::Duration;

use dray_port::PortUri;
use dray_upf::UpfConfig;
use dray_wire::Flow;
use serde::{Deserialize, Serialize};

use crate::stream::{StreamReceiveReport, StreamSendReport, StreamUri};
use crate::users::{UserWay, Users};
use crate::{Latency, Sample};

/// A role with all it needs to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// Send test frames.
    Send(SendJob),
    /// Receive and judge test frames.
    Receive(ReceiveJob),
    /// Move frames from port to port.
    Forward(ForwardJob),
    /// Move users' packets between tunnels and a network.
    Upf(Box<UpfJob>),
    /// Send every frame back.
    Echo(EchoJob),
    /// Send frames to an echo and time their way there and back.
    Ping(PingJob),
    /// Send byte streams.
    StreamSend(StreamSendJob),
    /// Receive and check byte streams.
    StreamReceive(StreamReceiveJob),
    /// Use up caches.
    Neighbour(NeighbourJob),
}

/// One of a sender's ports and the addresses of what goes out there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lane {
    /// Where to send.
    pub port: PortUri,
    /// The addresses of the lane's first flow.
    pub flow: Flow,
}

/// See [`sender`](crate::sender).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SendJob {
    /// Bursts go to these in turn. At least one.
    pub lanes: Vec<Lane>,
    /// Flows per lane, 1 or more; lane `i` has the streams `i * flows .. (i + 1) * flows`.
    pub flows: u16,
    /// Pairs of machines, told apart by their MAC addresses, that the frames of a lane are between in
    /// turn, 1 or more. Where it is above 1 there is one flow.
    pub stations: u16,
    /// Frame size in bytes; where there are users, of the frames that leave their tunnels.
    pub size: usize,
    /// Whose packets the frames carry, where a user plane function is to take them.
    pub users: Option<Users>,
    /// Frames per burst, 1 to [`BATCH_MAX`](dray_port::BATCH_MAX).
    pub burst: usize,
    /// Frames per second over all lanes; `None` for as many as possible.
    pub rate: Option<f64>,
    /// For how long.
    pub duration: Duration,
    /// Where another role shares this CPU: frames after which it is left to that one, as it is while
    /// there is nothing to do.
    pub turn: Option<usize>,
    /// Where it is measured how long frames take, so long at first they are not timed: then each frame
    /// is due by itself, and those that are due together go out in one burst. Otherwise a burst is
    /// due together.
    #[serde(default)]
    pub timed: Option<Duration>,
    /// Time between samples.
    pub interval: Duration,
}

impl SendJob {
    /// A turn that is half of what the queues of a receiver hold: a switch that drops what finds no
    /// room finds room, also where a queue was not quite empty.
    pub const TURN: usize = 256;
    /// A turn where whoever is between holds senders back: the longer it is, the less often programs
    /// change.
    pub const LONG_TURN: usize = 384;
}

/// How closely a receiver looks at a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// At every byte.
    #[default]
    Whole,
    /// At headers and test header of every frame, and at every byte of one in
    /// [`SAMPLE`](Self::SAMPLE): a program that is busy with headers. Fetching all of a long frame
    /// from another CPU's cache takes longer than everything else.
    Sampled,
    /// At none, but the first bytes of every frame are fetched, as by any program that uses what it
    /// receives: what the look itself costs is known by this.
    Fetched,
    /// Not at all: frames are counted, whatever they are, and where memory is shared they stay in the
    /// cache of whoever wrote them.
    None,
}

impl Check {
    /// Of so many frames one is looked at whole.
    pub const SAMPLE: u32 = 64;
}

/// See [`receiver`](crate::receiver).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceiveJob {
    /// Where to receive. At least one.
    pub ports: Vec<PortUri>,
    /// The addresses of frames that go out of every port first, so that a switch that learns knows
    /// who is there.
    pub announce: Vec<Flow>,
    /// How closely to look at what arrives.
    pub check: Check,
    /// What arrives comes through a GTP-U tunnel.
    pub tunnelled: bool,
    /// Where it is measured how long frames take, on a host that they were sent on: so long at first
    /// they are not timed.
    #[serde(default)]
    pub timed: Option<Duration>,
    /// Another role shares this CPU: do not spin while there is nothing to do.
    pub yielding: bool,
    /// Time between samples.
    pub interval: Duration,
}

/// See [`neighbour`](crate::neighbour).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NeighbourJob {
    /// The memory that it writes to.
    pub memory_bytes: usize,
    /// Time between samples.
    pub interval: Duration,
}

/// See [`forwarder`](crate::forwarder).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForwardJob {
    /// The two ports.
    pub ports: (PortUri, PortUri),
    /// From the second to the first port as well.
    pub both_ways: bool,
    /// Another role shares this CPU: do not spin while there is nothing to do.
    pub yielding: bool,
    /// Time between samples.
    pub interval: Duration,
}

/// See [`upf`](crate::upf).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpfJob {
    /// The port to the gNB.
    pub n3: PortUri,
    /// The port to the data network.
    pub n6: PortUri,
    /// Addresses, neighbours and sessions.
    pub config: UpfConfig,
    /// Which direction runs.
    pub way: UserWay,
    /// Another role shares this CPU: do not spin while there is nothing to do.
    pub yielding: bool,
    /// Nor ask again, but sleep until the kernel has something.
    pub sleeping: bool,
    /// Time between samples.
    pub interval: Duration,
}

/// See [`echo`](crate::echo).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EchoJob {
    /// The port.
    pub port: PortUri,
    /// Another role shares this CPU: do not spin while there is nothing to do.
    pub yielding: bool,
    /// Time between samples.
    pub interval: Duration,
}

/// See [`ping`](crate::ping).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PingJob {
    /// Where to send and receive.
    pub lane: Lane,
    /// Frame size in bytes.
    pub size: usize,
    /// Frames per second, whatever has come back; `None`: the next one as soon as the last one is back.
    pub rate: Option<f64>,
    /// Frames per burst at most, where several are due. 1 to [`BATCH_MAX`](dray_port::BATCH_MAX).
    pub burst: usize,
    /// So long at first nothing is timed.
    pub warm_up: Duration,
    /// For how long, the above among it.
    pub duration: Duration,
    /// Another role shares this CPU: do not spin while there is nothing to do.
    pub yielding: bool,
    /// Time between samples.
    pub interval: Duration,
}

/// See [`stream::sender`](crate::stream::sender).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamSendJob {
    /// The receiver.
    pub to: StreamUri,
    /// How many streams, 1 or more.
    pub streams: u16,
    /// For how long.
    pub duration: Duration,
    /// Time between samples.
    pub interval: Duration,
}

/// See [`stream::receiver`](crate::stream::receiver).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamReceiveJob {
    /// Where to listen.
    pub at: StreamUri,
    /// How closely to look at what arrives.
    pub check: Check,
    /// Time between samples.
    pub interval: Duration,
}

/// What a role did, from its start to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// Of a sender.
    Send(SendReport),
    /// Of a receiver.
    Receive(ReceiveReport),
    /// Of a forwarder, an echo or a user plane function.
    Forward(ForwardReport),
    /// Of a ping.
    Ping(PingReport),
    /// Of a sender of streams.
    StreamSend(StreamSendReport),
    /// Of a receiver of streams.
    StreamReceive(StreamReceiveReport),
    /// Of a neighbour.
    Neighbour(NeighbourReport),
}

impl Report {
    /// The role's samples.
    pub fn samples(&self) -> &[Sample] {
        match self {
            Self::Send(report) => &report.samples,
            Self::Receive(report) => &report.samples,
            Self::Forward(report) => &report.samples,
            Self::Ping(report) => &report.receive.samples,
            Self::StreamSend(report) => &report.samples,
            Self::StreamReceive(report) => &report.samples,
            Self::Neighbour(report) => &report.samples,
        }
    }
}

/// What a sender did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SendReport {
    /// Frames that the rate asked for, where there was one.
    pub offered: Option<u64>,
    /// Frames that the ports took.
    pub sent: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How often a port was full and a frame had to be offered again.
    pub refused: u64,
    /// Frames taken in each stream.
    pub streams: Vec<u64>,
    /// From start to end, in nanoseconds.
    pub elapsed_ns: u64,
    /// How long after they were due frames were handed to the port, where frames are timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<Latency>,
    /// Counts of frames sent.
    pub samples: Vec<Sample>,
}

impl SendReport {
    /// Whether the sender fell short of the rate that was asked for by more than 1 %.
    pub fn sent_less_than_offered(&self) -> bool {
        self.offered.is_some_and(|offered| (self.sent as f64) < offered as f64 * 0.99)
    }
}

/// What a receiver saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReceiveReport {
    /// Intact frames, each counted once.
    pub received: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames missing below the highest sequence number of their stream.
    pub lost: u64,
    /// Frames that arrived again, or too late to be told from one that did.
    pub duplicated: u64,
    /// Frames that arrived behind a later one.
    pub reordered: u64,
    /// Test frames that were damaged; they count as missing in their streams.
    pub corrupt: u64,
    /// Frames that are not test frames.
    pub foreign: u64,
    /// Frames that the ports dropped because they were not received in time.
    pub dropped: u64,
    /// The same by stream, for streams that were seen; none where nobody looked.
    pub streams: Vec<StreamReport>,
    /// How long frames took from when they were due until they were received, where they were timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Counts of intact frames received.
    pub samples: Vec<Sample>,
}

/// What a receiver saw of one stream; words as in [`ReceiveReport`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the words are explained at ReceiveReport")]
pub struct StreamReport {
    pub stream: u16,
    pub received: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub reordered: u64,
    /// Damaged frames whose header still told the stream.
    pub corrupt: u64,
    /// One above the highest sequence number seen.
    pub next: u64,
}

/// What a neighbour did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NeighbourReport {
    /// Bytes of the cache lines that it wrote to.
    pub written_bytes: u64,
    /// From start to end, in nanoseconds.
    pub elapsed_ns: u64,
    /// Counts of lines.
    pub samples: Vec<Sample>,
}

/// What a forwarder did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ForwardReport {
    /// Frames received.
    pub received: u64,
    /// Frames transmitted.
    pub transmitted: u64,
    /// Bytes of the frames received.
    pub bytes: u64,
    /// Frames received but not transmitted: the port out was full, or the frame too long for it.
    pub refused: u64,
    /// Frames that the ports dropped because they were not received in time.
    pub dropped: u64,
    /// Counts of frames received.
    pub samples: Vec<Sample>,
}

/// What a ping saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PingReport {
    /// What it sent.
    pub send: SendReport,
    /// What came back; both have the same samples, counts of frames that came back.
    pub receive: ReceiveReport,
    /// How long each took, there and back: from when it was due.
    pub latency: Latency,
}
