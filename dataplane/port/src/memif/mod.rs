//! `memif:SOCKET`: memif, the shared memory packet interface of FD.io's VPP, which DPDK supports
//! too. The client (called slave in older versions) shares memory of its own with the server
//! (master) over a Unix socket; neither needs privileges or hugepages.
//!
//! Both ends of a link in one process:
//!
//! ```
//! use dray_port::{Frame, Port, PortUri};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let name = format!("dray-doc-{}", std::process::id());
//! let server: PortUri = format!("memif:@{name}?role=server").parse()?;
//! let client: PortUri = format!("memif:@{name}").parse()?;
//! let Port { mut rx, .. } = server.open()?;
//! let Port { mut tx, .. } = client.open()?;
//! // The two negotiate on threads of their own; until then, the port takes no frame.
//! while tx[0].transmit(&[Frame::from(&[7; 64][..])])? == 0 {}
//! while rx[0].receive(&mut |frames| frames.len())? == 0 {}
//! # Ok(())
//! # }
//! ```
//!
//! * `message`: the messages of the control socket.
//! * `session`: sending and receiving them.
//! * `client`: a port that shares its memory.
//! * `server`: a port that maps the memory of its client.

mod client;
mod message;
mod server;
mod session;
mod uri;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use dray_ring::QueueSize;
use dray_socket::BoundSocket;
use rustix::net::SocketType;

use crate::ends::limits::MemoryLimits;
use crate::session::passed;
use crate::session::peers::{PeerSource, Peers};
use crate::session::shared_listener::{Membership, Terms};
use crate::session::snapshot::{PortSnapshot, Resumption};
use crate::session::unix::{parse_access, parse_name};
use crate::uri::failed::{Failed, refused};
use crate::uri::query::{Query, UriError};
use crate::uri::scheme::{Claim, Listening, Scheme, Socket};
use crate::{OpenError, Port, Wait};

use message::SECRET_MAX;
use uri::{SIZE_DEFAULT, SIZE_MAX};

pub use uri::{MemifUri, Role};

impl MemifUri {
    /// Like [`PortUri::open`](crate::PortUri::open), for the peers at the other ends of the packet
    /// sockets `sockets`, one after the other; the port's own socket is ignored. Fuzzing has no
    /// time to connect.
    #[doc(hidden)]
    pub fn open_over(&self, sockets: Vec<OwnedFd>) -> Result<Port, OpenError> {
        let peers = Peers::connected(sockets.into_iter().map(UnixStream::from).collect());
        let port = match &self.role {
            Role::Client { size } => client::open(self, *size, peers),
            Role::Server { memory, .. } => server::open(self, *memory, peers, None),
        };
        port.map_err(|(what, error)| OpenError::new(self, what, error))
    }

    /// Returns the limits that a server with this memory announces.
    fn terms(&self, memory: &MemoryLimits) -> Terms {
        Terms { queues: self.queues, regions: memory.regions }
    }

    /// Joins the ports of this process that listen at a socket that another program has created.
    fn join_passed(
        &self,
        memory: &MemoryLimits,
        socket: BoundSocket,
    ) -> Result<PeerSource, Failed> {
        let (protocol, name) = (&server::PROTOCOL, &self.socket);
        Membership::join_passed(protocol, name, socket, self.id, self.terms(memory))
            .map(PeerSource::Shared)
            .map_err(|error| ("socket", error))
    }
}

impl Scheme for MemifUri {
    fn parse(body: &str, query: &mut Query<'_>) -> Result<Self, UriError> {
        let role = query.take("role", "client or server", |text| match text {
            "client" => Some(false),
            "server" => Some(true),
            _ => None,
        })?;
        let is_server = role == Some(true);
        let id = query.take("id", "0 to 4294967295", |text| text.parse().ok())?;
        let secret = query.take("secret", "1 to 24 letters, digits, - and _", |text| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
            let fits = (1..=SECRET_MAX).contains(&text.len()) && text.chars().all(is_plain);
            fits.then(|| text.to_owned())
        })?;
        let socket = parse_name("memif", body, query)?;
        let queues = query.queues()?;
        let size = query.take("size", "a power of two from 2 to 16384", |text| {
            QueueSize::new(text.parse().ok()?).ok().filter(|size| size.get() <= SIZE_MAX)
        })?;
        let memory = MemoryLimits::parse(query)?;
        let access = parse_access(query, &socket, is_server)?;
        let other = match is_server {
            true => size.map(|_| "size: only for a client, which creates the rings"),
            false => memory
                .pairs()
                .next()
                .map(|_| "memory, regions: only with role=server; a client shares its own memory"),
        };
        if let Some(what) = other {
            return Err(query.error(what.to_owned()));
        }
        let size = size.unwrap_or(QueueSize::new(SIZE_DEFAULT).expect("a power of two"));
        Ok(Self {
            socket,
            id: id.unwrap_or(0),
            secret: secret.unwrap_or_default(),
            queues,
            role: if is_server { Role::Server { memory, access } } else { Role::Client { size } },
            wait: Wait::parse(query)?,
        })
    }

    /// Servers of one process with the same socket and other ids share it.
    fn bind(&self) -> io::Result<Option<Socket>> {
        match &self.role {
            Role::Client { .. } => Ok(None),
            Role::Server { memory, access } => {
                let (protocol, name, terms) = (&server::PROTOCOL, &self.socket, self.terms(memory));
                let joined = Membership::join(protocol, name, access, None, self.id, terms)?;
                Ok(Some(Socket::Shared(joined)))
            }
        }
    }

    /// Starts to connect or listen; the peer may come at any time, and come back. Each server gets
    /// memory that no other has seen.
    fn open(&self, socket: Option<Socket>) -> Result<Port, Failed> {
        match (&self.role, socket) {
            (Role::Client { size }, _) => {
                client::open(self, *size, Peers::at(&self.socket, SocketType::SEQPACKET)?)
            }
            (Role::Server { memory, .. }, Some(Socket::Shared(membership))) => {
                server::open(self, *memory, Peers::of(PeerSource::Shared(membership)), None)
            }
            (Role::Server { .. }, _) => Err(("socket", io::ErrorKind::NotConnected.into())),
        }
    }

    fn open_with(&self, descriptors: Vec<OwnedFd>) -> Result<Port, Failed> {
        let Role::Server { memory, .. } = &self.role else {
            return Err(refused("a client creates its own socket; give role=server".to_owned()));
        };
        let mut peers = passed::check(descriptors, SocketType::SEQPACKET, None)?;
        if let Some(PeerSource::Listener(listener)) = peers.source.take() {
            peers.source = Some(self.join_passed(memory, listener)?);
        }
        server::open(self, *memory, peers, None)
    }

    fn resume(
        &self,
        snapshot: PortSnapshot,
        _: bool,
    ) -> Result<(Port, Option<Resumption>), Failed> {
        let Role::Server { memory, access } = &self.role else {
            return Err(refused("a memif client cannot be handed over".to_owned()));
        };
        let mut parts = snapshot.into_parts().map_err(refused)?;
        let resumption = parts.resumption();
        let (resumption, resumed) = resumption.unzip();
        let own = parts.own;
        let mut peers = passed::resume(parts, &self.socket, SocketType::SEQPACKET, false)?;
        if let Some(PeerSource::Listener(listener)) = peers.source.take() {
            peers.source = Some(match own {
                true => {
                    let (protocol, name) = (&server::PROTOCOL, &self.socket);
                    let (listener, terms) = (Some(listener), self.terms(memory));
                    let joined = Membership::join(protocol, name, access, listener, self.id, terms);
                    PeerSource::Shared(joined.map_err(|error| ("socket", error))?)
                }
                false => self.join_passed(memory, listener)?,
            });
        }
        let resumed = resumed.filter(|_| !peers.first.is_empty());
        Ok((server::open(self, *memory, peers, resumed)?, resumption))
    }

    fn prepare(&self) -> Result<Vec<OwnedFd>, Failed> {
        match self.role {
            Role::Server { .. } => passed::prepare(&self.socket, SocketType::SEQPACKET, false),
            Role::Client { .. } => Err(refused("a client needs none; give role=server".to_owned())),
        }
    }

    fn wait(&self) -> Wait {
        self.wait
    }

    fn peer(&self) -> Option<String> {
        let peer = match self.role {
            Role::Client { .. } => "server",
            Role::Server { .. } => "client",
        };
        Some(format!("a memif {peer} at {}", self.socket))
    }

    fn is_local(&self) -> bool {
        true
    }

    fn socket(&self) -> Option<Listening<'_>> {
        match &self.role {
            Role::Client { .. } => None,
            Role::Server { access, .. } => {
                Some(Listening { name: &self.socket, kind: SocketType::SEQPACKET, access })
            }
        }
    }

    fn claim(&self) -> Option<Claim<'_>> {
        Some(Claim::Socket(&self.socket, self.id))
    }
}
