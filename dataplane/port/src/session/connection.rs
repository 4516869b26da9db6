//! A port's Unix socket, and the thread that serves it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{Shutdown, SocketType, shutdown};
use rustix::process::Pid;
use rustix::thread::{CpuSet, gettid, sched_setaffinity};
use rustix::time::Timespec;

use crate::session::peers::{PeerSource, Peers};
use crate::session::queue_progress::QueueProgress;
use crate::session::snapshot::{Frozen, Parts, PortSnapshot, SessionMessages};
use crate::session::status::{LinkState, LinkStatus};
use crate::session::unix;
use crate::signal::control_wake::ControlWake;
use crate::uri::failed::Failed;

/// Time that the thread is given to end: it ends at once, unless a peer found a way to hold it up.
const ENDING: Duration = Duration::from_secs(2);

/// Pause before the next peer is tried, after a peer that violated the protocol, one that accepted
/// and disconnected, or a failed connect.
const AGAIN: Duration = Duration::from_millis(50);

/// A port's socket. Dropping it ends its thread and removes the socket.
pub(crate) struct Connection {
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
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
    source: Option<PeerSource>,
    /// True if this process has bound the socket of the source itself.
    owns_source: bool,
    /// The control thread's id, once it runs.
    thread: OnceLock<Pid>,
    /// Counts what makes a description of the port invalid.
    progress: OnceLock<Arc<QueueProgress>>,
    /// Called after each change of what a description of the port says.
    notify: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Called when a peer has left.
    forget: OnceLock<Box<dyn Fn() + Send + Sync>>,
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
            thread: OnceLock::new(),
            progress: OnceLock::new(),
            notify: OnceLock::new(),
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
                shared.serve(first, session);
                drop::<mpsc::Sender<()>>(ends);
            })
            .map_err(|error| ("thread", error))?;
        // Nothing is sent: the channel disconnects.
        let _ = runs.recv();
        Ok(Self { control, thread: Some(thread), ended: Mutex::new(ended) })
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
        let origin = control.source.as_ref().and_then(PeerSource::descriptor);
        let origin = origin.map(|origin| origin.try_clone_to_owned()).transpose()?;
        let (own, past) = (control.owns_source, self.status());
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

    /// Registers `notify`, which is called after each change of what [`freeze`](Self::freeze) describes.
    pub(crate) fn on_change(&self, notify: Box<dyn Fn() + Send + Sync>) {
        // A connection has one port.
        let _ = self.control.notify.set(notify);
    }

    /// Registers `forget`, which is called when a peer has left, before the next one is accepted.
    pub(crate) fn on_end(&self, forget: Box<dyn Fn() + Send + Sync>) {
        // A connection has one port.
        let _ = self.control.forget.set(forget);
    }

    pub(crate) fn status(&self) -> LinkStatus {
        self.control.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Moves the control thread, and that of a socket of several ports, to `cpus`, if that is
    /// permitted.
    pub(crate) fn move_control(&self, cpus: &CpuSet) {
        if let Some(PeerSource::Shared(membership)) = &self.control.source {
            membership.move_thread(cpus);
        }
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
                // A peer that disconnects at once would be reconnected to in a busy loop.
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
        self.notify.get().into_iter().for_each(|notify| notify());
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
