//! A Unix socket at which several ports of this process listen. A client says in its first message
//! which of them it wants, so one thread accepts the clients of all, reads that far, and hands each
//! client to its port.
//!
//! A client that is slow to introduce itself delays no other. Ports that share a socket are not
//! protected from each other's clients in any other way: a process that can connect can keep the
//! thread busy.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dray_socket::{Access, BoundSocket, SocketName};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::SocketType;
use rustix::process::Pid;
use rustix::thread::{CpuSet, gettid, sched_setaffinity};
use rustix::time::Timespec;

use crate::ends::limits::Rate;
use crate::signal::control_wake::ControlWake;
use crate::signal::event::Event;

/// Time within which a client must introduce itself.
const INTRODUCTION: Duration = Duration::from_secs(5);
/// Time for which a client waits for a port that serves another one: its predecessor may have
/// ended a moment ago.
const SUCCESSION: Duration = Duration::from_secs(1);
/// Maximum number of clients that have no port yet. One more takes the place of the oldest.
const PENDING_MAX: usize = 64;
/// Time that the thread is given to end: it ends at once, unless a client found a way to hold it up.
const ENDING: Duration = Duration::from_secs(2);
/// Pause after a failed accept.
const AGAIN: Duration = Duration::from_millis(50);

/// Messages of a protocol to clients that have no port yet.
pub(crate) struct Protocol {
    /// Kind of socket.
    pub(crate) kind: SocketType,
    /// Greets a client.
    pub(crate) greet: fn(BorrowedFd<'_>, Terms) -> io::Result<()>,
    /// Returns the id of the port that a client wants, from its first message, which is there and
    /// stays there; `None` if the message is invalid.
    pub(crate) wanted: fn(BorrowedFd<'_>) -> Option<u32>,
    /// Sends a client the reason for its disconnection.
    pub(crate) refuse: fn(BorrowedFd<'_>, &str),
}

/// Limits that are announced to a client before it names its port, so they hold for all ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) queues: u16,
    pub(crate) regions: usize,
}

/// The listeners of this process.
static LISTENERS: Mutex<Vec<Weak<Listener>>> = Mutex::new(Vec::new());

fn listeners() -> MutexGuard<'static, Vec<Weak<Listener>>> {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A port's membership of a listener. Dropping the last one closes the socket.
pub(crate) struct Membership {
    /// `None` while it is dropped.
    listener: Option<Arc<Listener>>,
    member: Arc<Member>,
}

/// A port of this process that listens at the socket.
struct Member {
    id: u32,
    terms: Terms,
    state: Mutex<ClientState>,
    /// Signalled when a client comes; set when the port is opened.
    wake: OnceLock<Arc<ControlWake>>,
}

/// The client of a port.
enum ClientState {
    Free,
    /// A client that the port has not taken yet.
    Next(UnixStream),
    /// The port serves a client.
    Busy,
}

struct Listener {
    shared: Arc<Shared>,
    access: Access,
    thread: OnceLock<Thread>,
}

struct Thread {
    id: Pid,
    handle: Mutex<Option<JoinHandle<()>>>,
    /// Disconnects when the thread ends.
    ended: Mutex<mpsc::Receiver<()>>,
}

struct Shared {
    protocol: &'static Protocol,
    name: SocketName,
    socket: BoundSocket,
    members: Mutex<Vec<Arc<Member>>>,
    /// Wakes the thread when a port can take a client, and at the end.
    wake: Event,
    stop: AtomicBool,
}

impl Membership {
    /// Registers port `id` at the socket `name`. If no port of this process listens at it, it is the
    /// one that another process hands over, or created.
    pub(crate) fn join(
        protocol: &'static Protocol,
        name: &SocketName,
        access: &Access,
        passed: Option<BoundSocket>,
        id: u32,
        terms: Terms,
    ) -> io::Result<Self> {
        let mut listeners = listeners();
        listeners.retain(|listener| listener.strong_count() > 0);
        let found = listeners.iter().filter_map(Weak::upgrade).find(|l| l.shared.name == *name);
        let listener = match found {
            Some(listener) if listener.access != *access => {
                let what = "another port listens at this socket with other rights; give both the \
                            same mode, owner and group";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            Some(listener) => listener,
            None => {
                let socket = match passed {
                    Some(socket) => socket,
                    None => BoundSocket::bind(name, protocol.kind, access)?,
                };
                let listener = Listener::new(protocol, name, socket, access)?;
                listeners.push(Arc::downgrade(&listener));
                listener
            }
        };
        Self::register(listener, id, terms)
    }

    /// Registers port `id` at a listening socket that another program has created, and which no
    /// other port of this process has. `name` is its name there.
    pub(crate) fn join_passed(
        protocol: &'static Protocol,
        name: &SocketName,
        socket: BoundSocket,
        id: u32,
        terms: Terms,
    ) -> io::Result<Self> {
        Self::register(Listener::new(protocol, name, socket, &Access::default())?, id, terms)
    }

    fn register(listener: Arc<Listener>, id: u32, terms: Terms) -> io::Result<Self> {
        let mut members = listener.shared.members();
        if members.iter().any(|member| member.id == id) {
            let what = format!("another port listens at this socket for id {id}; give another id");
            return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
        }
        let (state, wake) = (Mutex::new(ClientState::Free), OnceLock::new());
        let member = Arc::new(Member { id, terms, state, wake });
        members.push(member.clone());
        drop(members);
        Ok(Self { listener: Some(listener), member })
    }

    /// Returns the socket.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.listener().shared.socket.as_fd()
    }

    /// Returns true if this process has bound the socket itself, and other ports may share it.
    pub(crate) fn is_own(&self) -> bool {
        let own = listeners().iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        own.iter().any(|listener| std::ptr::eq(&**listener, self.listener()))
    }

    fn listener(&self) -> &Listener {
        self.listener.as_ref().expect("dropped last")
    }

    /// Starts to accept clients, of which the port serves one already if it `is_busy`. `wake` is signalled
    /// when one has come. (The listener's thread
    /// starts with the first port, not with its socket: a program gives up privileges in between,
    /// and they apply to threads that start later.)
    pub(crate) fn open(&self, wake: &Arc<ControlWake>, is_busy: bool) -> io::Result<()> {
        if is_busy {
            *self.member.state() = ClientState::Busy;
        }
        // A port is opened once.
        let _ = self.member.wake.set(wake.clone());
        let _one_at_a_time = listeners();
        let listener = self.listener();
        if listener.thread.get().is_none() {
            let _ = listener.thread.set(Thread::start(listener.shared.clone())?);
        }
        listener.shared.wake.signal();
        Ok(())
    }

    /// Returns the client that has come, if one has. The port serves it until
    /// [`done`](Self::done).
    pub(crate) fn client(&self) -> Option<UnixStream> {
        let mut state = self.member.state();
        match std::mem::replace(&mut *state, ClientState::Busy) {
            ClientState::Next(client) => Some(client),
            ClientState::Free | ClientState::Busy => {
                *state = ClientState::Free;
                None
            }
        }
    }

    /// Takes the next client, now that the last one has gone.
    pub(crate) fn done(&self) {
        *self.member.state() = ClientState::Free;
        self.listener().shared.wake.signal();
    }

    /// Moves the listener's thread to `cpus`, if that is permitted.
    pub(crate) fn move_thread(&self, cpus: &CpuSet) {
        if let Some(thread) = self.listener().thread.get() {
            let _ = sched_setaffinity(Some(thread.id), cpus);
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let listener = self.listener();
        listener.shared.members().retain(|member| !Arc::ptr_eq(member, &self.member));
        // Held until the socket is closed, so that the next port at its name does not find it in
        // use.
        let _others_wait = listeners();
        self.listener = None;
    }
}

impl Member {
    fn state(&self) -> MutexGuard<'_, ClientState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over `client` if the port is free; otherwise returns it.
    fn receive(&self, client: UnixStream) -> Result<(), UnixStream> {
        let Some(wake) = self.wake.get() else { return Err(client) };
        let mut state = self.state();
        if !matches!(*state, ClientState::Free) {
            return Err(client);
        }
        *state = ClientState::Next(client);
        wake.signal();
        Ok(())
    }
}

impl Thread {
    fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let (ends, ended) = mpsc::channel();
        let (says, said) = mpsc::channel();
        let handle =
            std::thread::Builder::new().name("dray-control".to_owned()).spawn(move || {
                let _ = says.send(gettid());
                shared.serve();
                drop(shared);
                drop::<mpsc::Sender<()>>(ends);
            })?;
        let id = said.recv().map_err(io::Error::other)?;
        Ok(Self { id, handle: Mutex::new(Some(handle)), ended: Mutex::new(ended) })
    }
}

impl Listener {
    fn new(
        protocol: &'static Protocol,
        name: &SocketName,
        socket: BoundSocket,
        access: &Access,
    ) -> io::Result<Arc<Self>> {
        let shared = Shared {
            protocol,
            name: name.clone(),
            socket,
            members: Mutex::default(),
            wake: Event::new()?,
            stop: AtomicBool::new(false),
        };
        let (shared, access) = (Arc::new(shared), access.clone());
        Ok(Arc::new(Self { shared, access, thread: OnceLock::new() }))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.signal();
        let Some(thread) = self.thread.get_mut() else { return };
        // A thread that a client holds up is not awaited, as in a connection.
        let ended = thread.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let held_up = ended.recv_timeout(ENDING) == Err(mpsc::RecvTimeoutError::Timeout);
        let handle = thread.handle.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(handle) = handle.filter(|_| !held_up) {
            let _ = handle.join();
        }
    }
}

/// A client without a port.
struct Pending {
    client: UnixStream,
    /// The port that it wants, once it has said so.
    wanted: Option<u32>,
    /// Time at which it is disconnected.
    until: Instant,
}

impl Shared {
    fn members(&self) -> MutexGuard<'_, Vec<Arc<Member>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the terms that hold for every port.
    fn terms(&self) -> Terms {
        let members = self.members();
        let least = |of: fn(&Terms) -> usize| members.iter().map(|member| of(&member.terms)).min();
        let queues = least(|terms| terms.queues.into()).unwrap_or(1) as u16;
        Terms { queues, regions: least(|terms| terms.regions).unwrap_or(1) }
    }

    fn serve(&self) {
        let mut pending = Vec::<Pending>::new();
        // As many as a `vhost:` port accepts.
        let mut rate = Rate::new(1024, Duration::from_millis(1));
        let mut accept_at = Instant::now();
        while !self.stop.load(Ordering::Acquire) {
            pending = pending.into_iter().filter_map(|client| self.settle(client)).collect();
            let now = Instant::now();
            let rests = accept_at > now;
            let times = pending.iter().map(|pending| pending.until);
            let next = times.chain(rests.then_some(accept_at)).min();
            let limit = next.map(|next| next.saturating_duration_since(now));
            let ready = self.wait(&pending, !rests, limit);
            for (pending, ready) in pending.iter_mut().zip(&ready.clients) {
                if !ready {
                    continue;
                }
                // One that is ready after its introduction has hung up.
                let is_new = pending.wanted.is_none();
                if is_new {
                    pending.wanted = (self.protocol.wanted)(pending.client.as_fd());
                }
                let waits = is_new && pending.wanted.is_some();
                let patience = if waits { SUCCESSION } else { Duration::ZERO };
                pending.until = Instant::now() + patience;
            }
            if !ready.listener {
                continue;
            }
            let now = Instant::now();
            match self.socket.accept() {
                Ok(client) if (self.protocol.greet)(client.as_fd(), self.terms()).is_ok() => {
                    if pending.len() == PENDING_MAX {
                        pending.remove(0);
                    }
                    pending.push(Pending { client, wanted: None, until: now + INTRODUCTION });
                }
                // It has gone already.
                Ok(_) => {}
                Err(_) => accept_at = now + AGAIN,
            }
            if let Err(wait) = rate.take(now) {
                accept_at = accept_at.max(now + wait);
            }
        }
    }

    /// Hands a client to its port, or disconnects it if that is due; otherwise returns it.
    fn settle(&self, pending: Pending) -> Option<Pending> {
        let Pending { client, wanted, until } = pending;
        let is_due = until <= Instant::now();
        let refuse = |client: &UnixStream, why: &str| {
            (self.protocol.refuse)(client.as_fd(), why);
            None
        };
        let Some(id) = wanted else {
            return match is_due {
                true => refuse(&client, "did not say which interface it wants"),
                false => Some(Pending { client, wanted, until }),
            };
        };
        let member = self.members().iter().find(|member| member.id == id).cloned();
        let Some(member) = member else {
            return refuse(&client, &format!("no interface has id {id}"));
        };
        match member.receive(client) {
            Ok(()) => None,
            Err(client) if is_due => refuse(&client, &format!("id {id} has a client already")),
            Err(client) => Some(Pending { client, wanted, until }),
        }
    }

    /// Waits until something can be read, at most for `limit`.
    fn wait(&self, pending: &[Pending], accepts: bool, limit: Option<Duration>) -> Ready {
        let limit = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: limit.subsec_nanos().into(),
        });
        let flags = |reads| if reads { PollFlags::IN } else { PollFlags::empty() };
        let mut fds =
            vec![PollFd::new(&self.wake, PollFlags::IN), PollFd::new(&self.socket, flags(accepts))];
        fds.extend(pending.iter().map(|p| PollFd::new(&p.client, flags(p.wanted.is_none()))));
        // If it fails, nothing is ready.
        let _ = poll(&mut fds, limit.as_ref());
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        if ready.next() == Some(true) {
            self.wake.clear();
        }
        let listener = ready.next() == Some(true);
        Ready { listener, clients: ready.collect() }
    }
}

struct Ready {
    listener: bool,
    clients: Vec<bool>,
}
