//! A port's Unix socket, and the thread that serves it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use dray_daemon::{BoundSocket, SocketName};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::SocketType;
use rustix::process::Pid;
use rustix::thread::{CpuSet, gettid, sched_setaffinity};
use rustix::time::Timespec;

use crate::attention::Attention;
use crate::handed;
use crate::link::{LinkState, LinkStatus};
use crate::scheme::Failed;
use crate::shared_listener::Seat;
use crate::unix;

/// Time that the thread is given to end: it ends at once, unless a peer found a way to hold it up.
const ENDING: Duration = Duration::from_secs(2);

/// Pause before the next peer is tried, after a peer that violated the protocol, one that accepted
/// and disconnected, or a failed connect.
const AGAIN: Duration = Duration::from_millis(50);

/// A port's socket. Dropping it ends its thread and removes the socket.
pub(crate) struct Connection {
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
    /// Where its peers come from, if that is a socket of several ports.
    seat: Option<Arc<Seat>>,
    /// Disconnects when the thread ends.
    ended: Mutex<mpsc::Receiver<()>>,
}

/// State shared by the control thread and the port.
pub(crate) struct Control {
    /// Signalled when a queue was given up, and when the port is closed.
    attention: Arc<Attention>,
    stop: AtomicBool,
    status: Mutex<LinkStatus>,
    /// The control thread's id, once it runs.
    thread: OnceLock<Pid>,
}

/// Origin of peers.
#[derive(Clone, Copy)]
enum Source<'l> {
    /// They connect to this socket.
    Listener(&'l BoundSocket),
    /// They come to this seat.
    Seat(&'l Seat),
    /// The port connects to this socket, of this kind.
    Connects(&'l SocketName, SocketType),
    /// The port connects to the stream socket of this name in a directory that is the peer's.
    Within(BorrowedFd<'l>, &'l Path),
}

/// How the session with a peer ended.
pub(crate) enum End {
    /// The port is being closed.
    Stop,
    /// The peer disconnected.
    Left,
    /// The peer violated the protocol, or refused what is needed.
    Refused(String),
}

/// Why [`Control::wait`] returned.
pub(crate) enum Woken {
    /// There is something to read, or the peer has disconnected.
    Readable,
    /// The data thread, or the thread that closes the port, wants attention.
    Attention,
    /// The time limit expired.
    Timeout,
}

impl Connection {
    /// Accepts peers at `listener`, or without one connects to `name` repeatedly; `converse` handles
    /// the session with each peer. Peers are served one after the other.
    pub(crate) fn open(
        name: &SocketName,
        listener: Option<BoundSocket>,
        attention: Arc<Attention>,
        converse: impl FnMut(UnixStream, &Control) -> End + Send + 'static,
    ) -> Result<Self, Failed> {
        let Some(listener) = listener else {
            return Self::to(name, SocketType::STREAM, attention, converse);
        };
        Self::spawn(attention, move |control| {
            control.serve(Source::Listener(&listener), converse);
        })
    }

    /// Serves the clients that come to `seat`, one after the other.
    pub(crate) fn at(
        seat: Seat,
        attention: Arc<Attention>,
        converse: impl FnMut(UnixStream, &Control) -> End + Send + 'static,
    ) -> Result<Self, Failed> {
        seat.open(&attention).map_err(|error| ("thread", error))?;
        let seat = Arc::new(seat);
        let shared = seat.clone();
        let mut connection = Self::spawn(attention, move |control| {
            control.serve(Source::Seat(&shared), converse);
        })?;
        connection.seat = Some(seat);
        Ok(connection)
    }

    /// Connects to the socket `name` repeatedly. Fails if waiting for it would not help.
    fn to(
        name: &SocketName,
        kind: SocketType,
        attention: Arc<Attention>,
        converse: impl FnMut(UnixStream, &Control) -> End + Send + 'static,
    ) -> Result<Self, Failed> {
        let name = name.clone();
        let (first, why) = match unix::connect(&name, kind) {
            Ok(stream) => (Some(stream), None),
            Err(error) => match unix::why_unreachable(&name, error) {
                Ok(why) => (None, Some(why)),
                Err(error) => return Err(("connect", error)),
            },
        };
        Self::spawn(attention, move |control| {
            control.change(|status| status.unreachable = why);
            let mut converse = converse;
            if let Some(stream) = first {
                control.serve_one(stream, &mut converse);
                control.pause();
            }
            control.serve(Source::Connects(&name, kind), converse);
        })
    }

    /// Connects repeatedly to the stream socket `name` in `directory`.
    pub(crate) fn within(
        directory: OwnedFd,
        name: PathBuf,
        attention: Arc<Attention>,
        converse: impl FnMut(UnixStream, &Control) -> End + Send + 'static,
    ) -> Result<Self, Failed> {
        Self::spawn(attention, move |control| {
            control.serve(Source::Within(directory.as_fd(), &name), converse);
        })
    }

    /// Connects to the packet socket `name` repeatedly; `converse` handles the session with each
    /// peer.
    pub(crate) fn by_packets(
        name: &SocketName,
        attention: Arc<Attention>,
        converse: impl FnMut(UnixStream, &Control) -> End + Send + 'static,
    ) -> Result<Self, Failed> {
        Self::to(name, SocketType::SEQPACKET, attention, converse)
    }

    /// Serves the peers at the other ends of `streams`, one after the other.
    pub(crate) fn over(
        streams: Vec<UnixStream>,
        attention: Arc<Attention>,
        mut converse: impl FnMut(UnixStream, &Control) -> End + Send + 'static,
    ) -> Result<Self, Failed> {
        Self::spawn(attention, move |control| {
            for stream in streams {
                if control.is_stopping() {
                    break;
                }
                control.serve_one(stream, &mut converse);
            }
        })
    }

    fn spawn<T>(
        attention: Arc<Attention>,
        serve: impl FnOnce(&Control) -> T + Send + 'static,
    ) -> Result<Self, Failed> {
        let control = Arc::new(Control {
            attention,
            stop: AtomicBool::new(false),
            status: Mutex::default(),
            thread: OnceLock::new(),
        });
        let shared = control.clone();
        let (ends, ended) = mpsc::channel();
        let (running, runs) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("dray-control".to_owned())
            .spawn(move || {
                let _ = shared.thread.set(gettid());
                drop(running);
                serve(&shared);
                drop::<mpsc::Sender<()>>(ends);
            })
            .map_err(|error| ("thread", error))?;
        // Nothing is sent: the channel disconnects.
        let _ = runs.recv();
        Ok(Self { control, thread: Some(thread), seat: None, ended: Mutex::new(ended) })
    }

    pub(crate) fn status(&self) -> LinkStatus {
        self.control.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Moves the control thread, and that of a socket of several ports, to `cpus`, if that is
    /// permitted.
    pub(crate) fn move_control(&self, cpus: &CpuSet) {
        self.seat.iter().for_each(|seat| seat.move_thread(cpus));
        let _ = sched_setaffinity(self.control.thread.get().copied(), cpus);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.control.stop.store(true, Ordering::Release);
        self.control.attention.signal();
        // Closing a file that a peer passed can take as long as the peer likes, if its file system
        // is the peer's own. The thread that closes the port does not wait for that; the control
        // thread owns all that it needs.
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let held_up = ended.recv_timeout(ENDING) == Err(mpsc::RecvTimeoutError::Timeout);
        if let Some(thread) = self.thread.take().filter(|_| !held_up) {
            // The thread ends only by itself or by a panic, which has been reported.
            let _ = thread.join();
        }
    }
}

impl Control {
    fn serve(&self, source: Source<'_>, mut converse: impl FnMut(UnixStream, &Self) -> End) {
        while !self.is_stopping() {
            let Some(stream) = self.next_peer(source) else { continue };
            match (self.serve_one(stream, &mut converse), source) {
                // A peer that disconnects at once would be reconnected to in a busy loop.
                (End::Refused(_), _) | (End::Left, Source::Connects(..) | Source::Within(..)) => {
                    self.pause();
                }
                (End::Left | End::Stop, _) => {}
            }
            if let Source::Seat(seat) = source {
                seat.done();
            }
        }
    }

    fn serve_one(
        &self,
        stream: UnixStream,
        converse: &mut impl FnMut(UnixStream, &Self) -> End,
    ) -> End {
        self.change(|status| {
            status.state = LinkState::Connected;
            status.unreachable = None;
        });
        let end = converse(stream, self);
        self.change(|status| {
            status.state = LinkState::Waiting;
            status.features.clear();
            match &end {
                End::Stop => {}
                End::Left => status.ended("the peer disconnected"),
                End::Refused(why) => status.ended(why),
            }
        });
        end
    }

    fn next_peer(&self, source: Source<'_>) -> Option<UnixStream> {
        let failed = match source {
            Source::Listener(listener) => match self.wait(Some(listener.as_fd()), None) {
                Woken::Readable => match listener.accept() {
                    Ok(stream) => return Some(stream),
                    Err(error) => format!("accepting a peer: {error}"),
                },
                Woken::Attention | Woken::Timeout => return None,
            },
            Source::Seat(seat) => {
                let client = seat.client();
                if client.is_none() {
                    self.wait(None, None);
                }
                return client;
            }
            Source::Within(directory, name) => {
                match handed::connect_within(directory, name, SocketType::STREAM) {
                    Ok(stream) => return Some(stream),
                    Err(error) => error.to_string(),
                }
            }
            Source::Connects(name, kind) => match unix::connect(name, kind) {
                Ok(stream) => return Some(stream),
                // The cause of a permanent error may be removed while the port is open.
                Err(error) => {
                    unix::why_unreachable(name, error).unwrap_or_else(|error| error.to_string())
                }
            },
        };
        self.change(|status| status.unreachable = Some(failed));
        self.pause();
        None
    }

    fn pause(&self) {
        self.wait(None, Some(AGAIN));
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut LinkStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits until `fd` is readable, or for attention. Sends the signals that data threads left to
    /// the control thread.
    pub(crate) fn wait(&self, fd: Option<BorrowedFd<'_>>, limit: Option<Duration>) -> Woken {
        let rest = self.attention.deliver();
        let rests = rest.is_some_and(|rest| limit.is_none_or(|limit| rest < limit));
        let limit = if rests { rest } else { limit };
        let limit = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: limit.subsec_nanos().into(),
        });
        let mut fds = vec![PollFd::new(&*self.attention, PollFlags::IN)];
        if let Some(fd) = fd {
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        if !matches!(poll(&mut fds, limit.as_ref()), Ok(1..)) {
            return if rests { Woken::Attention } else { Woken::Timeout };
        }
        if !fds[0].revents().is_empty() {
            self.attention.clear();
            return Woken::Attention;
        }
        Woken::Readable
    }
}
