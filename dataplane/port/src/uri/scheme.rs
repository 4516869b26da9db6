//! Description of one kind of port: everything that [`PortUri`](crate::PortUri) asks of it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;

use dray_netdev::privilege::Capability;
use dray_socket::{Access, BoundSocket, SocketName};
use rustix::net::SocketType;

use crate::session::shared_listener::Membership;
use crate::session::snapshot::{PortSnapshot, Resumption};
use crate::uri::failed::{Failed, refused};
use crate::uri::query::{Query, UriError};
use crate::{Port, Wait};

/// Resource that only one port of a program can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim<'u> {
    /// All frames of an interface.
    Interface(&'u str),
    /// All frames of an interface of another network namespace.
    InterfaceOf(&'u Path, &'u str),
    /// Frames of some queues of an interface.
    Queues(&'u str, Range<u32>),
    /// A connection by a Unix socket, with its number if there can be several.
    Socket(&'u SocketName, u32),
    /// An IP address and UDP port, in another network namespace or the program's own.
    Address(Option<&'u Path>, SocketAddr),
}

impl Claim<'_> {
    /// Returns what both have in common, if anything.
    pub(crate) fn common(&self, other: &Claim<'_>) -> Option<String> {
        use Claim::{Address, Interface, InterfaceOf, Queues, Socket};
        let is_common = match (self, other) {
            (Queues(own, queues), Queues(name, others)) => {
                own == name && queues.start < others.end && others.start < queues.end
            }
            (Interface(own) | Queues(own, _), Interface(name) | Queues(name, _)) => own == name,
            (Socket(..), Socket(..))
            | (InterfaceOf(..), InterfaceOf(..))
            | (Address(..), Address(..)) => self == other,
            _ => false,
        };
        is_common.then(|| match self {
            Interface(name) | InterfaceOf(_, name) | Queues(name, _) => format!("interface {name}"),
            Socket(name, _) => format!("socket {name}"),
            Address(_, address) => format!("UDP address {address}"),
        })
    }
}

/// A socket that a port creates.
pub(crate) struct Listening<'u> {
    pub(crate) name: &'u SocketName,
    pub(crate) kind: SocketType,
    pub(crate) access: &'u Access,
}

/// The socket at which a port listens.
pub(crate) enum Socket {
    Own(BoundSocket),
    /// A place at the socket of several ports.
    Shared(Membership),
}

impl Socket {
    pub(crate) fn own(self) -> Option<BoundSocket> {
        match self {
            Self::Own(socket) => Some(socket),
            Self::Shared(_) => None,
        }
    }
}

/// A kind of port, named by the scheme of its URIs. Its `Display` writes the URI with only those
/// keys that differ from their defaults.
pub(crate) trait Scheme: fmt::Display {
    /// Parses a URI's body, and takes the keys that this kind of port knows.
    fn parse(body: &str, query: &mut Query<'_>) -> Result<Self, UriError>
    where
        Self: Sized;

    /// Parses `uri`, in which `rest` follows `scheme` and a colon.
    fn parse_uri(uri: &str, scheme: &str, rest: &str) -> Result<Self, UriError>
    where
        Self: Sized,
    {
        let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut query = Query::parse(uri, query)?;
        let parsed = Self::parse(body, &mut query)?;
        query.finish(scheme)?;
        Ok(parsed)
    }

    /// Creates the socket at which the port listens, if it listens at one.
    fn bind(&self) -> io::Result<Option<Socket>> {
        let Some(Listening { name, kind, access }) = self.socket() else { return Ok(None) };
        BoundSocket::bind(name, kind, access).map(|socket| Some(Socket::Own(socket)))
    }

    /// Opens the port in the network namespace of the calling thread. `socket` is what
    /// [`bind`](Self::bind) returned.
    fn open(&self, socket: Option<Socket>) -> Result<Port, Failed>;

    /// Like [`open`](Self::open), for a user that handles frames with
    /// [offloads](crate::Frame::offload).
    fn open_offloading(&self, socket: Option<Socket>) -> Result<Port, Failed> {
        self.open(socket)
    }

    /// Like [`open_offloading`](Self::open_offloading), with descriptors that another program has
    /// opened: what [`prepare`](Self::prepare) returns.
    fn open_with(&self, descriptors: Vec<OwnedFd>) -> Result<Port, Failed> {
        drop(descriptors);
        Err(refused(
            "only tap: and vxlan: ports, and vhost: and memif: ports that listen, take some"
                .to_owned(),
        ))
    }

    /// Continues a port of another process ([`PortUri::resume`](crate::PortUri::resume)), for a
    /// user that handles frames with offloads, or not.
    fn resume(
        &self,
        snapshot: PortSnapshot,
        offloads: bool,
    ) -> Result<(Port, Option<Resumption>), Failed> {
        let _ = (snapshot, offloads);
        Err(refused("such a port cannot be handed over".to_owned()))
    }

    /// Opens what the port needs in the network namespace of the calling thread, for a program that
    /// may not enter it.
    fn prepare(&self) -> Result<Vec<OwnedFd>, Failed> {
        Err(refused(
            "only tap: and vxlan: ports, and ports that listen at an abstract socket, need some"
                .to_owned(),
        ))
    }

    /// Returns how the port waits for frames.
    fn wait(&self) -> Wait;

    /// Returns the capabilities without which `what`, the part of a port that failed, is denied.
    fn capabilities(&self, what: &str) -> &'static [Capability] {
        let _ = what;
        &[]
    }

    /// See [`PortUri::peer`](crate::PortUri::peer).
    fn peer(&self) -> Option<String> {
        None
    }

    /// See [`PortUri::is_local`](crate::PortUri::is_local).
    fn is_local(&self) -> bool {
        false
    }

    /// Returns the socket that the port creates, if it creates one.
    fn socket(&self) -> Option<Listening<'_>> {
        None
    }

    /// Returns what the port uses exclusively, if anything.
    fn claim(&self) -> Option<Claim<'_>> {
        None
    }

    /// Returns the socket of its peer that the port connects to, if there is one.
    fn peer_socket(&self) -> Option<&SocketName> {
        match (self.socket(), self.claim()) {
            (None, Some(Claim::Socket(name, _))) => Some(name),
            _ => None,
        }
    }

    /// See [`PortUri::only_receives`](crate::PortUri::only_receives).
    fn only_receives(&self) -> bool {
        false
    }

    /// See [`PortUri::is_one_flow`](crate::PortUri::is_one_flow).
    fn is_one_flow(&self) -> bool {
        false
    }

    /// See [`PortUri::loses_tags`](crate::PortUri::loses_tags).
    fn loses_tags(&self) -> bool {
        false
    }
}
