//! A Unix socket at which several ports of this process listen. The first message of a client names
//! its port, so one thread accepts the clients of all ports, reads the first message of each, and
//! passes the client to its port.
//!
//! A client that delays its first message delays no other. Otherwise, ports that share a socket are
//! not protected from each other's clients: a process that can connect can keep the thread busy.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use dray_socket::{Access, BoundSocket, SocketName};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::SocketType;
use rustix::thread::CpuSet;
use rustix::time::Timespec;

use crate::ends::limits::Rate;
use crate::lock::lock;
use crate::session::thread::ControlThread;
use crate::signal::control_wake::ControlWake;
use crate::signal::event::Event;

/// Time within which a client must send its first message.
const FIRST_MESSAGE: Duration = Duration::from_secs(5);
/// Time for which a client waits for a port that serves another one, which may have just ended.
const PORT_BUSY: Duration = Duration::from_secs(1);
/// Maximum number of clients that have no port yet. A further client replaces the oldest.
const PENDING_MAX: usize = 64;
/// Pause after a failed accept.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Messages of a protocol to clients that have no port yet.
pub(crate) struct Protocol {
    /// Kind of socket.
    pub(crate) kind: SocketType,
    /// Greets a client.
    pub(crate) greet: fn(BorrowedFd<'_>, Terms) -> io::Result<()>,
    /// Returns the id of the port that a client requests in its first message, which stays in the
    /// socket; `None` if the message is invalid.
    pub(crate) wanted: fn(BorrowedFd<'_>) -> Option<u32>,
    /// Sends a client the reason for its disconnection.
    pub(crate) refuse: fn(BorrowedFd<'_>, &str),
}

/// Limits that are announced to a client before it names its port, so they apply to all ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) queues: u16,
    pub(crate) regions: usize,
}

/// The listeners of this process.
static LISTENERS: Mutex<Vec<Weak<Listener>>> = Mutex::new(Vec::new());

fn listeners() -> MutexGuard<'static, Vec<Weak<Listener>>> {
    lock(&LISTENERS)
}

/// A port's membership of a listener. Dropping the last one closes the socket.
pub(crate) struct Membership {
    /// `None` while this is being dropped.
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
    thread: OnceLock<ControlThread>,
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
    /// Registers port `id` at the socket `name`. If no port of this process listens there, the
    /// socket is `passed` by another process, or created.
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

    /// Registers port `id` at a listening socket that another program has created under `name`, and
    /// that no other port of this process uses.
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

    /// Returns true if this process has bound the socket, so that other ports may share it.
    pub(crate) fn is_own(&self) -> bool {
        let own = listeners().iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        own.iter().any(|listener| std::ptr::eq(&**listener, self.listener()))
    }

    fn listener(&self) -> &Listener {
        self.listener.as_ref().expect("dropped last")
    }

    /// Starts to accept clients; the port already serves one if it `is_busy`. `wake` is signalled
    /// when a client has connected. The listener's thread starts with the first port, not with the
    /// socket: a program drops privileges in between, which only affects threads that start later.
    pub(crate) fn open(&self, wake: &Arc<ControlWake>, is_busy: bool) -> io::Result<()> {
        if is_busy {
            *self.member.state() = ClientState::Busy;
        }
        // A port is opened once.
        let _ = self.member.wake.set(wake.clone());
        let _one_at_a_time = listeners();
        let listener = self.listener();
        if listener.thread.get().is_none() {
            let shared = listener.shared.clone();
            let _ = listener.thread.set(ControlThread::spawn(move || shared.serve())?);
        }
        listener.shared.wake.signal();
        Ok(())
    }

    /// Returns the client that has connected, if there is one. The port serves it until
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

    /// Makes the port accept the next client, after the last one has left.
    pub(crate) fn done(&self) {
        *self.member.state() = ClientState::Free;
        self.listener().shared.wake.signal();
    }

    /// Moves the listener's thread to `cpus`, if that is permitted.
    pub(crate) fn move_thread(&self, cpus: &CpuSet) {
        if let Some(thread) = self.listener().thread.get() {
            thread.move_to(cpus);
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let listener = self.listener();
        listener.shared.members().retain(|member| !Arc::ptr_eq(member, &self.member));
        // Locked until the socket is closed, so that the next port does not find its name in use.
        let _others_wait = listeners();
        self.listener = None;
    }
}

impl Member {
    fn state(&self) -> MutexGuard<'_, ClientState> {
        lock(&self.state)
    }

    /// Passes `client` to the port if it is free; otherwise returns the client.
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
    }
}

/// A client without a port.
struct Pending {
    client: UnixStream,
    /// Id of the port that it requests, after its first message.
    wanted: Option<u32>,
    /// Time at which it is disconnected.
    until: Instant,
}

impl Shared {
    fn members(&self) -> MutexGuard<'_, Vec<Arc<Member>>> {
        lock(&self.members)
    }

    /// Returns the terms that apply to all ports.
    fn terms(&self) -> Terms {
        let members = self.members();
        let least = |of: fn(&Terms) -> usize| members.iter().map(|member| of(&member.terms)).min();
        let queues = least(|terms| terms.queues.into()).unwrap_or(1) as u16;
        Terms { queues, regions: least(|terms| terms.regions).unwrap_or(1) }
    }

    fn serve(&self) {
        let mut pending = Vec::<Pending>::new();
        // The limit of a `vhost:` port.
        let mut rate = Rate::new(1024, Duration::from_millis(1));
        let mut accept_at = Instant::now();
        while !self.stop.load(Ordering::Acquire) {
            pending = pending.into_iter().filter_map(|client| self.dispatch(client)).collect();
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
                // A client that is ready after its first message has disconnected.
                let is_new = pending.wanted.is_none();
                if is_new {
                    pending.wanted = (self.protocol.wanted)(pending.client.as_fd());
                }
                let waits = is_new && pending.wanted.is_some();
                let timeout = if waits { PORT_BUSY } else { Duration::ZERO };
                pending.until = Instant::now() + timeout;
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
                    pending.push(Pending { client, wanted: None, until: now + FIRST_MESSAGE });
                }
                // It has already disconnected.
                Ok(_) => {}
                Err(_) => accept_at = now + RETRY_PAUSE,
            }
            if let Err(wait) = rate.take(now) {
                accept_at = accept_at.max(now + wait);
            }
        }
    }

    /// Passes a client to its port, or disconnects it after its time limit; otherwise returns it.
    fn dispatch(&self, pending: Pending) -> Option<Pending> {
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

    /// Waits until data is available, at most for `limit`.
    fn wait(&self, pending: &[Pending], accepts: bool, limit: Option<Duration>) -> Ready {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
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
