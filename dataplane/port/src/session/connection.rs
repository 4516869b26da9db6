//! A port's Unix socket, and the thread that serves it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{Shutdown, SocketType, shutdown};
use rustix::thread::CpuSet;
use rustix::time::Timespec;

use crate::lock::lock;
use crate::session::peers::{PeerSource, Peers};
use crate::session::queue_progress::QueueProgress;
use crate::session::snapshot::{Frozen, Parts, PortSnapshot, SessionMessages};
use crate::session::status::{LinkState, LinkStatus};
use crate::session::thread::ControlThread;
use crate::session::unix;
use crate::signal::control_wake::ControlWake;
use crate::uri::failed::Failed;

/// Pause before the next peer, after a peer that violated the protocol, one that accepted and
/// disconnected, or a failed connect.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// A port's socket. Dropping it ends its thread and removes the socket.
pub(crate) struct Connection {
    control: Arc<Control>,
    thread: ControlThread,
}

type Callback = Box<dyn Fn() + Send + Sync>;

/// State shared by the control thread and the port.
pub(crate) struct Control {
    /// Signalled when a queue has failed, and when the port is closed.
    wake: Arc<ControlWake>,
    stop: AtomicBool,
    status: Mutex<LinkStatus>,
    /// The connection to the peer. The control thread holds the lock while it accepts a peer or
    /// handles a message: while another thread holds it, nothing changes.
    peer: Mutex<Option<OwnedFd>>,
    source: Option<PeerSource>,
    /// True if this process has bound the socket of the source itself.
    owns_source: bool,
    /// Counts changes that invalidate a snapshot of the port.
    progress: OnceLock<Arc<QueueProgress>>,
    /// Called after each such change.
    on_change: OnceLock<Callback>,
    /// Called when a peer has left.
    on_end: OnceLock<Callback>,
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
    /// Data is available, or the peer has disconnected.
    Readable,
    /// The data thread, or the thread that closes the port, has woken the control thread.
    ControlWake,
    /// The time limit expired.
    Timeout,
}

impl Connection {
    /// Serves `peers`, one after the other; `session` handles the session with each.
    pub(crate) fn new(
        peers: Peers,
        wake: Arc<ControlWake>,
        session: impl FnMut(UnixStream, &Control) -> End + Send + 'static,
    ) -> Result<Self, Failed> {
        let Peers { source, first, status } = peers;
        if let Some(PeerSource::Shared(membership)) = &source {
            membership.open(&wake, !first.is_empty()).map_err(|error| ("thread", error))?;
        }
        let control = Arc::new(Control {
            wake,
            stop: AtomicBool::new(false),
            status: Mutex::new(status),
            peer: Mutex::default(),
            owns_source: source.as_ref().is_some_and(PeerSource::is_own),
            source,
            progress: OnceLock::new(),
            on_change: OnceLock::new(),
            on_end: OnceLock::new(),
        });
        let shared = control.clone();
        let thread = ControlThread::spawn(move || shared.serve(first, session));
        Ok(Self { control, thread: thread.map_err(|error| ("thread", error))? })
    }

    /// Pauses the control thread before it accepts a peer or reads a message, and takes a snapshot.
    /// `messages` returns those of the present session; `None` if it does.
    pub(crate) fn freeze(
        &self,
        timeout: Duration,
        messages: impl FnOnce() -> Option<io::Result<SessionMessages>>,
    ) -> io::Result<Option<Frozen<'_>>> {
        let control = &self.control;
        let gate = control.gate_within(timeout)?;
        let peer = gate.as_ref().map(OwnedFd::try_clone).transpose()?;
        let Some(messages) = messages().transpose()? else { return Ok(None) };
        // Without a peer, they belong to a session that has just ended.
        let messages = peer.as_ref().map(|_| messages).unwrap_or_default();
        let origin = control.source.as_ref().and_then(PeerSource::descriptor);
        let origin = origin.map(|origin| origin.try_clone_to_owned()).transpose()?;
        let (own, past) = (control.owns_source, self.status());
        let progress = control.progress.get();
        let changes = progress.map_or(0, |progress| progress.changes());
        let progress =
            progress.map(|progress| progress.as_fd().try_clone_to_owned()).transpose()?;
        let parts = Parts { origin, own, peer, progress, changes, messages, past };
        Ok(Some(Frozen { snapshot: PortSnapshot::of_peer(parts), _gate: gate }))
    }

    /// Counts changes that invalidate a snapshot in `progress` from now on.
    pub(crate) fn publish_progress(&self, progress: Arc<QueueProgress>) {
        // A connection has one port.
        let _ = self.control.progress.set(progress);
    }

    /// Registers `notify`, which is called after each change that invalidates a snapshot.
    pub(crate) fn on_change(&self, notify: Box<dyn Fn() + Send + Sync>) {
        // A connection has one port.
        let _ = self.control.on_change.set(notify);
    }

    /// Registers `notify`, which is called when a peer has left, before the next one is accepted.
    pub(crate) fn on_end(&self, notify: Box<dyn Fn() + Send + Sync>) {
        // A connection has one port.
        let _ = self.control.on_end.set(notify);
    }

    pub(crate) fn status(&self) -> LinkStatus {
        lock(&self.control.status).clone()
    }

    /// Moves the control thread, and that of a socket of several ports, to `cpus`, if that is
    /// permitted.
    pub(crate) fn move_control(&self, cpus: &CpuSet) {
        if let Some(PeerSource::Shared(membership)) = &self.control.source {
            membership.move_thread(cpus);
        }
        self.thread.move_to(cpus);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.control.stop.store(true, Ordering::Release);
        self.control.wake.signal();
    }
}

impl Control {
    fn serve(&self, first: Vec<UnixStream>, mut session: impl FnMut(UnixStream, &Self) -> End) {
        let mut first = first.into_iter();
        while !self.is_stopping() {
            let stream = match (first.next(), &self.source) {
                (Some(stream), _) => self.admit(stream),
                (None, Some(source)) => match self.next_peer(source) {
                    Some(stream) => stream,
                    None => continue,
                },
                (None, None) => break,
            };
            let end = self.serve_one(stream, &mut session);
            match (end, &self.source) {
                // Without a pause, a peer that disconnects at once would cause a busy loop.
                (End::Refused(_), Some(_))
                | (End::Left, Some(PeerSource::Socket(..) | PeerSource::Place(_))) => self.pause(),
                _ => {}
            }
            if let Some(PeerSource::Shared(membership)) = &self.source {
                membership.done();
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
            self.on_end.get().into_iter().for_each(|notify| notify());
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

    fn next_peer(&self, source: &PeerSource) -> Option<UnixStream> {
        let failed = match source {
            PeerSource::Listener(listener) => match self.wait(Some(listener.as_fd()), None) {
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
            PeerSource::Shared(membership) => {
                let client = membership.client();
                if client.is_none() {
                    self.wait(None, None);
                }
                return client.map(|client| self.admit(client));
            }
            PeerSource::Place(place) => match unix::connect_at(place, SocketType::STREAM) {
                Ok(stream) => return Some(self.admit(stream)),
                Err(error) => error.to_string(),
            },
            PeerSource::Socket(name, kind) => match unix::connect(name, *kind) {
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
        self.wait(None, Some(RETRY_PAUSE));
    }

    /// Locks the gate, which keeps the control thread from accepting a peer or handling a message.
    /// The control thread holds the gate while it does so, and never while it waits.
    pub(crate) fn gate(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        lock(&self.peer)
    }

    /// Like [`gate`](Self::gate), with a time limit, for a caller that the peer must not block: the
    /// control thread may be closing a file for as long as the peer likes.
    fn gate_within(&self, timeout: Duration) -> io::Result<MutexGuard<'_, Option<OwnedFd>>> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.peer.try_lock() {
                Ok(gate) => return Ok(gate),
                Err(TryLockError::Poisoned(gate)) => return Ok(gate.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_micros(100));
                }
                Err(TryLockError::WouldBlock) => {
                    let what = format!("its peer has kept it busy for {timeout:?}");
                    return Err(io::Error::new(io::ErrorKind::TimedOut, what));
                }
            }
        }
    }

    /// Stores a descriptor of the connection to a peer. If there is none left, no other process can
    /// continue the session.
    fn admit(&self, stream: UnixStream) -> UnixStream {
        *self.gate() = stream.try_clone().ok().map(OwnedFd::from);
        stream
    }

    /// Counts a change that invalidates snapshots. If a message causes it, this is called before
    /// the message takes effect, with the gate locked.
    pub(crate) fn changes(&self) {
        self.progress.get().into_iter().for_each(|progress| progress.change());
        self.on_change.get().into_iter().for_each(|notify| notify());
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut LinkStatus)) {
        change(&mut lock(&self.status));
    }

    /// Waits until `fd` is readable, or the control thread is woken. Sends signals that data
    /// threads have delegated to the control thread.
    pub(crate) fn wait(&self, fd: Option<BorrowedFd<'_>>, limit: Option<Duration>) -> Woken {
        let rest = self.wake.deliver();
        let rests = rest.is_some_and(|rest| limit.is_none_or(|limit| rest < limit));
        let limit = if rests { rest } else { limit };
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
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
