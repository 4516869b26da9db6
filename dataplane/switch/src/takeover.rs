//! Taking over a running switch: another process continues it while all peers stay connected.
//!
//! First control threads stand still, and the old process sends its settings, ports and stations, with
//! all descriptors ([`Offer`]). The new one maps memory and starts workers, which have no ports. Then the
//! workers of the old one let go of all ports ([`dray_daemon::Takeover`] has the messages).
//!
//! Counters and positions of the queues are in memory that both processes see. Frames wait between the
//! second message and the last.
//!
//! After a crash the offer comes from the supervisor's store ([`recorder`](crate::recorder)), and
//! nothing has to be waited for.

use std::convert::Infallible;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use dray_daemon::{
    ControlSocket, Hello, Incumbent, Program, Refusal, Request, Response, Successor, Takeover,
};
use dray_port::{Live, PortUri, clock};
use dray_sandbox::SandboxError;
use serde::{Deserialize, Serialize};

pub use dray_daemon::TakeoverError;

use crate::config::{Name, PortConfig, SwitchConfig};
use crate::engine::{PortStats, TableEntry};
use crate::path::Switch;

const PROGRAM: Program = Program { name: "switch", command: "dray switch", format: 3 };

/// Returns what begins a page of the supervisor's store.
pub(crate) fn hello() -> Hello {
    PROGRAM.hello()
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
    incumbent: Arc<Incumbent>,
}

impl Predecessor {
    /// Prepares `switch` for a take-over, together with the sockets at which it is reached.
    pub fn new(
        switch: Arc<Switch>,
        config: SwitchConfig,
        control: BorrowedFd<'_>,
        metrics: Option<BorrowedFd<'_>>,
    ) -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            switch,
            config,
            control: control.try_clone_to_owned()?,
            metrics: metrics.map(|socket| socket.try_clone_to_owned()).transpose()?,
            incumbent: Incumbent::new(PROGRAM, || ()),
        }))
    }

    /// Answers the request for a take-over, which then happens on a thread of its own.
    pub(crate) fn answer(self: &Arc<Self>, request: Request) -> Result<Response, Refusal> {
        let this = self.clone();
        self.incumbent.answer(request, move |successor| this.hand_over(successor))
    }

    fn hand_over(&self, successor: &Successor) -> Result<Infallible, String> {
        self.switch.hand_over(
            &self.config,
            |offer| {
                let own = [self.control.as_fd()].into_iter();
                let own = own.chain(self.metrics.iter().map(AsFd::as_fd));
                let of_ports = offer.ports.iter().flat_map(OfferedPort::descriptors);
                let descriptors: Vec<_> = own.chain(of_ports).collect();
                successor.offer(&to_json(&(self.metrics.is_some(), offer)), &descriptors)
            },
            || successor.let_go(),
        )
    }
}

pub(crate) fn to_json(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("plain data")
}

/// A take-over of a running switch, by the process that takes over.
pub struct Succession {
    /// The running switch; none if it has ended.
    running: Option<Takeover>,
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

impl Succession {
    /// Asks the switch at the socket `control` to hand over.
    pub fn request(control: &Path) -> Result<Self, TakeoverError> {
        // Measuring it takes 20 ms, for which frames would wait.
        clock::ticks_per_second();
        let (running, message, descriptors) = Takeover::request(control, PROGRAM)?;
        let (has_metrics, mut offer): (bool, Offer) = parse(&message)?;
        let mut descriptors = descriptors.into_iter();
        let missing = || TakeoverError("the sockets of the switch did not come along".to_owned());
        let control = descriptors.next().ok_or_else(missing)?;
        let metrics =
            if has_metrics { Some(descriptors.next().ok_or_else(missing)?) } else { None };
        for port in &mut offer.ports {
            port.adopt(&mut descriptors)?;
        }
        Ok(Self { running: Some(running), offer, control, metrics, end: End::Running })
    }

    /// Continues a switch that has ended, which has left `offer` in the supervisor's store.
    pub(crate) fn of_ended(
        offer: Offer,
        control: OwnedFd,
        metrics: Option<OwnedFd>,
        was_killed: bool,
    ) -> Self {
        let end = if was_killed { End::Killed } else { End::Ended };
        Self { running: None, offer, control, metrics, end }
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
        let settings = SwitchConfig::from_toml(&self.offer.settings)
            .map_err(|error| TakeoverError(format!("its settings: {error}")))?;
        // This process still has privileges, with which it opens ports of a configuration.
        Ok(SwitchConfig { ports: Vec::new(), ..settings })
    }

    /// Takes over: starts a switch with the ports of the running one and those of `config`, as
    /// [`Switch::start_confined`] does. Returns it with its control socket and the socket for metrics.
    pub fn complete(
        self,
        config: &SwitchConfig,
        confine: impl FnOnce() -> Result<(), SandboxError>,
    ) -> Result<(Switch, ControlSocket, Option<TcpListener>), TakeoverError> {
        let Self { running, offer, control, metrics, .. } = self;
        let failed = |error: &dyn std::fmt::Display| TakeoverError(error.to_string());
        // The running switch still needs them if anything fails; and ports that share a socket have
        // several duplicates of it.
        dray_daemon::borrow_files(true);
        let control = match &running {
            Some(_) => ControlSocket::inherit(&config.control.path, control),
            None => ControlSocket::inherit_or_bind(&config.control, Some(control)),
        };
        let control = control.map_err(|error| failed(&error))?;
        let metrics = config.metrics.map(|address| address.listen_with(metrics)).transpose();
        let metrics = metrics.map_err(|error| failed(&error))?;
        let taken = Switch::take_over(config, offer, running.is_none(), confine);
        let (switch, heir) = taken.map_err(|error| failed(&error))?;
        running.map_or(Ok(()), |running| running.complete())?;
        dray_daemon::borrow_files(false);
        switch.resume(heir);
        Ok((switch, control, metrics))
    }
}

fn parse<'m, T: Deserialize<'m>>(message: &'m [u8]) -> Result<T, TakeoverError> {
    serde_json::from_slice(message)
        .map_err(|error| TakeoverError(format!("invalid message of the running switch: {error}")))
}
