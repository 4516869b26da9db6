//! A port's Unix socket, and the thread that serves it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dray_socket::{BoundSocket, Place, SocketName};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{Shutdown, SocketType, shutdown};
use rustix::process::Pid;
use rustix::thread::{CpuSet, gettid, sched_setaffinity};
use rustix::time::Timespec;

use crate::session::passed::PassedFd;
use crate::session::queue_progress::QueueProgress;
use crate::session::shared_listener::Seat;
use crate::session::snapshot::{Frozen, Parts, PortSnapshot, SessionMessages};
use crate::session::status::{LinkState, LinkStatus};
use crate::session::unix;
use crate::signal::control_wake::ControlWake;
use crate::uri::failed::{Failed, refused};

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
    wake: Arc<ControlWake>,
    stop: AtomicBool,
    status: Mutex<LinkStatus>,
    /// The connection to the peer. The control thread holds the lock while it accepts a peer or handles
    /// a message, so whoever else holds it knows that nothing changes.
    peer: Mutex<Option<OwnedFd>>,
    /// Source of peers: a socket that listens, or a directory.
    origin: Option<OwnedFd>,
    /// True if this process has bound that socket itself.
    owns_origin: bool,
    /// The control thread's id, once it runs.
    thread: OnceLock<Pid>,
    /// Counts what makes a description of the port invalid.
    progress: OnceLock<Arc<QueueProgress>>,
    /// Called after each such change.
    tell: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Called when a peer has left.
    forget: OnceLock<Box<dyn Fn() + Send + Sync>>,
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
    Within(&'l Place),
}

/// Descriptor of the origin of peers.
#[derive(Clone, Copy)]
enum Origin<'l> {
    None,
    Listener(&'l BoundSocket),
    Directory(BorrowedFd<'l>),
    Seat(&'l Seat),
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
    /// The data thread, or the thread that closes the port, has woken the control thread.
    ControlWake,
    /// The time limit expired.
    Timeout,
}

impl Connection {
    /// Accepts peers at `listener`, or without one connects to `name` repeatedly; `session` handles
    /// the session with each peer. Peers are served one after the other.
    pub(crate) fn open(
        name: &SocketName,
        listener: Option<BoundSocket>,
        wake: Arc<ControlWake>,
        session: impl FnMut(UnixStream, &Control) -> End + Send + 'static,
    ) -> Result<Self, Failed> {
        let Some(listener) = listener else {
            return Self::to(name, SocketType::STREAM, wake, session);
        };
        Self::listening(listener, None, wake, session)
    }

    /// Continues the session with `peer`, and then accepts others at `listener`.
    fn listening(
        listener: BoundSocket,
        peer: Option<UnixStream>,
        wake: Arc<ControlWake>,
        mut session: impl FnMut(UnixStream, &Control) -> End + Send + 'static,
    ) -> Result<Self, Failed> {
        // The thread owns the listener, and has its descriptor's duplicate at hand before it runs.
        let listener = Arc::new(listener);
        let origin = listener.clone();
        Self::spawn(wake, Origin::Listener(&origin), move |control| {
            if let Some(peer) = peer {
                control.serve_one(control.admit(peer), &mut session);
            }
            control.serve(Source::Listener(&listener), session);
        })
    }

    /// Continues the session that another process has begun with `peer`, if there is one. Later peers
    /// come from `origin`, or, if the port connects to them, from the socket `name`.
    pub(crate) fn resume(
        name: &SocketName,
        origin: Option<PassedFd>,
        peer: Option<UnixStream>,
        wake: Arc<ControlWake>,
        mut session: impl FnMut(UnixStream, &Control) -> End + Send + 'static,
    ) -> Result<Self, Failed> {
        match origin {
            Some(PassedFd::Listener(listener)) => Self::listening(listener, peer, wake, session),
            Some(PassedFd::Directory(directory)) => {
                let file = name.path().and_then(Path::file_name).unwrap_or_default();
                Self::within(directory, file, peer, wake, session)
            }
            Some(PassedFd::Connected(_)) => Err(refused("it is connected".to_owned())),
            None => {
                let name = name.clone();
                Self::spawn(wake, Origin::None, move |control| {
                    if let Some(peer) = peer {
                        control.serve_one(control.admit(peer), &mut session);
                        control.pause();
                    }
                    control.serve(Source::Connects(&name, SocketType::STREAM), session);
                })
            }
        }
    }

    /// Continues the session with `client`, and then serves those that come to `seat`, one after the
    /// other.
    pub(crate) fn at(
        seat: Seat,
        client: Option<UnixStream>,
        wake: Arc<ControlWake>,
        mut session: impl FnMut(UnixStream, &Control) -> End + Send + 'static,
    ) -> Result<Self, Failed> {
        if client.is_some() {
            seat.occupy();
        }
        seat.open(&wake).map_err(|error| ("thread", error))?;
        let seat = Arc::new(seat);
        let shared = seat.clone();
        let mut connection = Self::spawn(wake, Origin::Seat(&seat), move |control| {
            if let Some(client) = client {
                control.serve_one(control.admit(client), &mut session);
                shared.done();
            }
            control.serve(Source::Seat(&shared), session);
        })?;
        connection.seat = Some(seat);
        Ok(connection)
    }

    /// Connects to the socket `name` repeatedly. Fails if waiting for it would not help.
    fn to(
        name: &SocketName,
        kind: SocketType,
        wake: Arc<ControlWake>,
        session: impl FnMut(UnixStream, &Control) -> End + Send + 'static,
    ) -> Result<Self, Failed> {
        let name = name.clone();
        let (first, why) = match unix::connect(&name, kind) {
            Ok(stream) => (Some(stream), None),
            Err(error) => match unix::why_unreachable(&name, error) {
                Ok(why) => (None, Some(why)),
                Err(error) => return Err(("connect", error)),
            },
        };
        Self::spawn(wake, Origin::None, move |control| {
            control.change(|status| status.unreachable = why);
            let mut session = session;
            if let Some(stream) = first {
                control.serve_one(control.admit(stream), &mut session);
                control.pause();
            }
            control.serve(Source::Connects(&name, kind), session);
        })
    }

    /// Connects repeatedly to the stream socket `name` in `directory`, once `peer` has gone.
    pub(crate) fn within(
        directory: OwnedFd,
        name: &OsStr,
        peer: Option<UnixStream>,
        wake: Arc<ControlWake>,
        mut session: impl FnMut(UnixStream, &Control) -> End + Send + 'static,
    ) -> Result<Self, Failed> {
        let origin = directory.try_clone().map_err(|error| ("directory", error))?;
        let place = Place::within(directory, name).map_err(|error| ("directory", error))?;
        Self::spawn(wake, Origin::Directory(origin.as_fd()), move |control| {
            if let Some(peer) = peer {
                control.serve_one(control.admit(peer), &mut session);
                control.pause();
            }
            control.serve(Source::Within(&place), session);
        })
    }

    /// Connects to the packet socket `name` repeatedly; `session` handles the session with each
    /// peer.
    pub(crate) fn by_packets(
        name: &SocketName,
        wake: Arc<ControlWake>,
        session: impl FnMut(UnixStream, &Control) -> End + Send + 'static,
    ) -> Result<Self, Failed> {
        Self::to(name, SocketType::SEQPACKET, wake, session)
    }

    /// Serves the peers at the other ends of `streams`, one after the other.
    pub(crate) fn over(
        streams: Vec<UnixStream>,
        wake: Arc<ControlWake>,
        mut session: impl FnMut(UnixStream, &Control) -> End + Send + 'static,
    ) -> Result<Self, Failed> {
        Self::spawn(wake, Origin::None, move |control| {
            for stream in streams {
                if control.is_stopping() {
                    break;
                }
                control.serve_one(control.admit(stream), &mut session);
            }
        })
    }

    fn spawn<T>(
        wake: Arc<ControlWake>,
        origin: Origin<'_>,
        serve: impl FnOnce(&Control) -> T + Send + 'static,
    ) -> Result<Self, Failed> {
        let (origin, owns_origin) = match origin {
            Origin::None => (None, false),
            Origin::Listener(listener) => {
                (Some(listener.as_fd()), listener.file.is_some() || listener.name.is_some())
            }
            Origin::Directory(directory) => (Some(directory), false),
            Origin::Seat(seat) => (Some(seat.socket()), seat.is_own()),
        };
        let origin = origin.as_ref().map(BorrowedFd::try_clone_to_owned).transpose();
        let control = Arc::new(Control {
            wake,
            stop: AtomicBool::new(false),
            status: Mutex::default(),
            peer: Mutex::default(),
            origin: origin.map_err(|error| ("socket", error))?,
            owns_origin,
            thread: OnceLock::new(),
            progress: OnceLock::new(),
            tell: OnceLock::new(),
            forget: OnceLock::new(),
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

    /// Stops the control thread, before it accepts a peer or reads a message. `said` returns what the
    /// peer has said so far. `None` if `said` returns that.
    pub(crate) fn freeze(
        &self,
        patience: Duration,
        said: impl FnOnce() -> Option<io::Result<SessionMessages>>,
    ) -> io::Result<Option<Frozen<'_>>> {
        let control = &self.control;
        let gate = control.patient_gate(patience)?;
        let peer = gate.as_ref().map(OwnedFd::try_clone).transpose()?;
        let Some(conversation) = said().transpose()? else { return Ok(None) };
        // Of a session that has just ended.
        let conversation = peer.as_ref().map(|_| conversation).unwrap_or_default();
        let origin = control.origin.as_ref().map(OwnedFd::try_clone).transpose()?;
        let (own, past) = (control.owns_origin, self.status());
        let progress = control.progress.get();
        let changes = progress.map_or(0, |progress| progress.changes());
        let progress =
            progress.map(|progress| progress.as_fd().try_clone_to_owned()).transpose()?;
        let live = PortSnapshot::of_peer(Parts {
            origin,
            own,
            peer,
            progress,
            changes,
            conversation,
            past,
        });
        Ok(Some(Frozen { live, _gate: gate }))
    }

    /// Counts changes of what [`freeze`](Self::freeze) describes from now on.
    pub(crate) fn publish_progress(&self, progress: Arc<QueueProgress>) {
        // A connection has one port.
        let _ = self.control.progress.set(progress);
    }

    /// Registers `tell`, which is called after each such change.
    pub(crate) fn on_change(&self, tell: Box<dyn Fn() + Send + Sync>) {
        // A connection has one port.
        let _ = self.control.tell.set(tell);
    }

    /// Registers `forget`, which is called when a peer has left, before the next one is accepted.
    pub(crate) fn on_end(&self, forget: Box<dyn Fn() + Send + Sync>) {
        // A connection has one port.
        let _ = self.control.forget.set(forget);
    }

    /// Sets what is known of the peers before.
    pub(crate) fn remember(&self, past: LinkStatus) {
        let LinkStatus { ends, last_end, .. } = past;
        self.control.change(|status| (status.ends, status.last_end) = (ends, last_end));
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
        self.control.wake.signal();
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
    fn serve(&self, source: Source<'_>, mut session: impl FnMut(UnixStream, &Self) -> End) {
        while !self.is_stopping() {
            let Some(stream) = self.next_peer(source) else { continue };
            match (self.serve_one(stream, &mut session), source) {
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
        session: &mut impl FnMut(UnixStream, &Self) -> End,
    ) -> End {
        self.change(|status| {
            status.state = LinkState::Connected;
            status.unreachable = None;
        });
        self.changes();
        let end = session(stream, self);
        let peer = self.gate().take();
        self.changes();
        if !matches!(end, End::Stop) {
            self.forget.get().into_iter().for_each(|forget| forget());
        }
        if let (Some(peer), End::Left | End::Refused(_), false) =
            (&peer, &end, dray_socket::borrows_files())
        {
            // Another process may have duplicates of the connection.
            let _ = shutdown(peer, Shutdown::Both);
        }
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
                Woken::Readable => {
                    let mut peer = self.gate();
                    let accepted = listener.accept();
                    match accepted.and_then(|stream| Ok((stream.try_clone()?, stream))) {
                        Ok((copy, stream)) => {
                            *peer = Some(copy.into());
                            return Some(stream);
                        }
                        Err(error) => format!("accepting a peer: {error}"),
                    }
                }
                Woken::ControlWake | Woken::Timeout => return None,
            },
            Source::Seat(seat) => {
                let client = seat.client();
                if client.is_none() {
                    self.wait(None, None);
                }
                return client.map(|client| self.admit(client));
            }
            Source::Within(place) => match unix::connect_at(place, SocketType::STREAM) {
                Ok(stream) => return Some(self.admit(stream)),
                Err(error) => error.to_string(),
            },
            Source::Connects(name, kind) => match unix::connect(name, kind) {
                Ok(stream) => return Some(self.admit(stream)),
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

    /// Keeps the control thread from accepting a peer and from handling a message. The control thread
    /// itself holds it meanwhile, and never while it waits.
    pub(crate) fn gate(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.peer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`gate`](Self::gate), for a caller that the peer must not hold up: it could make the control
    /// thread close a file that takes long.
    fn patient_gate(&self, patience: Duration) -> io::Result<MutexGuard<'_, Option<OwnedFd>>> {
        let deadline = Instant::now() + patience;
        loop {
            match self.peer.try_lock() {
                Ok(gate) => return Ok(gate),
                Err(TryLockError::Poisoned(gate)) => return Ok(gate.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_micros(100));
                }
                Err(TryLockError::WouldBlock) => {
                    let what = format!("its peer has kept it busy for {patience:?}");
                    return Err(io::Error::new(io::ErrorKind::TimedOut, what));
                }
            }
        }
    }

    /// Notes the connection to a peer. If there is no descriptor for that, no other process can
    /// continue its session.
    fn admit(&self, stream: UnixStream) -> UnixStream {
        *self.gate() = stream.try_clone().ok().map(OwnedFd::from);
        stream
    }

    /// Counts a change of what a description of the port says. If a message causes it, this is called
    /// before the message takes effect, with the gate held.
    pub(crate) fn changes(&self) {
        self.progress.get().into_iter().for_each(|progress| progress.change());
        self.tell.get().into_iter().for_each(|tell| tell());
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut LinkStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits until `fd` is readable, or the control thread is woken. Sends the signals that data threads left to
    /// the control thread.
    pub(crate) fn wait(&self, fd: Option<BorrowedFd<'_>>, limit: Option<Duration>) -> Woken {
        let rest = self.wake.deliver();
        let rests = rest.is_some_and(|rest| limit.is_none_or(|limit| rest < limit));
        let limit = if rests { rest } else { limit };
        let limit = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: limit.subsec_nanos().into(),
        });
        let mut fds = vec![PollFd::new(&*self.wake, PollFlags::IN)];
        if let Some(fd) = fd {
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        if !matches!(poll(&mut fds, limit.as_ref()), Ok(1..)) {
            return if rests { Woken::ControlWake } else { Woken::Timeout };
        }
        if !fds[0].revents().is_empty() {
            self.wake.clear();
            return Woken::ControlWake;
        }
        Woken::Readable
    }
}
