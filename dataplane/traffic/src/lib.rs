//! Roles of the programs in containers: [`sender`], [`receiver`], [`duplex`],
//! [`forwarder`], [`echo`], [`ping`], [`upf`], [`neighbour`], and for byte streams
//! [`stream::sender`] and [`stream::receiver`].
//!
//! A role is described by a [`Job`], runs on the calling thread until its [`Signal`] ends it, and
//! returns a [`Report`]. `dray send` and its siblings run one role on the terminal; an [`agent`]
//! runs roles inside a container for `dray bench`. [`limit`], [`mod@line`] and [`prefetch`] measure
//! the machine, without ports.

pub mod agent;
mod counts;
mod cpu_time;
pub mod duplex;
pub mod echo;
pub mod forwarder;
mod job;
pub mod latency;
pub mod limit;
pub mod line;
mod links;
mod memory_lock;
pub mod neighbour;
pub mod pacer;
pub mod ping;
pub mod prefetch;
mod receive_queues;
pub mod receiver;
pub mod sample;
pub mod sender;
pub mod sequence;
mod signal;
pub mod stream;
pub mod upf;
mod users;

pub use dray_datapath::Arrivals;
pub use dray_results::{Agreement, Check, Percentiles};
pub use job::{
    DuplexJob, EchoJob, ForwardJob, ForwardReport, Job, NeighbourJob, NeighbourReport, Output,
    PingJob, PingReport, ReceiveJob, ReceiveReport, Report, SendJob, SendReport, StreamReceiveJob,
    StreamReport, StreamSendJob, UpfJob,
};
pub use latency::Latency;
pub use links::{OpenPort, Watch};
pub use sample::{OnSample, Sample};
pub use signal::{Phase, Signal};
pub use stream::{StreamReceiveReport, StreamSendReport, StreamUri};
pub use users::{TUNNEL_LEN, Users};

use dray_port::{PortUri, Transmit};

/// Why a role could not start or continue.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// A port could not be opened.
    #[error(transparent)]
    Open(#[from] dray_port::OpenError),
    /// A user plane function was given an invalid configuration.
    #[error("user plane function: {0}")]
    Upf(#[from] dray_upf::ConfigError),
    /// A frame of the given size does not fit through a port.
    #[error("frame size {size}: {port} transmits at most {max} bytes (its MTU and 14)")]
    FrameTooLong {
        /// Requested size, in bytes.
        size: usize,
        /// The longest frame that the port transmits, in bytes.
        max: usize,
        /// The port.
        port: String,
    },
    /// A port that only receives was asked to transmit.
    #[error("port {port} only receives: give udp: LOCAL-REMOTE, or unix: the key peer")]
    OnlyReceives {
        /// The port.
        port: String,
    },
    /// Several flows were requested of a port whose frames are all one flow.
    #[error("port {port} sends only its socket's flow, not {flows} flows: use raw: for several")]
    OneFlow {
        /// The port.
        port: String,
        /// Requested number of flows.
        flows: u16,
    },
    /// A neighbour was given no memory, or more than is available.
    #[error("neighbour memory of {bytes} bytes: allowed is 64 bytes to the available memory")]
    Memory {
        /// Requested size.
        bytes: usize,
    },
    /// No peer came.
    #[error("port {port}: no peer within {seconds} s: {why}")]
    NoPeer {
        /// The port.
        port: String,
        /// Time that the port waited.
        seconds: u64,
        /// Why frames cannot pass.
        why: String,
    },
    /// A stream could not be opened, or broke.
    #[error("{stream}: {error}")]
    Stream {
        /// The stream's receiver.
        stream: String,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// A port failed while it was in use.
    #[error("{port}: {error}")]
    Port {
        /// The port.
        port: String,
        /// Error of the operating system.
        error: std::io::Error,
    },
}

impl RoleError {
    /// Returns true if a privilege was missing.
    pub fn is_permission_denied(&self) -> bool {
        match self {
            Self::Open(error) => error.is_permission_denied(),
            Self::Upf(_)
            | Self::FrameTooLong { .. }
            | Self::OnlyReceives { .. }
            | Self::OneFlow { .. }
            | Self::Memory { .. }
            | Self::NoPeer { .. } => false,
            Self::Port { error, .. } | Self::Stream { error, .. } => {
                error.kind() == std::io::ErrorKind::PermissionDenied
            }
        }
    }

    /// Returns true if the request is invalid on any machine.
    pub fn is_wrong_usage(&self) -> bool {
        matches!(self, Self::FrameTooLong { .. } | Self::OnlyReceives { .. } | Self::OneFlow { .. })
    }

    fn check_fits(size: usize, tx: &dyn Transmit, port: &PortUri) -> Result<(), Self> {
        match tx.frame_max() {
            max if size > max => Err(Self::FrameTooLong { size, max, port: port.to_string() }),
            _ => Ok(()),
        }
    }

    fn check_transmits(port: &PortUri) -> Result<(), Self> {
        if port.only_receives() {
            Err(Self::OnlyReceives { port: port.to_string() })
        } else {
            Ok(())
        }
    }

    fn stream(stream: &StreamUri) -> impl Fn(std::io::Error) -> Self + '_ {
        |error| Self::Stream { stream: stream.to_string(), error }
    }

    fn port(port: &PortUri) -> impl Fn(std::io::Error) -> Self + '_ {
        |error| Self::Port { port: port.to_string(), error }
    }
}
