//! `virtio:PATH`: the driver's end of vhost-user, known as virtio-user. The port shares memory of
//! its own with the back end (a switch, another container's [`vhost`](crate::vhost) port, DPDK) over
//! the Unix socket at `PATH`. It needs neither privileges nor hugepages.
//!
//! * `memory`: where rings and buffers lie in the shared memory.
//! * `queue`: one virtqueue and its buffers, and moving frames through it.
//! * `control`: the conversation with the back end.

mod control;
mod memory;
mod queue;
mod receive;
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
use queue::{ReceiveQueue, TransmitQueue};
use receive::VirtioReceive;
use transmit::VirtioTransmit;

/// A virtio port's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtioUri {
    /// The Unix socket.
    pub path: PathBuf,
    /// Pairs of virtqueues, 1 to 16.
    pub queues: u16,
    /// Entries of each ring.
    pub size: QueueSize,
    /// Packed rings instead of split ones.
    pub packed: bool,
    /// Listen for the back end instead of connecting to it.
    pub server: bool,
    /// Whether to take huge pages for the shared memory where there are some.
    pub hugepages: bool,
    /// How to wait for frames.
    pub wait: Wait,
}

/// Entries of a ring, where nothing else is said: enough that those who share a CPU seldom take turns,
/// and few enough that frames of 1500 bytes in two rings fit into a second-level cache.
const SIZE_DEFAULT: u32 = 512;

impl VirtioUri {
    pub(crate) fn parse(body: &str, query: &mut Query<'_>) -> Result<Self, UriError> {
        let size = query.take("size", "a power of two from 2 to 32768", |text| {
            QueueSize::new(text.parse().ok()?).ok()
        })?;
        let hugepages = query.take("hugepages", "0 or 1", |text| match text {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        })?;
        Ok(Self {
            path: parse_path("virtio", body, query)?,
            queues: parse_queues(query)?,
            size: size.unwrap_or(QueueSize::new(SIZE_DEFAULT).expect("a power of two")),
            packed: query.flag("packed")?,
            server: query.flag("server")?,
            hugepages: hugepages.unwrap_or(true),
            wait: parse_wait(query)?,
        })
    }

    /// Makes the memory and begins to connect, or listens; the back end may come at any time, and
    /// come back.
    pub fn open(&self) -> Result<Port, OpenError> {
        self.try_open().map_err(|(what, error)| OpenError::new(self, what, error))
    }

    fn try_open(&self) -> Result<Port, (&'static str, io::Error)> {
        let attention = Event::new().map_err(|error| ("eventfd", error))?;
        let attention = Arc::new(attention);
        let memory = SharedMemory::new(self).map_err(|error| ("shared memory", error))?;
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
            move |stream, control: &_| control::converse(&device, &uri, stream, control)
        };
        let connection = Connection::open(&self.path, !self.server, attention, converse)?;
        let shared = Arc::new(Shared { connection, device });
        let queues = 0..usize::from(self.queues);
        Ok(Port {
            rx: queues
                .clone()
                .map(|q| Box::new(VirtioReceive::new(shared.clone(), q, self.wait)) as _)
                .collect(),
            tx: queues.map(|q| Box::new(VirtioTransmit::new(shared.clone(), q)) as _).collect(),
            link: Some(shared),
        })
    }
}

/// What the data threads and the control thread of a virtio port share.
struct Device {
    pairs: Vec<Pair>,
    /// Outlives every queue in it.
    memory: SharedMemory,
}

/// A pair of virtqueues.
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

impl fmt::Display for VirtioUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "virtio:{}", self.path.display())?;
        let mut pairs = Vec::new();
        if self.queues != 1 {
            pairs.push(("queues", self.queues.to_string()));
        }
        if u32::from(self.size.get()) != SIZE_DEFAULT {
            pairs.push(("size", self.size.get().to_string()));
        }
        for (key, on) in [("packed", self.packed), ("server", self.server)] {
            if on {
                pairs.push((key, "1".to_owned()));
            }
        }
        if !self.hugepages {
            pairs.push(("hugepages", "0".to_owned()));
        }
        pairs.extend(wait_pairs(self.wait));
        write_query(f, pairs)
    }
}
