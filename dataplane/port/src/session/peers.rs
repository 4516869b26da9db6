//! Peers of a port, and the source that they come from.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use dray_socket::{BoundSocket, Place, SocketName};
use rustix::net::SocketType;

use crate::session::shared_listener::Membership;
use crate::session::status::LinkStatus;
use crate::session::unix;
use crate::uri::failed::Failed;

/// Source of a port's peers.
pub(crate) enum PeerSource {
    /// Peers connect to this socket.
    Listener(BoundSocket),
    /// Peers connect to a socket of several ports.
    Shared(Membership),
    /// The port connects to the socket of this name, of this type.
    Socket(SocketName, SocketType),
    /// The port connects to the stream socket at this place, in a directory of the peer.
    Place(Place),
}

/// Peers of a port, which are served one after the other.
#[derive(Default)]
pub(crate) struct Peers {
    /// Source of further peers.
    pub(crate) source: Option<PeerSource>,
    /// Peers that are connected already.
    pub(crate) first: Vec<UnixStream>,
    /// Status before the first peer, such as the ends of earlier sessions.
    pub(crate) status: LinkStatus,
}

impl PeerSource {
    /// Returns the socket of the peer in its `directory`, which has the file name of `name`.
    pub(crate) fn within(directory: OwnedFd, name: &SocketName) -> Result<Self, Failed> {
        let file = name.path().and_then(Path::file_name).unwrap_or_default();
        Place::within(directory, file).map(Self::Place).map_err(|error| ("directory", error))
    }

    /// Returns the descriptor with which another process accepts peers or connects to them.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Listener(listener) => Some(listener.as_fd()),
            Self::Shared(membership) => Some(membership.socket()),
            Self::Socket(..) => None,
            Self::Place(place) => Some(place.directory()),
        }
    }

    /// Returns true if this process has bound the socket.
    pub(crate) fn is_own(&self) -> bool {
        match self {
            Self::Listener(listener) => listener.file.is_some() || listener.name.is_some(),
            Self::Shared(membership) => membership.is_own(),
            Self::Socket(..) | Self::Place(_) => false,
        }
    }
}

impl Peers {
    /// Returns the peers at the other ends of `streams`.
    pub(crate) fn connected(streams: Vec<UnixStream>) -> Self {
        Self { first: streams, ..Self::default() }
    }

    /// Returns the peers that come from `source`.
    pub(crate) fn of(source: PeerSource) -> Self {
        Self { source: Some(source), ..Self::default() }
    }

    /// Returns the peers that connect to `listener`; without one, the port connects to the stream
    /// socket `name`.
    pub(crate) fn new(name: &SocketName, listener: Option<BoundSocket>) -> Result<Self, Failed> {
        match listener {
            Some(listener) => Ok(Self::of(PeerSource::Listener(listener))),
            None => Self::at(name, SocketType::STREAM),
        }
    }

    /// Connects to the socket `name`, now and after each session. Fails if retrying would not help.
    pub(crate) fn at(name: &SocketName, kind: SocketType) -> Result<Self, Failed> {
        let mut peers = Self::of(PeerSource::Socket(name.clone(), kind));
        match unix::connect(name, kind) {
            Ok(stream) => peers.first.push(stream),
            Err(error) => match unix::why_unreachable(name, error) {
                Ok(why) => peers.status.unreachable = Some(why),
                Err(error) => return Err(("connect", error)),
            },
        }
        Ok(peers)
    }
}
