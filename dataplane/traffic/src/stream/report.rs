//! Reports of the roles of streams.

use serde::{Deserialize, Serialize};

use crate::{Arrivals, Sample};

/// Report of a sender of streams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamSendReport {
    /// Bytes that the kernel accepted.
    pub bytes: u64,
    /// Bytes by stream.
    pub streams: Vec<u64>,
    /// Time from start to end, in nanoseconds, without the wait for the receiver to finish.
    pub elapsed_ns: u64,
    /// Retransmitted segments.
    pub retransmits: u64,
    /// Negotiated maximum segment size in bytes; 0 if the kernel does not report it.
    pub segment_max: u32,
    /// Congestion control; empty for a transport without it.
    pub congestion: String,
    /// Counts of calls with `MSG_ZEROCOPY`, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zerocopy: Option<ZeroCopy>,
    /// Samples that count bytes accepted; they have no frames.
    pub samples: Vec<Sample>,
}

/// Calls with `MSG_ZEROCOPY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZeroCopy {
    /// Calls that the kernel has completed.
    pub completed: u64,
    /// Completed calls whose bytes the kernel copied after all, as it does if they stay on this
    /// host.
    pub copied: u64,
}

/// Report of a receiver of streams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamReceiveReport {
    /// Bytes received, intact as far as they were checked.
    pub bytes: u64,
    /// Reads with wrong bytes; their bytes are not counted.
    pub corrupt: u64,
    /// Connections that were not test streams.
    pub foreign: u64,
    /// Bytes that TCP itself carried, by the kernel's count. Far below the bytes received if
    /// something bypasses TCP.
    pub by_tcp: u64,
    /// Streams, in the order of their numbers.
    pub streams: Vec<StreamBytes>,
    /// Rate of the bytes received.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// Samples that count bytes received; they have no frames.
    pub samples: Vec<Sample>,
}

/// Report on one received stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamBytes {
    /// Number of the stream.
    pub stream: u16,
    /// Bytes received.
    pub bytes: u64,
    /// True if the stream's end was received too.
    pub ended: bool,
}
