//! Connections: each has its own thread, a time limit, and one request.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::cmsg_space;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};

use crate::failure::failure;
use crate::http::{
    BODY_MAX, DESCRIPTORS_MAX, Refusal, Request, RequestError, Response, read_request,
};
use crate::socket::ControlSocket;

/// Function that answers requests, called on the threads of connections.
pub type Answer = dyn Fn(Request) -> Response + Send + Sync;

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of connections that have not sent their request. Beyond it the oldest of them
    /// is closed: silent clients do not keep others out.
    pub waiting: usize,
    /// Maximum number of connections in all. Further ones are closed at once: each has a thread.
    pub connections: usize,
    /// Time for a request to arrive, and for its response to be read.
    pub time: Duration,
    /// Maximum length of a request's body, in bytes.
    pub body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { waiting: 16, connections: 64, time: Duration::from_secs(5), body: BODY_MAX }
    }
}

/// A running control interface. Dropping it stops it and removes its socket.
pub struct Server {
    socket: Arc<ControlSocket>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    answer: Box<Answer>,
    limits: Limits,
    /// Connections whose request has not arrived, the oldest first.
    waiting: Mutex<VecDeque<Arc<UnixStream>>>,
    /// Number of connections in all.
    connections: AtomicUsize,
}

impl Server {
    /// Starts a server that answers requests at `socket` with `answer`. The caller binds the socket
    /// before it opens any port, so that a second program at the same socket disturbs nothing.
    pub fn start(
        socket: ControlSocket,
        limits: Limits,
        answer: impl Fn(Request) -> Response + Send + Sync + 'static,
    ) -> Self {
        let socket = Arc::new(socket);
        let answer = Box::new(answer);
        let (waiting, connections) = (Mutex::default(), AtomicUsize::new(0));
        let shared = Arc::new(Shared { answer, limits, waiting, connections });
        let thread = thread::spawn({
            let socket = socket.clone();
            move || accept(&socket, &shared)
        });
        Self { socket, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.socket.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(socket: &ControlSocket, shared: &Arc<Shared>) {
    loop {
        match socket.0.accept() {
            Ok(stream) => shared.welcome(stream),
            // The socket was closed.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            // For example out of file descriptors: others may be closed soon.
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

impl Shared {
    fn welcome(self: &Arc<Self>, stream: UnixStream) {
        if self.connections.fetch_add(1, Ordering::Relaxed) >= self.limits.connections {
            self.connections.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let stream = Arc::new(stream);
        {
            let mut waiting = self.waiting();
            if waiting.len() >= self.limits.waiting
                && let Some(oldest) = waiting.pop_front()
            {
                let _ = oldest.shutdown(Shutdown::Both);
            }
            waiting.push_back(stream.clone());
        }
        let (shared, theirs) = (self.clone(), stream.clone());
        let serve = move || {
            shared.serve(&theirs);
            shared.connections.fetch_sub(1, Ordering::Relaxed);
        };
        if thread::Builder::new().name("control".to_owned()).spawn(serve).is_err() {
            // Without a thread the connection is closed.
            self.forget(&stream);
            self.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Arc<UnixStream>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a connection from the list of those that have not sent their request.
    fn forget(&self, stream: &Arc<UnixStream>) {
        self.waiting().retain(|other| !Arc::ptr_eq(other, stream));
    }

    fn serve(&self, stream: &Arc<UnixStream>) {
        let mut peer = Patient::new(stream, Instant::now() + self.limits.time);
        let request = read_request(&mut peer, self.limits.body)
            .and_then(|request| Ok(Request { descriptors: peer.take_descriptors()?, ..request }));
        self.forget(stream);
        let response = match (request, failure()) {
            // A dead thread may hold something for which the answer would wait.
            (Ok(_), Some(why)) => Refusal::new(503, format!("about to end: {why}")).into(),
            (Ok(request), None) => (self.answer)(request),
            (Err(RequestError::Refused(refusal)), _) => refusal.into(),
            (Err(RequestError::Gone(_)), _) => return,
        };
        peer.until = Instant::now() + self.limits.time;
        if response.write(&mut peer).is_ok() {
            // The rest of a refused request must be read, or the reply is lost with the connection.
            let _ = stream.shutdown(Shutdown::Write);
            let _ = io::copy(&mut peer, &mut io::sink());
        }
    }
}

/// A stream with a deadline for all its reads and writes together.
struct Patient<'a> {
    stream: &'a UnixStream,
    until: Instant,
    /// File descriptors that came with the bytes read so far; closed on drop.
    descriptors: Vec<OwnedFd>,
    /// True if there were more than are allowed; these are closed already.
    too_many: bool,
}

impl<'a> Patient<'a> {
    fn new(stream: &'a UnixStream, until: Instant) -> Self {
        Self { stream, until, descriptors: Vec::new(), too_many: false }
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
        self.stream.set_read_timeout(self.rest()?)?;
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
        self.stream.set_write_timeout(self.rest()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
