//! Continuing a switch where another process has left it.

use std::collections::HashMap;
use std::net::TcpListener;
use std::path::Path;

use dray_daemon::{ControlSocket, Store};
use dray_port::{PortSnapshot, PortUri};
use dray_sandbox::SandboxError;
use dray_service::{PortPage, Snapshot, Sockets, monotonic_s};

pub use dray_service::TakeoverError;

use crate::config::{Name, PortConfig, SwitchConfig};
use crate::path::Switch;
use crate::snapshot::{OwnPort, PROGRAM, State};

/// State of the process before, with which this one continues.
pub struct RestoredState {
    snapshot: Snapshot<OwnPort, State>,
    ports: Vec<PortPage<OwnPort>>,
    end: End,
}

/// End of the process before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Running,
    /// It has ended by an order.
    Ended,
    Killed,
}

impl RestoredState {
    /// Takes what an earlier process has left in `store`, if there is anything.
    pub fn of_store(store: &Store) -> Result<Option<Self>, TakeoverError> {
        Ok(Snapshot::of_store(PROGRAM, store)?.map(Self::new))
    }

    /// Requests a take-over from the switch at the socket `control`.
    pub fn request(control: &Path) -> Result<Self, TakeoverError> {
        Ok(Self::new(Snapshot::request(PROGRAM, control)?))
    }

    fn new(mut snapshot: Snapshot<OwnPort, State>) -> Self {
        let end = match (snapshot.is_running(), snapshot.state.has_ended) {
            (true, _) => End::Running,
            (false, true) => End::Ended,
            (false, false) => End::Killed,
        };
        let state = &mut snapshot.state;
        let since = (monotonic_s() - state.at_s).max(0.0);
        for station in &mut state.stations {
            station.age_s = station.age_s.saturating_add(since as u32);
        }
        state.uptime_s += since;
        state.reset.iter_mut().for_each(|(seconds, _)| *seconds += since);
        let listed = std::mem::take(&mut state.ports);
        let pages = std::mem::take(&mut snapshot.ports).into_values();
        Self { ports: in_order(listed, pages), snapshot, end }
    }

    /// Returns the number of disconnects of each port so far.
    pub fn disconnects(&self) -> impl Iterator<Item = (&Name, u64)> {
        self.ports.iter().map(|port| (&port.own.config.name, port.live.disconnects()))
    }

    /// Decides which ports of a configuration the switch gets besides those that it has, and
    /// returns all that it will have. A switch that has ended in order gets those of its new
    /// configuration in the place of the ones before. Ports that cannot be continued are opened
    /// again.
    ///
    /// # Errors
    /// If a running switch has a port with another URI.
    pub fn merge(&mut self, config: &mut SwitchConfig) -> Result<Vec<PortUri>, TakeoverError> {
        let has_ended = self.end != End::Running;
        let State { configured, given, .. } = &mut self.snapshot.state;
        let before = configured.clone();
        let now = config.ports.iter().map(|port| port.name.clone());
        match self.end {
            End::Running => configured.extend(now.filter(|name| !before.contains(name))),
            End::Ended => {
                *configured = now.collect();
                given.clear();
            }
            // All that it had is in the snapshot, and nothing that was removed.
            End::Killed => config.ports.clear(),
        }
        let mut wrong = None;
        self.ports.retain_mut(|PortPage { own: OwnPort { config: port, .. }, live, .. }| {
            let wanted = config.ports.iter().position(|other| other.name == port.name);
            let is_same = wanted.is_none_or(|at| config.ports[at].uri == port.uri);
            let is_lost = has_ended && live.is_empty();
            let is_removed = self.end == End::Ended && before.contains(&port.name);
            if wanted.is_none() && port.fd == 0 && is_removed {
                return false;
            }
            match wanted {
                Some(at) if !is_same && !has_ended => {
                    let (name, other) = (port.name.as_str(), &config.ports[at].uri);
                    wrong = Some(format!(
                        "port {name:?} runs as {}, not as {other}; remove it first, or give it as it \
                         runs",
                        port.uri
                    ));
                }
                Some(at) if is_same && !is_lost => {
                    let wanted = config.ports.remove(at);
                    if has_ended {
                        *port = wanted;
                    }
                }
                // It is opened again.
                None if is_lost => config.ports.push(port.clone()),
                _ => {}
            }
            is_same
        });
        if let Some(what) = wrong {
            return Err(TakeoverError(what));
        }
        let all = self.ports.iter().map(|port| &port.own.config).chain(&config.ports);
        Ok(all.map(|port| port.uri.clone()).collect())
    }

    /// Returns the configuration of the running switch, without ports.
    pub fn settings(&self) -> Result<SwitchConfig, TakeoverError> {
        let settings = SwitchConfig::from_toml(&self.snapshot.state.settings)
            .map_err(|error| TakeoverError(format!("its settings: {error}")))?;
        // This process still has privileges, with which it opens ports of a configuration.
        Ok(SwitchConfig { ports: Vec::new(), ..settings })
    }

    /// Continues: starts a switch with the ports of the one before and those of `config`, as
    /// [`Switch::start_confined`] does. Returns it with its control socket and the socket for
    /// metrics.
    pub fn complete(
        mut self,
        config: &SwitchConfig,
        confine: impl FnOnce() -> Result<(), SandboxError>,
    ) -> Result<(Switch, ControlSocket, Option<TcpListener>), TakeoverError> {
        let failed = |error: &dyn std::fmt::Display| TakeoverError(error.to_string());
        let is_running = self.end == End::Running;
        let sockets = self.snapshot.sockets.take();
        let sockets = Sockets::listen(&config.control, config.metrics, sockets, is_running);
        let (control, metrics) = sockets.map_err(|error| failed(&error))?;
        let state = std::mem::take(&mut self.snapshot.state);
        let taken = Switch::take_over(config, state, self.ports, !is_running, confine);
        let (switch, ends) = taken.map_err(|error| failed(&error))?;
        self.snapshot.complete()?;
        switch.resume(ends);
        Ok((switch, control, metrics))
    }
}

/// Returns all ports, first `listed` in order. Those without a page, such as the last one that was
/// added before a crash, can only be opened again.
fn in_order(
    listed: Vec<PortConfig>,
    pages: impl Iterator<Item = PortPage<OwnPort>>,
) -> Vec<PortPage<OwnPort>> {
    let pages: Vec<_> = pages.collect();
    let names: Vec<_> = pages.iter().map(|page| page.own.config.name.clone()).collect();
    let mut by_name: HashMap<_, _> = names.iter().zip(pages).collect();
    let closed = |config| PortPage {
        own: OwnPort { config, partner: None },
        live: PortSnapshot::default(),
        memory: None,
    };
    let listed = listed.into_iter();
    let listed =
        listed.map(|config| by_name.remove(&config.name).unwrap_or_else(|| closed(config)));
    let mut ports: Vec<_> = listed.collect();
    ports.extend(names.iter().filter_map(|name| by_name.remove(name)));
    ports
}
