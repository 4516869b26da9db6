//! Connections: each has its own thread, a time limit, and one request.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dray_netdev::peer_user;
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_linger, set_socket_timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrAny, SocketFlags, acceptfrom_with, recv,
    recvmsg, sendmsg, shutdown,
};

use crate::address::{Rates, Source};
use crate::connections::{Connections, Limits, Number, Stage};
use crate::failure::failure;
use crate::http::{DESCRIPTORS_MAX, Kept, Refusal, Request, RequestError, Response, read_request};

/// Function that answers requests, called on the threads of connections.
pub type Answer = dyn Fn(Request) -> Response + Send + Sync;

const SECOND: Duration = Duration::from_secs(1);
/// Time for the threads of connections to end when the server does.
const FAREWELL: Duration = Duration::from_millis(200);

/// A running control interface. Dropping it stops it and closes its socket.
pub struct Server {
    socket: Arc<dyn AsFd + Send + Sync>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

struct Shared {
    answer: Box<Answer>,
    limits: Limits,
    connections: Mutex<Connections>,
}

impl Server {
    /// Starts a server that answers requests at `socket`, which listens, with `answer`. The caller
    /// binds the socket before it opens any port, so that a second program at the same socket
    /// disturbs nothing.
    pub fn start(
        socket: impl AsFd + Send + Sync + 'static,
        limits: Limits,
        answer: impl Fn(Request) -> Response + Send + Sync + 'static,
    ) -> Self {
        let socket: Arc<dyn AsFd + Send + Sync> = Arc::new(socket);
        let (answer, connections) = (Box::new(answer), Mutex::default());
        let shared = Arc::new(Shared { answer, limits, connections });
        let thread = thread::spawn({
            let (socket, shared) = (socket.clone(), shared.clone());
            move || accept(&*socket, &shared)
        });
        Self { socket, thread: Some(thread), shared }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // On Linux, shutdown of a listening socket makes accept return; nothing else can go wrong.
        let _ = shutdown(&*self.socket, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // The handler of requests may own values that the server's owner is about to close.
        self.shared.connections().close_kept();
        let until = Instant::now() + FAREWELL;
        while Arc::strong_count(&self.shared) > 1 && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn accept(socket: &dyn AsFd, shared: &Arc<Shared>) {
    let rate = shared.limits.network.map(|bounds| bounds.total_rate);
    let interval = rate.map_or(Duration::ZERO, |rate| SECOND / rate);
    // Time at which the connections so far have used up their rate.
    let mut due = Instant::now();
    let mut rates = Rates::default();
    loop {
        let is_admitted = match acceptfrom_with(socket, SocketFlags::CLOEXEC) {
            Ok((stream, address)) => shared.welcome(stream, address, &mut rates),
            // The socket was closed.
            Err(Errno::INVAL) => return,
            // The client has closed its connection already.
            Err(Errno::CONNABORTED | Errno::INTR) => false,
            Err(_) => {
                // For example out of file descriptors: others may be closed soon.
                thread::sleep(Duration::from_millis(10));
                false
            }
        };
        if is_admitted {
            let now = Instant::now();
            due = due.max(now) + interval;
            // The connections of one second may come at once.
            thread::sleep((due - now).saturating_sub(SECOND));
        }
    }
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a connection on a thread of its own, or refuses it; returns true if it is served.
    fn welcome(
        self: &Arc<Self>,
        socket: OwnedFd,
        address: Option<SocketAddrAny>,
        rates: &mut Rates,
    ) -> bool {
        // The socket itself has no address any more if the client has closed it meanwhile.
        let source = Source::of(address, &socket);
        let rate = self.limits.network.map(|bounds| bounds.rate);
        let is_soon = rate.is_some_and(|rate| !rates.admits(source, rate, Instant::now()));
        let socket = Arc::new(socket);
        let number = match is_soon {
            true => None,
            false => self.connections().admit(&socket, source, &self.limits),
        };
        let Some(number) = number else {
            if self.limits.network.is_some() {
                // The kernel drops the connection at once.
                let _ = set_socket_linger(&socket, Some(Duration::ZERO));
            }
            return false;
        };
        let shared = self.clone();
        let serve = move || {
            shared.serve(&socket, number);
            shared.connections().remove(number);
        };
        let started = thread::Builder::new().name("control".to_owned()).spawn(serve);
        if started.is_err() {
            // Without a thread the connection is closed.
            self.connections().remove(number);
        }
        started.is_ok()
    }

    fn serve(&self, socket: &OwnedFd, number: Number) {
        let mut peer = Patient::new(socket, Instant::now() + self.limits.time);
        let request = read_request(&mut peer, self.limits.body).and_then(|request| {
            let user = peer_user(socket).ok();
            Ok(Request { descriptors: peer.take_descriptors()?, user, ..request })
        });
        self.connections().enter(number, Stage::Answering);
        let mut response = match (request, failure()) {
            // A dead thread may have locked something for which the answer would wait.
            (Ok(_), Some(why)) => Refusal::new(503, format!("about to end: {why}")).into(),
            (Ok(request), None) => (self.answer)(request),
            (Err(RequestError::Refused(refusal)), _) => refusal.into(),
            (Err(RequestError::Gone(_)), _) => return,
        };
        peer.until = Instant::now() + self.limits.time;
        peer.outgoing = response.descriptor.take();
        self.connections().enter(number, Stage::Reading);
        if response.write(&mut peer).is_ok() {
            if let Some(kept) = response.kept {
                return self.keep(socket, number, kept);
            }
            // The rest of a refused request must be read, or the reply is lost with the connection.
            let _ = shutdown(socket, Shutdown::Write);
            let _ = io::copy(&mut peer, &mut io::sink());
        }
    }
}

impl Shared {
    /// Waits until the client closes its connection, then drops `kept`.
    fn keep(&self, socket: &OwnedFd, number: Number, kept: Kept) {
        self.connections().enter(number, Stage::Kept);
        // The client reads to the end of the reply.
        let _ = shutdown(socket, Shutdown::Write);
        if set_socket_timeout(socket, Timeout::Recv, None).is_ok() {
            while matches!(
                recv(socket, &mut [0; 64], RecvFlags::empty()),
                Ok((1.., _)) | Err(Errno::INTR)
            ) {}
        }
        drop(kept);
    }
}

/// A stream with a deadline for all its reads and writes together.
struct Patient<'a> {
    stream: &'a OwnedFd,
    until: Instant,
    /// File descriptors that came with the bytes read so far; closed on drop.
    descriptors: Vec<OwnedFd>,
    /// True if there were more than are allowed; these are closed already.
    too_many: bool,
    /// Goes with the next bytes that are written.
    outgoing: Option<OwnedFd>,
}

impl<'a> Patient<'a> {
    fn new(stream: &'a OwnedFd, until: Instant) -> Self {
        Self { stream, until, descriptors: Vec::new(), too_many: false, outgoing: None }
    }

    fn take_descriptors(&mut self) -> Result<Vec<OwnedFd>, Refusal> {
        let descriptors = std::mem::take(&mut self.descriptors);
        if self.too_many {
            let what = format!(
                "too many file descriptors in the request; at most {DESCRIPTORS_MAX} are allowed"
            );
            return Err(Refusal::new(400, what));
        }
        Ok(descriptors)
    }

    fn rest(&self) -> io::Result<Option<Duration>> {
        let rest = self.until.saturating_duration_since(Instant::now());
        if rest.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(rest)) }
    }
}

impl Read for Patient<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        set_socket_timeout(self.stream, Timeout::Recv, self.rest()?)?;
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(self.stream, &mut parts, &mut ancillary, flags)?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        // The kernel closes those for which there is no space.
        self.too_many |= received.flags.contains(ReturnFlags::CTRUNC)
            || self.descriptors.len() > DESCRIPTORS_MAX;
        self.descriptors.truncate(DESCRIPTORS_MAX);
        Ok(received.bytes)
    }
}

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        set_socket_timeout(self.stream, Timeout::Send, self.rest()?)?;
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let outgoing = self.outgoing.as_ref().map(|descriptor| [descriptor.as_fd()]);
        if let Some(outgoing) = &outgoing {
            ancillary.push(SendAncillaryMessage::ScmRights(outgoing));
        }
        let parts = [IoSlice::new(bytes)];
        let sent = sendmsg(self.stream, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
        self.outgoing = None;
        Ok(sent)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
