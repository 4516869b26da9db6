//! `unix:PATH`: datagrams between Unix sockets, one frame in each. There is no network in between,
//! so this shows the kernel's cost of passing a message from process to process.

use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use dray_socket::{Access, BoundSocket, Own, Place, SocketFile, SocketName};
use dray_wire::FRAME_MAX;
use rustix::io::Errno;
use rustix::net::{SocketType, sockopt};

use crate::lock::lock;
use crate::lost::Lost;
use crate::session::unix::{self, parse_access, parse_name};
use crate::socket::{Restore, SocketOptions, SocketReceive, SocketTransmit};
use crate::uri::failed::Failed;
use crate::uri::query::{Query, UriError, write_query};
use crate::uri::scheme::{Claim, Listening, Scheme, Socket};
use crate::{Frame, Link, LinkState, LinkStatus, PATIENCE, Port, Receive, Take, Transmit, Wait};

/// Name of a Unix datagram port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixUri {
    /// The port's socket.
    pub socket: SocketName,
    /// The socket that it is connected to; without one the port only receives.
    pub peer: Option<SocketName>,
    /// Rights of the socket's file.
    pub access: Access,
    /// Batch size and how to wait.
    pub options: SocketOptions,
}

impl Scheme for UnixUri {
    fn parse(body: &str, query: &mut Query<'_>) -> Result<Self, UriError> {
        let socket = parse_name("unix", body, query)?;
        let peers =
            "the path of a Unix socket, or @ and the name of an abstract one, of at most 107 bytes";
        let peer = query.take("peer", peers, |text| SocketName::parse(text).ok())?;
        let access = parse_access(query, &socket, true)?;
        Ok(Self { socket, peer, access, options: SocketOptions::parse(query)? })
    }

    /// The peer may come later.
    fn open(&self, socket: Option<Socket>) -> Result<Port, Failed> {
        let fail = |what| move |errno: Errno| (what, errno.into());
        let not_bound = || ("socket", io::ErrorKind::NotConnected.into());
        let bound = socket.and_then(Socket::own).ok_or_else(not_bound)?;
        let BoundSocket { socket, file, name } = bound;
        for direction in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            sockopt::set_socket_timeout(&socket, direction, Some(PATIENCE))
                .map_err(fail("SO_RCVTIMEO"))?;
        }
        let socket = Arc::new(socket);
        let peer = Arc::new(Peer {
            socket: socket.clone(),
            _bound: (file, name),
            name: self.peer.clone(),
            place: Mutex::default(),
            is_connected: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
        });
        peer.try_connect().map_err(|error| ("connect", error))?;
        // A directory that was opened before the sandbox would give access outside it.
        peer.clear_place();
        let receiving = SocketReceive::new(socket.clone(), self.options, Restore::Nothing);
        let sending = SocketTransmit::new(socket, self.options, false, FRAME_MAX);
        Ok(Port {
            rx: vec![Box::new(UnixReceive { socket: receiving, peer: peer.clone() })],
            tx: vec![Box::new(UnixTransmit { socket: sending, peer: peer.clone() })],
            link: Some(peer),
        })
    }

    fn wait(&self) -> Wait {
        self.options.wait
    }

    fn peer(&self) -> Option<String> {
        self.peer.as_ref().map(|peer| format!("a socket at {peer}"))
    }

    fn is_local(&self) -> bool {
        true
    }

    fn socket(&self) -> Option<Listening<'_>> {
        let Self { socket: name, access, .. } = self;
        Some(Listening { name, kind: SocketType::DGRAM, access })
    }

    fn peer_socket(&self) -> Option<&SocketName> {
        self.peer.as_ref()
    }

    fn only_receives(&self) -> bool {
        self.peer.is_none()
    }

    fn claim(&self) -> Option<Claim<'_>> {
        Some(Claim::Socket(&self.socket, 0))
    }
}

impl fmt::Display for UnixUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix:{}", self.socket)?;
        let peer = self.peer.iter().map(|peer| ("peer", peer.to_string()));
        write_query(f, peer.chain(self.access.pairs()).chain(self.options.pairs()))
    }
}

/// Socket of the peer, and the file or name of our own socket, which is removed when the port
/// closes.
struct Peer {
    socket: Arc<OwnedFd>,
    _bound: (Option<SocketFile>, Option<Own>),
    name: Option<SocketName>,
    /// Place of the peer's file, once its directory has been found.
    place: Mutex<Option<Place>>,
    is_connected: AtomicBool,
    /// True if the peer has left since the last call of `is_down`.
    has_left: AtomicBool,
}

impl Peer {
    /// Connects, if that has not happened yet, and returns true if connected. Between two sockets
    /// that are connected to each other the number of waiting datagrams is unlimited, only their
    /// bytes are limited.
    fn connect(&self) -> bool {
        if !self.is_connected.load(Ordering::Relaxed) {
            let connected = self.name.as_ref().is_some_and(|name| self.connect_to(name).is_ok());
            self.is_connected.store(connected, Ordering::Relaxed);
        }
        self.is_connected.load(Ordering::Relaxed)
    }

    fn connect_to(&self, name: &SocketName) -> io::Result<()> {
        let address = match name {
            SocketName::Abstract(text) => {
                dray_socket::check_abstract(text)?;
                name.address()?
            }
            SocketName::File(path) => {
                let file = self.find(path)?;
                return Ok(rustix::net::connect(&self.socket, &dray_socket::address_of(&file)?)?);
            }
        };
        Ok(rustix::net::connect(&self.socket, &address)?)
    }

    /// Opens the file of the peer's socket. Its directory is cached, since this happens for each
    /// batch of frames until the peer exists.
    fn find(&self, path: &Path) -> io::Result<OwnedFd> {
        let mut known = lock(&self.place);
        if known.as_ref().is_none_or(Place::is_removed) {
            *known = Some(Place::shared(path)?);
        }
        known.as_ref().map_or_else(|| Err(io::ErrorKind::NotFound.into()), Place::socket)
    }

    fn clear_place(&self) {
        *lock(&self.place) = None;
    }

    /// Connects; returns the reason if that is not possible now.
    ///
    /// # Errors
    /// If retrying would not help.
    fn try_connect(&self) -> io::Result<Option<String>> {
        let Some(name) = &self.name else { return Ok(None) };
        // The directory may have been replaced.
        self.clear_place();
        match self.connect_to(name) {
            Ok(()) => Ok(None),
            // The peer has connected its socket to a third one.
            Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
                Ok(Some("it is connected to another socket".to_owned()))
            }
            Err(error) => unix::why_unreachable(name, error).map(Some),
        }
    }
}

impl Link for Peer {
    fn status(&self) -> LinkStatus {
        let is_there = self.name.is_none() || self.connect();
        let state = if is_there { LinkState::Running } else { LinkState::Waiting };
        let unreachable = match is_there {
            true => None,
            false => self.try_connect().unwrap_or_else(|error| Some(error.to_string())),
        };
        let features = vec!["datagrams".to_owned()];
        LinkStatus { state, features, unreachable, ..LinkStatus::default() }
    }

    fn is_down(&self) -> bool {
        if self.name.is_none() {
            return false;
        }
        // The kernel does not report that the peer's socket was closed; connecting again does.
        self.is_connected.store(false, Ordering::Relaxed);
        let is_gone = !self.connect();
        self.has_left.swap(false, Ordering::Relaxed) || is_gone
    }
}

struct UnixReceive {
    socket: SocketReceive,
    peer: Arc<Peer>,
}

impl Receive for UnixReceive {
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize> {
        let lent = self.socket.receive(take)?;
        if lent > 0 {
            // The sender exists. Until both are connected, at most 10 frames can be queued.
            self.peer.connect();
        }
        Ok(lent)
    }

    fn refused(&self) -> u64 {
        self.socket.refused()
    }

    fn missed(&self) -> io::Result<u64> {
        self.socket.missed()
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        self.socket.event()
    }

    fn arm(&mut self, on: bool) -> bool {
        self.socket.arm(on)
    }

    fn set_wait(&mut self, wait: Wait) {
        self.socket.set_wait(wait);
    }
}

struct UnixTransmit {
    socket: SocketTransmit,
    peer: Arc<Peer>,
}

impl Transmit for UnixTransmit {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        // A peer that reconnects all the time must not block the caller.
        for _ in 0..2 {
            if !self.peer.connect() {
                break;
            }
            match self.socket.transmit(frames) {
                // The peer has left, and another may have taken its place; or the peer has
                // connected its socket to a third one, and so accepts no frame from this one.
                Err(error) if is_of_peer(&error) => {
                    self.peer.is_connected.store(false, Ordering::Relaxed);
                    self.peer.has_left.store(true, Ordering::Relaxed);
                }
                result => return result,
            }
        }
        Ok(0)
    }

    fn frame_max(&self) -> usize {
        FRAME_MAX
    }

    fn never_wait(&mut self) {
        self.socket.never_wait();
    }

    fn lost(&self) -> &Lost {
        self.socket.lost()
    }

    fn is_ready(&self) -> bool {
        self.peer.connect()
    }
}

fn is_of_peer(error: &io::Error) -> bool {
    [io::ErrorKind::NotConnected, io::ErrorKind::PermissionDenied].contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, PortUri};

    fn open(text: &str) -> Port {
        text.parse::<PortUri>().unwrap().open().unwrap()
    }

    fn send(port: &mut Port, frames: &[[u8; 60]]) -> usize {
        let batch: Batch<'_> = frames.iter().map(|frame| Frame::from(&frame[..])).collect();
        port.tx[0].transmit(&batch).unwrap()
    }

    fn receive(port: &mut Port) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut scratch = crate::scratch();
        port.rx[0]
            .receive(&mut |lent| {
                frames.extend(lent.iter().map(|frame| frame.bytes(&mut scratch).to_vec()));
                lent.len()
            })
            .unwrap();
        frames
    }

    #[test]
    fn frames_pass_both_ways_until_peer_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let name = |name: &str| folder.path().join(name).display().to_string();
        let uri =
            |here: &str, there: &str| format!("unix:{}?peer={}&batch=8", name(here), name(there));
        let (mut a, mut b) = (open(&uri("a", "b")), open(&uri("b", "a")));
        let is_running = |port: &Port| port.link.as_ref().unwrap().status().state;
        assert_eq!([is_running(&a), is_running(&b)], [LinkState::Running; 2]);
        let frames = [[1; 60], [2; 60], [3; 60]];
        assert_eq!(send(&mut a, &frames), 3);
        assert_eq!(receive(&mut b), frames);
        assert_eq!(send(&mut b, &frames[..1]), 1);
        assert_eq!(receive(&mut a), frames[..1]);

        let burst = [[9; 60]; 64];
        let mut taken = 0;
        loop {
            match send(&mut a, &burst) {
                64 => taken += 64,
                rest => break taken += rest,
            }
            assert!(taken < 1 << 20, "it is never full");
        }
        let mut received = 0;
        while received < taken {
            let frames = receive(&mut b).len();
            assert!(frames > 0, "{received} of {taken}");
            received += frames;
        }
        assert_eq!((received, b.rx[0].dropped().unwrap()), (taken, 0), "nothing is lost");
    }

    #[test]
    fn peer_reconnects_and_sockets_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        let mut sender = open(&format!("unix:{}?peer={}", a.display(), b.display()));
        assert_eq!(sender.link.as_ref().unwrap().status().state, LinkState::Waiting);
        assert_eq!(send(&mut sender, &[[0; 60]]), 0);
        for _ in 0..2 {
            let mut receiver = open(&format!("unix:{}", b.display()));
            assert_eq!(send(&mut sender, &[[5; 60]]), 1);
            assert_eq!(receive(&mut receiver), [[5; 60]]);
            drop(receiver);
            assert_eq!(send(&mut sender, &[[0; 60]]), 0, "no receiver");
        }
        drop(sender);
        assert!(!a.exists() && !b.exists());
    }

    #[test]
    fn only_stale_sockets_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let text = format!("unix:{}", path.display());
        let uri: PortUri = text.parse().unwrap();
        drop(std::os::unix::net::UnixDatagram::bind(&path).unwrap());
        assert!(path.exists(), "left behind");
        let port = uri.open().unwrap();
        let message = uri.open().map(drop).unwrap_err().to_string();
        assert!(message.contains("another program uses this socket") && message.contains(&text));
        drop(port);
        std::fs::write(&path, "mine").unwrap();
        let message = uri.open().map(drop).unwrap_err().to_string();
        assert!(message.contains("this path exists and is not a socket"), "{message}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }
}
