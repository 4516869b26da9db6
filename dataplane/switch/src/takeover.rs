//! Taking over a running switch: another process continues it while all peers stay connected.
//!
//! The new process asks at the control socket (`POST /take-over`) and passes one end of a connection,
//! on which the rest happens:
//!
//! | from | message |
//! |---|---|
//! | old | its settings, ports and stations, with all descriptors ([`Offer`]); control threads stand still |
//! | new | it is ready: memory is mapped, workers are started and have no ports |
//! | old | workers have let go of all ports |
//! | new | it goes on; the old process ends without closing anything |
//!
//! Counters and positions of the queues are in memory that both processes see. Frames wait between the
//! second message and the last. Until the last one has been sent, the old process goes on if anything
//! fails.
//!
//! After a crash the offer comes from the supervisor's store ([`recorder`](crate::recorder)), and
//! nothing has to be waited for.

use std::io::Write;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dray_daemon::{Channel, ClientError, ControlSocket, Hello, Refusal, Request, Response};
use dray_port::{Live, PortUri};
use dray_sandbox::SandboxError;
use serde::{Deserialize, Serialize};

use crate::config::{self, Name, PortConfig, SwitchConfig};
use crate::engine::{PortStats, TableEntry};
use crate::path::Switch;

/// Version of the messages. Two processes must have the same.
const FORMAT: u32 = 3;
/// Time within which the new process gets ready, while control threads stand still.
const PREPARING: Duration = Duration::from_secs(10);
/// Time for which the old process waits for the last message.
const ENDING: Duration = Duration::from_secs(3);
/// Time within which the old process must have stopped for the new one to go on; shorter, so that the
/// old one still waits then.
const STOPPING: Duration = Duration::from_secs(1);

const READY: &[u8] = b"ready";
const STOPPED: &[u8] = b"stopped";
const GO: &[u8] = b"go";

/// Returns the request of a process that takes over, which is also the reply to it.
pub(crate) fn hello() -> Hello {
    Hello::new(FORMAT)
}

/// Returns why the switch `new` cannot take over from `running`, if it cannot.
fn differ(running: &Hello, new: &Hello) -> Option<String> {
    (running.format != new.format).then(|| {
        format!(
            "the running switch is dray {} and the new one dray {}, which exchange other messages \
             (formats {} and {}): stop the one, then start the other",
            running.version, new.version, running.format, new.format
        )
    })
}

/// State that a switch hands over.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Offer {
    /// Configuration without ports, as TOML.
    pub(crate) settings: String,
    pub(crate) ports: Vec<OfferedPort>,
    /// Names of the ports of the configuration, and of those of the command line among them.
    pub(crate) configured: Vec<Name>,
    pub(crate) given: Vec<Name>,
    /// Learned stations.
    pub(crate) stations: Vec<TableEntry>,
    pub(crate) uptime_s: f64,
    /// Seconds since the last reset of the counters, and what they were then.
    pub(crate) reset: Option<(f64, Vec<PortStats>)>,
}

/// A port that a switch hands over.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OfferedPort {
    pub(crate) config: PortConfig,
    /// Its partner in patch mode.
    pub(crate) partner: Option<Name>,
    pub(crate) live: Live,
    /// Its counters.
    #[serde(skip)]
    pub(crate) ledger: Option<OwnedFd>,
}

impl OfferedPort {
    /// Describes a port of which nothing is left.
    pub(crate) fn closed(config: PortConfig) -> Self {
        Self { config, partner: None, live: Live::default(), ledger: None }
    }

    /// Returns the descriptors of the port, in order.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ledger.iter().chain(self.live.descriptors()).map(AsFd::as_fd)
    }

    /// Takes the descriptors of the port from `descriptors`.
    pub(crate) fn adopt(
        &mut self,
        descriptors: &mut impl Iterator<Item = OwnedFd>,
    ) -> Result<(), TakeoverError> {
        self.ledger = descriptors.next();
        let name = self.config.name.as_str();
        let adopted = self.live.adopt(descriptors);
        adopted.map_err(|what| TakeoverError(format!("port {name:?}: {what}")))
    }
}

/// A running switch that another process may take over.
pub struct Predecessor {
    switch: Arc<Switch>,
    config: SwitchConfig,
    /// The control socket, and the one for metrics.
    control: OwnedFd,
    metrics: Option<OwnedFd>,
    /// Ends this process, once another one has taken over.
    end: fn() -> !,
    is_busy: AtomicBool,
}

impl Predecessor {
    /// Prepares `switch` for a take-over, together with the sockets at which it is reached. `end` ends
    /// this process without dropping anything.
    pub fn new(
        switch: Arc<Switch>,
        config: SwitchConfig,
        control: BorrowedFd<'_>,
        metrics: Option<BorrowedFd<'_>>,
        end: fn() -> !,
    ) -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            switch,
            config,
            control: control.try_clone_to_owned()?,
            metrics: metrics.map(|socket| socket.try_clone_to_owned()).transpose()?,
            end,
            is_busy: AtomicBool::new(false),
        }))
    }

    /// Answers the request for a take-over, which then happens on a thread of its own.
    pub(crate) fn answer(self: &Arc<Self>, mut request: Request) -> Result<Response, Refusal> {
        if request.method != "POST" {
            return Err(Refusal::not_allowed(&request, "POST"));
        }
        let refuse = |status, what: String| Err(Refusal::new(status, what));
        let own = rustix::process::geteuid().as_raw();
        if request.user != Some(own) {
            let user = request.user.map_or("unknown".to_owned(), |user| user.to_string());
            let what = format!("take-over by user {user}: only user {own}, the switch's own, may");
            return refuse(403, what);
        }
        let new: Hello = config::from_json(&request.body)?;
        if let Some(what) = differ(&hello(), &new) {
            return refuse(409, format!("take-over: {what}"));
        }
        let count = request.descriptors.len();
        let (Some(socket), 1) = (request.descriptors.pop(), count) else {
            return refuse(400, format!("take-over: {count} file descriptors; give one"));
        };
        let channel = match Channel::of(socket) {
            Ok(channel) => channel,
            Err(error) => return refuse(400, format!("take-over: file descriptor: {error}")),
        };
        if self.is_busy.swap(true, Ordering::Acquire) {
            return refuse(409, "take-over: another one is under way".to_owned());
        }
        let this = self.clone();
        let run = move || {
            let result = this.hand_over(&channel);
            if let Err(why) = &result {
                // The new process says it, unless it is what has failed.
                let _ = channel.send(format!("error: {why}").as_bytes(), &[], STOPPING);
                let line = format!("dray: take-over failed, the switch goes on: {why}\n");
                // A closed standard error must not end the switch.
                let _ = std::io::stderr().write_all(line.as_bytes());
            } else {
                (this.end)();
            }
            this.is_busy.store(false, Ordering::Release);
        };
        match std::thread::Builder::new().name("take-over".to_owned()).spawn(run) {
            Ok(_) => Ok(Response::json(200, &hello())),
            Err(error) => {
                self.is_busy.store(false, Ordering::Release);
                refuse(500, format!("take-over: thread: {error}"))
            }
        }
    }

    fn hand_over(&self, channel: &Channel) -> Result<(), String> {
        let text = |error: std::io::Error| error.to_string();
        self.switch.hand_over(
            &self.config,
            |offer| {
                let own = [self.control.as_fd()].into_iter();
                let own = own.chain(self.metrics.iter().map(AsFd::as_fd));
                let of_ports = offer.ports.iter().flat_map(OfferedPort::descriptors);
                let descriptors: Vec<_> = own.chain(of_ports).collect();
                let has_metrics = self.metrics.is_some();
                channel
                    .send(&to_json(&(has_metrics, offer)), &descriptors, PREPARING)
                    .map_err(text)?;
                expect(channel, READY, PREPARING)
            },
            || {
                channel.send(STOPPED, &[], ENDING).map_err(text)?;
                let Err(why) = expect(channel, GO, ENDING) else { return Ok(()) };
                // From now on the other process cannot send it any more, but it may have.
                channel.close();
                expect(channel, GO, STOPPING).map_err(|_| why)
            },
        )
    }
}

pub(crate) fn to_json(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("plain data")
}

/// Waits for a message without content.
fn expect(channel: &Channel, message: &[u8], patience: Duration) -> Result<(), String> {
    let (received, _) = receive(channel, patience).map_err(|TakeoverError(why)| why)?;
    match received == message {
        true => Ok(()),
        false => Err("unexpected message".to_owned()),
    }
}

/// A take-over of a running switch, by the process that takes over.
pub struct Succession {
    /// Connection to the running switch; none if it has ended.
    channel: Option<Channel>,
    offer: Offer,
    control: OwnedFd,
    metrics: Option<OwnedFd>,
    end: End,
}

/// State of the switch that another one continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Running,
    /// It has ended by an order.
    Ended,
    Killed,
}

/// A take-over cannot be started or completed; the running switch, if there is one, goes on.
#[derive(Debug, thiserror::Error)]
#[error("take-over: {0}")]
pub struct TakeoverError(pub(crate) String);

impl Succession {
    /// Asks the switch at the socket `control` to hand over.
    pub fn request(control: &Path) -> Result<Self, TakeoverError> {
        let failed = |error: std::io::Error| TakeoverError(error.to_string());
        let client = dray_daemon::Client::new(control, "dray switch");
        let refused = |error: ClientError| match error {
            ClientError::Refused { status: 404, .. } => {
                let what =
                    "the running switch is of a version that cannot hand over; stop it first";
                TakeoverError(what.to_owned())
            }
            error => {
                let what = error.to_string();
                TakeoverError(what.strip_prefix("take-over: ").unwrap_or(&what).to_owned())
            }
        };
        let (own, user) = (rustix::process::geteuid().as_raw(), client.user().map_err(refused)?);
        if user != own {
            let what = format!("the running switch is user {user}'s, and this is user {own}");
            return Err(TakeoverError(what));
        }
        let (channel, theirs) = Channel::pair().map_err(failed)?;
        let body = to_json(&hello());
        let running: Hello =
            client.json_with("POST", "/take-over", &body, &[theirs.as_fd()]).map_err(refused)?;
        drop(theirs);
        if let Some(what) = differ(&running, &hello()) {
            return Err(TakeoverError(what));
        }
        let (message, descriptors) = receive(&channel, PREPARING)?;
        let (has_metrics, mut offer): (bool, Offer) = parse(&message)?;
        let mut descriptors = descriptors.into_iter();
        let missing = || TakeoverError("the sockets of the switch did not come along".to_owned());
        let control = descriptors.next().ok_or_else(missing)?;
        let metrics =
            if has_metrics { Some(descriptors.next().ok_or_else(missing)?) } else { None };
        for port in &mut offer.ports {
            port.adopt(&mut descriptors)?;
        }
        Ok(Self { channel: Some(channel), offer, control, metrics, end: End::Running })
    }

    /// Continues a switch that has ended, which has left `offer` in the supervisor's store.
    pub(crate) fn of_ended(
        offer: Offer,
        control: OwnedFd,
        metrics: Option<OwnedFd>,
        was_killed: bool,
    ) -> Self {
        let end = if was_killed { End::Killed } else { End::Ended };
        Self { channel: None, offer, control, metrics, end }
    }

    /// Returns the number of disconnects of each port so far.
    pub fn disconnects(&self) -> impl Iterator<Item = (&Name, u64)> {
        self.offer.ports.iter().map(|port| (&port.config.name, port.live.disconnects()))
    }

    /// Decides which ports of a configuration the switch gets besides those that it has, and returns
    /// all that it will have. A switch that has ended in order gets those of its new configuration in
    /// the place of the ones before. Ports that cannot be continued are opened again.
    ///
    /// # Errors
    /// If a running switch has a port with another URI.
    pub fn merge(&mut self, config: &mut SwitchConfig) -> Result<Vec<PortUri>, TakeoverError> {
        let has_ended = self.end != End::Running;
        let before = self.offer.configured.clone();
        let now = config.ports.iter().map(|port| port.name.clone());
        match self.end {
            End::Running => self.offer.configured.extend(now.filter(|name| !before.contains(name))),
            End::Ended => {
                self.offer.configured = now.collect();
                self.offer.given.clear();
            }
            // All that it had is in the offer, and nothing that was removed.
            End::Killed => config.ports.clear(),
        }
        let mut wrong = None;
        self.offer.ports.retain_mut(|port| {
            let wanted = config.ports.iter().position(|other| other.name == port.config.name);
            let is_same = wanted.is_none_or(|at| config.ports[at].uri == port.config.uri);
            let is_lost = has_ended && port.live.is_empty();
            let is_removed = self.end == End::Ended && before.contains(&port.config.name);
            if wanted.is_none() && port.config.fd == 0 && is_removed {
                return false;
            }
            match wanted {
                Some(at) if !is_same && !has_ended => {
                    let (name, other) = (port.config.name.as_str(), &config.ports[at].uri);
                    wrong = Some(format!(
                        "port {name:?} runs as {}, not as {other}; remove it first, or give it as it \
                         runs",
                        port.config.uri
                    ));
                }
                Some(at) if is_same && !is_lost => {
                    let wanted = config.ports.remove(at);
                    if has_ended {
                        port.config = wanted;
                    }
                }
                // It is opened again.
                None if is_lost => config.ports.push(port.config.clone()),
                _ => {}
            }
            is_same
        });
        if let Some(what) = wrong {
            return Err(TakeoverError(what));
        }
        let all = self.offer.ports.iter().map(|port| &port.config).chain(&config.ports);
        Ok(all.map(|port| port.uri.clone()).collect())
    }

    /// Returns the configuration of the running switch, without ports.
    pub fn settings(&self) -> Result<SwitchConfig, TakeoverError> {
        SwitchConfig::from_toml(&self.offer.settings)
            .map_err(|error| TakeoverError(format!("its settings: {error}")))
    }

    /// Takes over: starts a switch with the ports of the running one and those of `config`, as
    /// [`Switch::start_confined`] does. Returns it with its control socket and the socket for metrics.
    pub fn complete(
        self,
        config: &SwitchConfig,
        confine: impl FnOnce() -> Result<(), SandboxError>,
    ) -> Result<(Switch, ControlSocket, Option<TcpListener>), TakeoverError> {
        let Self { channel, offer, control, metrics, .. } = self;
        let failed = |error: &dyn std::fmt::Display| TakeoverError(error.to_string());
        // The running switch still needs them if anything fails; and ports that share a socket have
        // several duplicates of it.
        dray_daemon::borrow_files(true);
        let control = ControlSocket::inherit(&config.control.path, control);
        let control = control.map_err(|error| failed(&error))?;
        let metrics = config.metrics.map(|address| address.listen_with(metrics)).transpose();
        let metrics = metrics.map_err(|error| failed(&error))?;
        let taken = Switch::take_over(config, offer, channel.is_none(), confine);
        let (switch, heir) = taken.map_err(|error| failed(&error))?;
        if let Some(channel) = channel {
            channel.send(READY, &[], STOPPING).map_err(|error| failed(&error))?;
            expect(&channel, STOPPED, STOPPING).map_err(TakeoverError)?;
            channel.send(GO, &[], STOPPING).map_err(|error| failed(&error))?;
        }
        dray_daemon::borrow_files(false);
        switch.resume(heir);
        Ok((switch, control, metrics))
    }
}

fn receive(
    channel: &Channel,
    patience: Duration,
) -> Result<(Vec<u8>, Vec<OwnedFd>), TakeoverError> {
    let received = channel.receive(patience);
    let (message, descriptors) = received.map_err(|error| TakeoverError(error.to_string()))?;
    match message.strip_prefix(b"error: ") {
        Some(why) => Err(TakeoverError(String::from_utf8_lossy(why).into_owned())),
        None => Ok((message, descriptors)),
    }
}

fn parse<'m, T: Deserialize<'m>>(message: &'m [u8]) -> Result<T, TakeoverError> {
    serde_json::from_slice(message)
        .map_err(|error| TakeoverError(format!("invalid message of the running switch: {error}")))
}
