//! Log of the ports of a service: their peers and failures.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

/// State of a port, as far as the log needs it.
#[derive(Default)]
pub struct LoggedPort {
    /// Name of the port.
    pub name: String,
    /// URI of the port.
    pub uri: String,
    /// True if frames can pass.
    pub is_running: bool,
    /// Reason of its failure, if no frame has passed since.
    pub failure: Option<String>,
    /// Reason that no peer could be reached.
    pub unreachable: Option<String>,
    /// Number of disconnected peers.
    pub disconnects: u64,
    /// Reason of the last disconnection.
    pub last_disconnect: Option<String>,
}

/// Logs events of ports by comparing their states with those a second ago: at most one line for
/// each port and kind of event, however often its peer connects and disconnects.
#[derive(Default)]
pub struct PortLog {
    checked: Option<Instant>,
    known: BTreeMap<String, LoggedPort>,
}

impl PortLog {
    const INTERVAL: Duration = Duration::from_secs(1);

    /// Creates the log of the ports of an earlier process, which has logged these numbers of
    /// disconnects by port.
    pub fn after(disconnects: impl IntoIterator<Item = (String, u64)>) -> Self {
        let known = disconnects.into_iter().map(|(name, disconnects)| {
            (name.clone(), LoggedPort { name, disconnects, ..LoggedPort::default() })
        });
        Self { checked: None, known: known.collect() }
    }

    /// Logs changes of the ports; calls `ports` at most once a second.
    pub fn update(&mut self, ports: impl FnOnce() -> Vec<LoggedPort>) {
        if self.checked.is_some_and(|checked| checked.elapsed() < Self::INTERVAL) {
            return;
        }
        let is_first = self.checked.replace(Instant::now()).is_none();
        self.compare(ports(), is_first);
        dray_daemon::log::report_suppressed();
    }

    fn compare(&mut self, ports: Vec<LoggedPort>, is_first: bool) {
        let mut before = std::mem::take(&mut self.known);
        for port in ports {
            let LoggedPort { name, uri, .. } = &port;
            let old = before.remove(name).filter(|old| old.disconnects <= port.disconnects);
            if old.is_none() && !is_first {
                info!(port = name, uri, "port added");
            }
            port.log_changes(old.as_ref());
            self.known.insert(name.clone(), port);
        }
        for LoggedPort { name, uri, .. } in before.values() {
            info!(port = name, uri, "port removed");
        }
    }
}

impl LoggedPort {
    fn log_changes(&self, old: Option<&Self>) {
        let Self { name: port, uri, .. } = self;
        let times = self.disconnects - old.map_or(0, |old| old.disconnects);
        if times > 0 {
            let reason = self.last_disconnect.as_deref().unwrap_or_default();
            warn!(port, uri, reason, times, "peer disconnected");
        }
        let new = |of: fn(&Self) -> &Option<String>| {
            of(self).as_deref().filter(|_| old.map(of) != Some(of(self)))
        };
        if let Some(reason) = new(|port| &port.failure) {
            error!(port, uri, reason, "port failed");
        }
        if let Some(reason) = new(|port| &port.unreachable) {
            warn!(port, uri, reason, "no peer");
        }
        let was_running = old.is_some_and(|old| old.is_running) && times == 0;
        if self.is_running && !was_running {
            info!(port, uri, "port up");
        }
    }
}

/// Returns the number of disconnects for all reasons.
pub fn total(disconnects: &BTreeMap<String, u64>) -> u64 {
    disconnects.values().sum()
}
