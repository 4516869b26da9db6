//! Code shared by UDP and packet sockets: options, and receiving and transmitting one by one
//! (`recv`, `send`), in batches
//! (`recvmmsg`, `sendmmsg`), by packet rings, or without the kernel's copy.

mod calls;
mod cutter;
mod receive;
mod ring;
mod slots;
mod transmit;
mod zerocopy;

use crate::uri::query::{Query, UriError};
use crate::{BATCH_MAX, Wait};

pub(crate) use calls::{
    dropped, enlarge_buffers, get_option, is_of_frame, is_transient, set_option, vectors,
};
pub(crate) use receive::{Restore, SocketReceive};
pub(crate) use ring::open as open_ring;
pub(crate) use slots::SLOT_LEN;
pub(crate) use transmit::SocketTransmit;
pub(crate) use zerocopy::Unfinished;

/// Options common to `udp:` and `raw:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// Number of frames per system call; 1 means `send` and `recv`, more `sendmmsg` and `recvmmsg`.
    pub batch: usize,
    /// How to wait for frames.
    pub wait: Wait,
}

impl SocketOptions {
    pub(crate) fn parse(query: &mut Query<'_>) -> Result<Self, UriError> {
        let number = |text: &str, max: u32| text.parse().ok().filter(|n| *n <= max);
        let batch = query.take("batch", "a number from 1 to 256", |text| {
            number(text, BATCH_MAX as u32).filter(|n| *n >= 1)
        })?;
        let wait = Wait::parse(query)?;
        let pause_us = query.take("pause", "0 to 1000 microseconds, with wait=poll", |text| {
            number(text, 1000).filter(|_| wait != Wait::Block)
        })?;
        let wait = match wait {
            Wait::Block => Wait::Block,
            Wait::Poll { .. } => Wait::Poll { pause_us: pause_us.unwrap_or(Wait::PAUSE_US) },
        };
        Ok(Self { batch: batch.map_or(1, |n| n as usize), wait })
    }

    /// Returns the options that differ from the defaults, as written in a URI.
    pub(crate) fn pairs(self) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        if self.batch != 1 {
            pairs.push(("batch", self.batch.to_string()));
        }
        pairs.extend(self.wait.pair());
        if let Wait::Poll { pause_us } = self.wait
            && pause_us != Wait::PAUSE_US
        {
            pairs.push(("pause", pause_us.to_string()));
        }
        pairs
    }
}
