//! `virtio:PATH`: the front end of vhost-user, known as virtio-user. The port shares memory of its
//! own with the back end (a switch, another container's [`vhost`](crate::vhost) port, DPDK) over
//! the Unix socket at `PATH`. It needs neither privileges nor hugepages. The messages are those of
//! QEMU's `docs/interop/vhost-user.rst`; rings and header are those of Virtio 1.3, sections 2.7,
//! 2.8 and 5.1.6.
//!
//! Both ends of a link in one process:
//!
//! ```
//! use dray_port::{Frame, Port, PortUri};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("a.sock").display().to_string();
//! let back_end: PortUri = format!("vhost:{path}").parse()?;
//! let front_end: PortUri = format!("virtio:{path}").parse()?;
//! let Port { mut rx, .. } = back_end.open()?;
//! let Port { mut tx, .. } = front_end.open()?;
//! // The two negotiate on threads of their own; until then, the port takes no frame.
//! while tx[0].transmit(&[Frame::from(&[7; 64][..])])? == 0 {}
//! let mut first = None;
//! while first.is_none() {
//!     rx[0].receive(&mut |frames| {
//!         first = frames[0].first::<2>();
//!         frames.len()
//!     })?;
//! }
//! assert_eq!(first, Some([7, 7]));
//! # Ok(())
//! # }
//! ```
//!
//! * `memory`: layout of rings and buffers in the shared memory.
//! * `queue`: one virtqueue and its buffers, and moving frames through it.
//! * `control`: the session with the back end.

mod control;
mod memory;
mod queue;
#[cfg(test)]
mod tests;
mod uri;

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use dray_ring::QueueSize;
use rustix::net::SocketType;

use crate::ends::pairs;
use crate::ends::peer_memory::PeerMemory;
use crate::session::connection::Connection;
use crate::session::peers::Peers;
use crate::session::unix::{parse_access, parse_name};
use crate::signal::control_wake::ControlWake;
use crate::uri::failed::Failed;
use crate::uri::query::{Query, UriError};
use crate::uri::scheme::{Claim, Listening, Scheme, Socket};
use crate::{OpenError, Port, Wait};

use memory::SharedMemory;
use queue::Device;
use uri::SIZE_DEFAULT;

pub use uri::VirtioUri;

impl VirtioUri {
    /// Like [`PortUri::open`](crate::PortUri::open), for the back ends at the other ends of
    /// `streams`, one after the other; the path is ignored. Fuzzing has no time to connect.
    #[doc(hidden)]
    pub fn open_over(&self, streams: Vec<UnixStream>) -> Result<Port, OpenError> {
        self.try_open(Peers::connected(streams), self.offload)
            .map_err(|(what, error)| OpenError::new(self, what, error))
    }

    fn try_open(&self, peers: Peers, offload: bool) -> Result<Port, Failed> {
        let wake = ControlWake::new().map_err(|error| ("eventfd", error))?;
        let uri = self.clone();
        let memory = PeerMemory::new(move || SharedMemory::new(&uri));
        let mut memory = memory.map_err(|error| ("shared memory", error))?;
        let device = Arc::new(Device::new(self.queues, &wake)?);
        let session = {
            let (device, uri) = (device.clone(), Self { offload, ..self.clone() });
            move |stream, control: &_| control::session(&device, &uri, &mut memory, stream, control)
        };
        let connection = Connection::new(peers, wake, session)?;
        Ok(pairs::port(device, connection, self.wait))
    }
}

impl Scheme for VirtioUri {
    fn parse(body: &str, query: &mut Query<'_>) -> Result<Self, UriError> {
        let size = query.take("size", "a power of two from 2 to 32768", |text| {
            QueueSize::new(text.parse().ok()?).ok()
        })?;
        let server = query.flag("server", false)?;
        let socket = parse_name("virtio", body, query)?;
        Ok(Self {
            queues: query.queues()?,
            size: size.unwrap_or(QueueSize::new(SIZE_DEFAULT).expect("a power of two")),
            packed: query.flag("packed", false)?,
            server,
            access: parse_access(query, &socket, server)?,
            socket,
            hugepages: query.flag("hugepages", true)?,
            offload: query.flag("offload", true)?,
            wait: Wait::parse(query)?,
        })
    }

    /// Creates the memory and starts to connect or listen. The back end may connect at any time,
    /// and reconnect. Each back end gets memory that no other has seen.
    fn open(&self, socket: Option<Socket>) -> Result<Port, Failed> {
        self.try_open(Peers::new(&self.socket, socket.and_then(Socket::own))?, false)
    }

    fn open_offloading(&self, socket: Option<Socket>) -> Result<Port, Failed> {
        self.try_open(Peers::new(&self.socket, socket.and_then(Socket::own))?, self.offload)
    }

    fn wait(&self) -> Wait {
        self.wait
    }

    fn peer(&self) -> Option<String> {
        Some(format!("a switch at {}", self.socket))
    }

    fn is_local(&self) -> bool {
        true
    }

    fn socket(&self) -> Option<Listening<'_>> {
        let Self { socket: name, access, server, .. } = self;
        server.then_some(Listening { name, kind: SocketType::STREAM, access })
    }

    fn claim(&self) -> Option<Claim<'_>> {
        Some(Claim::Socket(&self.socket, 0))
    }
}
