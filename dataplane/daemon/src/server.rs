//! Connections: each has its own thread, a time limit, and one request.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dray_netdev::peer_user;
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, accept_with, getpeername, recv,
    recvmsg, sendmsg, shutdown,
};

use crate::address::{ClientAddress, Rates};
use crate::failure::failure;
use crate::http::{
    BODY_MAX, DESCRIPTORS_MAX, Kept, Refusal, Request, RequestError, Response, read_request,
};

/// Function that answers requests, called on the threads of connections.
pub type Answer = dyn Fn(Request) -> Response + Send + Sync;

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of connections that have not sent their request. Beyond it the oldest of them
    /// is closed: silent clients do not keep others out.
    pub waiting: usize,
    /// Maximum number of connections in all, each of which has a thread. Beyond it the oldest that
    /// does not read its response is closed; if all read theirs, a further one is closed.
    pub connections: usize,
    /// Time for a request to arrive, and for its response to be read.
    pub time: Duration,
    /// Maximum length of a request's body, in bytes.
    pub body: usize,
    /// Bounds for strangers on a network; `None`: no bounds but those above.
    pub strangers: Option<Strangers>,
}

/// Bounds for clients on a network, so that none takes time or connections from others.
#[derive(Clone, Copy, Debug)]
pub struct Strangers {
    /// Maximum number of connections of one address. Beyond it its own oldest is closed.
    pub connections: usize,
    /// Maximum number of connections of one address per second; those of a second may come at once.
    /// Further ones are closed at once.
    pub rate: u32,
    /// Maximum number of connections of all addresses per second; further ones wait.
    pub total_rate: u32,
}

impl Default for Limits {
    fn default() -> Self {
        let time = Duration::from_secs(5);
        Self { waiting: 16, connections: 64, time, body: BODY_MAX, strangers: None }
    }
}

impl Limits {
    /// Limits for strangers, who may ask for little.
    pub fn of_strangers() -> Self {
        let strangers = Strangers { connections: 6, rate: 200, total_rate: 2000 };
        Self { connections: 32, body: 0, strangers: Some(strangers), ..Self::default() }
    }
}

/// Time for the threads of closed connections to end.
const ENDING: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);
/// Time for the threads of connections to end when the server does.
const FAREWELL: Duration = Duration::from_millis(200);

/// A running control interface. Dropping it stops it and closes its socket.
pub struct Server {
    socket: Arc<dyn AsFd + Send + Sync>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

/// Connections that wait for their peer.
type Streams = VecDeque<Arc<Stream>>;

/// A connection.
struct Stream {
    socket: OwnedFd,
    /// Client that its address belongs to, if it came over a network.
    client: Option<ClientAddress>,
}

struct Shared {
    answer: Box<Answer>,
    limits: Limits,
    /// Connections whose request has not arrived, the oldest first.
    waiting: Mutex<Streams>,
    /// Connections whose response has not been read, the oldest first.
    answered: Mutex<Streams>,
    /// Connections that stay open until their client closes them.
    kept: Mutex<Streams>,
    /// Number of connections in all.
    connections: AtomicUsize,
    /// Connections per second of each address.
    rates: Mutex<Rates>,
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
        let answer = Box::new(answer);
        let [waiting, answered, kept] = [(); 3].map(|()| Mutex::default());
        let connections = AtomicUsize::new(0);
        let rates = Mutex::default();
        let shared = Shared { answer, limits, waiting, answered, kept, connections, rates };
        let shared = Arc::new(shared);
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
        while close_oldest(&mut lock(&self.shared.kept)) {}
        let until = Instant::now() + FAREWELL;
        while Arc::strong_count(&self.shared) > 1 && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn accept(socket: &dyn AsFd, shared: &Arc<Shared>) {
    let rate = shared.limits.strangers.map(|strangers| strangers.total_rate);
    let interval = rate.map_or(Duration::ZERO, |rate| SECOND / rate);
    // Time at which the connections so far have used up their rate.
    let mut due = Instant::now();
    loop {
        match accept_with(socket, SocketFlags::CLOEXEC) {
            Ok(stream) => shared.welcome(stream),
            // The socket was closed.
            Err(Errno::INVAL) => return,
            // For example out of file descriptors: others may be closed soon.
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
        let now = Instant::now();
        due = due.max(now) + interval;
        // Those of a second may come at once.
        thread::sleep((due - now).saturating_sub(SECOND));
    }
}

/// Closes the oldest of some connections; returns true if there is one.
fn close_oldest(streams: &mut Streams) -> bool {
    let oldest = streams.pop_front();
    // It may be closed already.
    oldest.map(|oldest| shutdown(&oldest.socket, Shutdown::Both)).is_some()
}

/// Closes the oldest connection of `client`; returns true if it has one.
fn close_oldest_of(client: ClientAddress, streams: &mut Streams) -> bool {
    let position = streams.iter().position(|stream| stream.client == Some(client));
    let oldest = position.and_then(|position| streams.remove(position));
    oldest.map(|oldest| shutdown(&oldest.socket, Shutdown::Both)).is_some()
}

impl Shared {
    /// Returns true if there is room for a further connection.
    fn makes_room(&self) -> bool {
        let most = self.limits.connections;
        let open = || self.connections.load(Ordering::Relaxed);
        let until = Instant::now() + ENDING;
        while open() >= most {
            // The thread of a connection that is closed here, or was closed before, ends soon, but not at
            // once.
            if open() < 2 * most && close_oldest(&mut lock(&self.answered)) {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Returns true if an address may open a further connection now; closes those that it has too
    /// many of.
    fn admits(&self, client: ClientAddress, bounds: Strangers) -> bool {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        if !rates.admits(client, bounds.rate, Instant::now()) {
            return false;
        }
        let [mut waiting, mut answered] = [&self.waiting, &self.answered].map(lock);
        let is_own = |stream: &&Arc<Stream>| stream.client == Some(client);
        let own = waiting.iter().filter(is_own).count() + answered.iter().filter(is_own).count();
        // A silent one first: the reply of another may be on its way.
        own < bounds.connections
            || close_oldest_of(client, &mut waiting)
            || close_oldest_of(client, &mut answered)
    }

    fn welcome(self: &Arc<Self>, socket: OwnedFd) {
        let client = getpeername(&socket).ok().flatten().and_then(ClientAddress::of);
        let is_admitted = match (client, self.limits.strangers) {
            (Some(client), Some(bounds)) => self.admits(client, bounds),
            _ => true,
        };
        if !is_admitted || !self.makes_room() {
            return;
        }
        self.connections.fetch_add(1, Ordering::Relaxed);
        let stream = Arc::new(Stream { socket, client });
        {
            let mut waiting = lock(&self.waiting);
            if waiting.len() >= self.limits.waiting {
                close_oldest(&mut waiting);
            }
            waiting.push_back(stream.clone());
        }
        let (shared, theirs) = (self.clone(), stream.clone());
        let serve = move || {
            shared.serve(&theirs);
            forget(&shared.answered, &theirs);
            shared.connections.fetch_sub(1, Ordering::Relaxed);
        };
        if thread::Builder::new().name("control".to_owned()).spawn(serve).is_err() {
            // Without a thread the connection is closed.
            forget(&self.waiting, &stream);
            self.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn serve(&self, stream: &Arc<Stream>) {
        let mut peer = Patient::new(&stream.socket, Instant::now() + self.limits.time);
        let request = read_request(&mut peer, self.limits.body).and_then(|request| {
            let user = peer_user(&stream.socket).ok();
            Ok(Request { descriptors: peer.take_descriptors()?, user, ..request })
        });
        forget(&self.waiting, stream);
        let mut response = match (request, failure()) {
            // A dead thread may hold something for which the answer would wait.
            (Ok(_), Some(why)) => Refusal::new(503, format!("about to end: {why}")).into(),
            (Ok(request), None) => (self.answer)(request),
            (Err(RequestError::Refused(refusal)), _) => refusal.into(),
            (Err(RequestError::Gone(_)), _) => return,
        };
        peer.until = Instant::now() + self.limits.time;
        peer.outgoing = response.descriptor.take();
        lock(&self.answered).push_back(stream.clone());
        if response.write(&mut peer).is_ok() {
            if let Some(kept) = response.kept {
                return self.keep(stream, kept);
            }
            // The rest of a refused request must be read, or the reply is lost with the connection.
            let _ = shutdown(&stream.socket, Shutdown::Write);
            let _ = io::copy(&mut peer, &mut io::sink());
        }
    }
}

impl Shared {
    /// Waits until the client closes its connection, then drops `kept`.
    fn keep(&self, stream: &Arc<Stream>, kept: Kept) {
        forget(&self.answered, stream);
        lock(&self.kept).push_back(stream.clone());
        // The client reads to the end of the reply.
        let socket = &stream.socket;
        let _ = shutdown(socket, Shutdown::Write);
        if set_socket_timeout(socket, Timeout::Recv, None).is_ok() {
            while matches!(
                recv(socket, &mut [0; 64], RecvFlags::empty()),
                Ok((1.., _)) | Err(Errno::INTR)
            ) {}
        }
        drop(kept);
        forget(&self.kept, stream);
    }
}

fn lock(streams: &Mutex<Streams>) -> MutexGuard<'_, Streams> {
    streams.lock().unwrap_or_else(PoisonError::into_inner)
}

fn forget(streams: &Mutex<Streams>, stream: &Arc<Stream>) {
    lock(streams).retain(|other| !Arc::ptr_eq(other, stream));
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
                "too many file descriptors came along; at most {DESCRIPTORS_MAX} are allowed"
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
