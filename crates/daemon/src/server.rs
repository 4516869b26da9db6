//! Connections: each has a thread of its own, a time limit, and one request.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::http::{BODY_MAX, Request, RequestError, Response, read_request};
use crate::socket::ControlSocket;

/// What answers requests, on the threads of connections.
pub type Answer = dyn Fn(&Request) -> Response + Send + Sync;

/// What connections may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// So many may be about to send their request. One more, and the oldest of them is closed: who
    /// says nothing does not keep others out.
    pub connections: usize,
    /// So long may a request take to come, and its answer to go.
    pub time: Duration,
    /// So many bytes may the body of a request have.
    pub body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 16, time: Duration::from_secs(5), body: BODY_MAX }
    }
}

/// The control interface, running. It ends, and its socket goes, when this is dropped.
pub struct Server {
    socket: Arc<ControlSocket>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    answer: Box<Answer>,
    limits: Limits,
    /// Connections whose request has not come yet, the oldest first.
    waiting: Mutex<VecDeque<Arc<UnixStream>>>,
}

impl Server {
    /// Lets `answer` answer what comes to `socket`, which was made beforehand: before any port was
    /// opened, so that a second program at the same socket disturbs nothing.
    pub fn start(
        socket: ControlSocket,
        limits: Limits,
        answer: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> Self {
        let socket = Arc::new(socket);
        let answer = Box::new(answer);
        let shared = Arc::new(Shared { answer, limits, waiting: Mutex::default() });
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
        match socket.listener.accept() {
            Ok((stream, _)) => shared.welcome(stream),
            // Closed.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            // Out of file descriptors, for example: others may be given back.
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

impl Shared {
    fn welcome(self: &Arc<Self>, stream: UnixStream) {
        let stream = Arc::new(stream);
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.len() >= self.limits.connections
                && let Some(oldest) = waiting.pop_front()
            {
                let _ = oldest.shutdown(Shutdown::Both);
            }
            waiting.push_back(stream.clone());
        }
        let shared = self.clone();
        // Without a thread the connection is closed, which says as much.
        let _ =
            thread::Builder::new().name("control".to_owned()).spawn(move || shared.serve(&stream));
    }

    fn serve(&self, stream: &Arc<UnixStream>) {
        let mut peer = Patient { stream, until: Instant::now() + self.limits.time };
        let request = read_request(&mut peer, self.limits.body);
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|other| !Arc::ptr_eq(other, stream));
        let response = match request {
            Ok(request) => (self.answer)(&request),
            Err(RequestError::Refused(refusal)) => refusal.into(),
            Err(RequestError::Gone(_)) => return,
        };
        peer.until = Instant::now() + self.limits.time;
        if response.write(&mut peer).is_ok() {
            // What a refused request still sends must be read, or the answer is lost with it.
            let _ = stream.shutdown(Shutdown::Write);
            let _ = io::copy(&mut peer, &mut io::sink());
        }
    }
}

/// A stream that is given so much time in all, however little it does at once.
struct Patient<'a> {
    stream: &'a UnixStream,
    until: Instant,
}

impl Patient<'_> {
    fn rest(&self) -> io::Result<Option<Duration>> {
        let rest = self.until.saturating_duration_since(Instant::now());
        if rest.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(rest)) }
    }
}

impl Read for Patient<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.rest()?)?;
        self.stream.read(bytes)
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
