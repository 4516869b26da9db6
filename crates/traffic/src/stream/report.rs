//! What the roles of streams say when they are done.

use serde::{Deserialize, Serialize};

use crate::Sample;

/// What a sender of streams did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamSendReport {
    /// Bytes that the kernel took.
    pub bytes: u64,
    /// The same by stream.
    pub streams: Vec<u64>,
    /// From start to end, in nanoseconds, without the wait for the receiver to have it all.
    pub elapsed_ns: u64,
    /// Segments that were sent again.
    pub retransmits: u64,
    /// Bytes of a segment at most, as both sides agreed; 0 where the kernel does not say.
    pub segment_max: u32,
    /// The congestion control; empty where there is none.
    pub congestion: String,
    /// What became of calls with `MSG_ZEROCOPY`, where there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zerocopy: Option<ZeroCopy>,
    /// Counts of bytes taken; they have no frames.
    pub samples: Vec<Sample>,
}

/// Calls with `MSG_ZEROCOPY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZeroCopy {
    /// Calls that the kernel has said to be done with.
    pub completed: u64,
    /// Those of them whose bytes it copied after all, as it does where they stay on this host.
    pub copied: u64,
}

/// What a receiver of streams saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamReceiveReport {
    /// Bytes received, intact as far as was looked.
    pub bytes: u64,
    /// Reads in which bytes were not those that had been sent; theirs are not counted.
    pub corrupt: u64,
    /// Connections that were no stream of ours.
    pub foreign: u64,
    /// Bytes that TCP itself carried, by the kernel's count. Where something short-cuts it, far fewer
    /// than were received.
    pub by_tcp: u64,
    /// The streams, in the order of their numbers.
    pub streams: Vec<StreamBytes>,
    /// Counts of bytes received; they have no frames.
    pub samples: Vec<Sample>,
}

/// What a receiver saw of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamBytes {
    /// Its number.
    pub stream: u16,
    /// Bytes received.
    pub bytes: u64,
    /// Whether its end was received too.
    pub ended: bool,
}
