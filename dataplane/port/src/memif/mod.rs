//! `memif:PATH`: the client of memif, the shared memory packet interface of FD.io's VPP, which DPDK
//! supports too. The port shares memory of its own with the server (called master in older
//! versions) over the Unix socket at `PATH`. It needs neither privileges nor hugepages.
//!
//! * `memory`: layout of rings and buffers in the shared memory.
//! * `message`: the messages of the control socket.
//! * `control`: the session with the server.
//! * `queue`: one ring and its buffers, and moving frames through it.

mod control;
mod memory;
mod message;
mod queue;
#[cfg(test)]
mod tests;

use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use dray_ring::QueueSize;

use crate::attention::Attention;
use crate::connection::Connection;
use crate::fresh::Fresh;
use crate::pairs::{self, Pair};
use dray_daemon::BoundSocket;

use crate::query::{Query, UriError, write_query};
use crate::scheme::{Claim, Failed, Scheme};
use crate::unix::parse_path;
use crate::{OpenError, Port, Wait};

use memory::SharedMemory;
use message::SECRET_MAX;
use queue::{ReceiveQueue, TransmitQueue};

/// Name of a memif port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemifUri {
    /// Path of the Unix socket.
    pub path: PathBuf,
    /// Id of the server's interface at that socket.
    pub id: u32,
    /// Secret that the interface requires, up to 24 bytes.
    pub secret: String,
    /// Number of ring pairs, 1 to 16.
    pub queues: u16,
    /// Number of entries of each ring.
    pub size: QueueSize,
    /// How to wait for frames.
    pub wait: Wait,
}

/// Default number of ring entries, as for virtio ports.
const SIZE_DEFAULT: u32 = 1024;
/// Maximum of VPP and DPDK.
const SIZE_MAX: u16 = 1 << 14;

impl MemifUri {
    /// Like [`PortUri::open`](crate::PortUri::open), for the servers at the other ends of the packet
    /// sockets `sockets`, one after the other; the path is ignored. Fuzzing has no time to connect.
    #[doc(hidden)]
    pub fn open_over(&self, sockets: Vec<OwnedFd>) -> Result<Port, OpenError> {
        self.try_open(sockets.into_iter().map(UnixStream::from).collect())
            .map_err(|(what, error)| OpenError::new(self, what, error))
    }

    fn try_open(&self, sockets: Vec<UnixStream>) -> Result<Port, Failed> {
        let attention = Attention::new().map_err(|error| ("eventfd", error))?;
        let (size, queues) = (self.size, self.queues);
        let memory = Fresh::new(move || SharedMemory::new(size, queues));
        let mut memory = memory.map_err(|error| ("shared memory", error))?;
        let pairs = Pair::several(self.queues, &attention)?;
        let device = Arc::new(Device { pairs });
        let converse = {
            let (device, uri) = (device.clone(), self.clone());
            move |socket, control: &_| {
                control::converse(&device, &uri, &mut memory, &socket, control)
            }
        };
        let connection = match sockets.is_empty() {
            false => Connection::over(sockets, attention, converse)?,
            true => Connection::by_packets(&self.path, attention, converse)?,
        };
        Ok(pairs::port(device, connection, self.wait))
    }
}

/// State shared by the data threads and the control thread of a memif port.
type Device = pairs::Device<ReceiveQueue, TransmitQueue>;

impl Scheme for MemifUri {
    fn parse(body: &str, query: &mut Query<'_>) -> Result<Self, UriError> {
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
            queues: query.queues()?,
            size: size.unwrap_or(QueueSize::new(SIZE_DEFAULT).expect("a power of two")),
            wait: Wait::parse(query)?,
        })
    }

    /// Creates the memory and starts to connect; the server may come at any time, and come back.
    /// Each server gets memory that no other has seen.
    fn open(&self, _: Option<BoundSocket>) -> Result<Port, Failed> {
        self.try_open(Vec::new())
    }

    fn wait(&self) -> Wait {
        self.wait
    }

    fn peer(&self) -> Option<String> {
        Some(format!("a memif server at {}", self.path.display()))
    }

    fn is_local(&self) -> bool {
        true
    }

    fn claim(&self) -> Option<Claim<'_>> {
        Some(Claim::Socket(&self.path, self.id))
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
        pairs.extend(self.wait.pair());
        write_query(f, pairs)
    }
}
