//! What UDP and packet sockets share: options, and receiving and transmitting one by one
//! (`recv`, `send`) or in batches (`recvmmsg`, `sendmmsg`).

mod calls;
mod receive;
mod transmit;

use std::time::Duration;

use crate::BATCH_MAX;
use crate::query::{Query, UriError};

pub(crate) use calls::{enlarge_buffers, get_option, set_option, vectors};
pub(crate) use receive::{SLOT_LEN, SocketReceive};
pub(crate) use transmit::SocketTransmit;

/// How long a waiting call sleeps before it looks whether it should stop.
pub const PATIENCE: Duration = Duration::from_millis(10);

/// How [`Receive::receive`](crate::Receive::receive) waits for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Sleep in the kernel until a frame arrives.
    Block,
    /// Return at once; after a call that found the queue nearly empty, make no system call for
    /// this long. Each look at an empty queue takes the socket's cache lines from the CPU that is
    /// about to fill it, which slows the sender: on the reference machine by 20 %.
    Poll {
        /// The pause, in microseconds.
        pause_us: u32,
    },
}

impl Wait {
    const DEFAULT_PAUSE_US: u32 = 20;
    /// Polling with the default pause.
    pub const POLL: Self = Self::Poll { pause_us: Self::DEFAULT_PAUSE_US };
}

/// Options that `udp:` and `raw:` have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// Frames per system call; 1 means `send` and `recv`, more `sendmmsg` and `recvmmsg`.
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
        let poll = query.take("wait", "block or poll", |text| match text {
            "block" => Some(false),
            "poll" => Some(true),
            _ => None,
        })?;
        let pause_us = query
            .take("pause", "0 to 1000 microseconds, with wait=poll", |text| {
                number(text, 1000).filter(|_| poll == Some(true))
            })?
            .unwrap_or(Wait::DEFAULT_PAUSE_US);
        Ok(Self {
            batch: batch.map_or(1, |n| n as usize),
            wait: if poll == Some(true) { Wait::Poll { pause_us } } else { Wait::Block },
        })
    }

    /// The options that differ from the defaults, as they stand in a URI.
    pub(crate) fn pairs(self) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        if self.batch != 1 {
            pairs.push(("batch", self.batch.to_string()));
        }
        if let Wait::Poll { pause_us } = self.wait {
            pairs.push(("wait", "poll".to_owned()));
            if pause_us != Wait::DEFAULT_PAUSE_US {
                pairs.push(("pause", pause_us.to_string()));
            }
        }
        pairs
    }
}
