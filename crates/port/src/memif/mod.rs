//! `memif:PATH`: the client's end of memif, the shared memory packet interface of FD.io's VPP, which
//! DPDK speaks too. The port shares memory of its own with the server (called master in older
//! versions) over the Unix socket at `PATH`. It needs neither privileges nor hugepages.
//!
//! * `memory`: where rings and buffers lie in the shared memory.
//! * `message`: the messages of the control socket.
//! * `control`: the conversation with the server.
//! * `queue`: one ring and its buffers, and moving frames through it.

mod control;
mod memory;
mod message;
mod queue;
mod receive;
#[cfg(test)]
mod tests;
mod transmit;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use dray_ring::QueueSize;

use crate::connection::Connection;
use crate::event::{Event, Wakes};
use crate::link::{Link, LinkState, LinkStatus};
use crate::query::{Query, UriError, write_query};
use crate::slot::Slot;
use crate::unix::{parse_path, parse_queues, parse_wait, wait_pairs};
use crate::{OpenError, Port, Wait};

use memory::SharedMemory;
use message::SECRET_MAX;
use queue::{ReceiveQueue, TransmitQueue};
use receive::MemifReceive;
use transmit::MemifTransmit;

/// A memif port's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemifUri {
    /// The Unix socket.
    pub path: PathBuf,
    /// Which of the server's interfaces at that socket.
    pub id: u32,
    /// What that interface wants to hear, up to 24 bytes.
    pub secret: String,
    /// Pairs of rings, 1 to 16.
    pub queues: u16,
    /// Entries of each ring.
    pub size: QueueSize,
    /// How to wait for frames.
    pub wait: Wait,
}

/// As for virtio ports.
const SIZE_DEFAULT: u32 = 512;
/// What VPP and DPDK have at most.
const SIZE_MAX: u16 = 1 << 14;

impl MemifUri {
    pub(crate) fn parse(body: &str, query: &mut Query<'_>) -> Result<Self, UriError> {
        let id = query.take("id", "0 to 4294967295", |text| text.parse().ok())?;
        let secret = query.take("secret", "1 to 24 letters, digits, - and _", |text| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
            let fits = (1..=SECRET_MAX).contains(&text.len()) && text.chars().all(is_plain);
            fits.then(|| text.to_owned())
        })?;
        let size = query.take("size", "a power of two from 2 to 16384", |text| {
            QueueSize::new(text.parse().ok()?).ok().filter(|size| size.get() <= SIZE_MAX)
        })?;
        Ok(Self {
            path: parse_path("memif", body, query)?,
            id: id.unwrap_or(0),
            secret: secret.unwrap_or_default(),
            queues: parse_queues(query)?,
            size: size.unwrap_or(QueueSize::new(SIZE_DEFAULT).expect("a power of two")),
            wait: parse_wait(query)?,
        })
    }

    /// Makes the memory and begins to connect; the server may come at any time, and come back.
    pub fn open(&self) -> Result<Port, OpenError> {
        self.try_open().map_err(|(what, error)| OpenError::new(self, what, error))
    }

    fn try_open(&self) -> Result<Port, (&'static str, io::Error)> {
        let attention = Arc::new(Event::new().map_err(|error| ("eventfd", error))?);
        let memory =
            SharedMemory::new(self.size, self.queues).map_err(|error| ("shared memory", error))?;
        let pair = |_| -> io::Result<Pair> {
            Ok(Pair {
                receive: Slot::new(attention.clone()),
                transmit: Slot::new(attention.clone()),
                wakes: Wakes::new()?,
            })
        };
        let pairs: io::Result<Vec<Pair>> = (0..self.queues).map(pair).collect();
        let device = Arc::new(Device { pairs: pairs.map_err(|error| ("eventfd", error))?, memory });
        let converse = {
            let (device, uri) = (device.clone(), self.clone());
            move |socket, control: &_| control::converse(&device, &uri, &socket, control)
        };
        let connection = Connection::by_packets(&self.path, attention, converse)?;
        let shared = Arc::new(Shared { connection, device });
        let queues = 0..usize::from(self.queues);
        Ok(Port {
            rx: queues
                .clone()
                .map(|q| Box::new(MemifReceive::new(shared.clone(), q, self.wait)) as _)
                .collect(),
            tx: queues.map(|q| Box::new(MemifTransmit::new(shared.clone(), q)) as _).collect(),
            link: Some(shared),
        })
    }
}

/// What the data threads and the control thread of a memif port share.
struct Device {
    pairs: Vec<Pair>,
    /// Outlives every queue in it.
    memory: SharedMemory,
}

/// A ring in each direction.
struct Pair {
    receive: Slot<ReceiveQueue>,
    transmit: Slot<TransmitQueue>,
    /// What wakes who sleeps until a frame arrives.
    wakes: Wakes,
}

/// What the halves of an open port share: the last one to go closes it.
struct Shared {
    // First, so that its thread has ended before the memory goes.
    connection: Connection,
    device: Arc<Device>,
}

impl Link for Shared {
    fn status(&self) -> LinkStatus {
        let mut status = self.connection.status();
        // These come last.
        if self.device.pairs.iter().all(|pair| pair.transmit.is_running()) {
            status.state = LinkState::Running;
        }
        status
    }
}

impl fmt::Display for MemifUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memif:{}", self.path.display())?;
        let mut pairs = Vec::new();
        if self.id != 0 {
            pairs.push(("id", self.id.to_string()));
        }
        if !self.secret.is_empty() {
            pairs.push(("secret", self.secret.clone()));
        }
        if self.queues != 1 {
            pairs.push(("queues", self.queues.to_string()));
        }
        if u32::from(self.size.get()) != SIZE_DEFAULT {
            pairs.push(("size", self.size.get().to_string()));
        }
        pairs.extend(wait_pairs(self.wait));
        write_query(f, pairs)
    }
}
