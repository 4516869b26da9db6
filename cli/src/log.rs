//! The log of daemons: `--log-level`, and what they log about their ports.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dray_daemon::LogLevel;
use tracing::{error, info, warn};

use crate::common::{Failure, usage};

/// Options of the log.
#[derive(Default, clap::Args)]
pub(crate) struct LogArguments {
    /// Log events of this level and of those before it: off, error, warn, info, debug or trace
    /// [env: DRAY_LOG] [default: info].
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<LogLevel>,
}

impl LogArguments {
    /// Starts the log of the process.
    pub(crate) fn start(self) -> Result<(), Failure> {
        let level = self.log_level.map_or_else(LogLevel::from_environment, Ok);
        dray_daemon::log::start(level.map_err(|what| usage!("{what}"))?);
        Ok(())
    }
}

/// A port as the log sees it.
#[derive(Default)]
pub(crate) struct LoggedPort {
    pub(crate) name: String,
    pub(crate) uri: String,
    pub(crate) is_running: bool,
    /// Why it failed, if no frame has passed since.
    pub(crate) failure: Option<String>,
    /// Why no peer could be reached.
    pub(crate) unreachable: Option<String>,
    /// Number of peers that were disconnected, and why the last one was.
    pub(crate) disconnects: u64,
    pub(crate) last_disconnect: Option<String>,
}

/// Logs what has happened at ports, by comparing them with what they were a second ago: a line for
/// each port and kind of event at most, however often its peer comes and goes.
#[derive(Default)]
pub(crate) struct PortLog {
    looked: Option<Instant>,
    known: BTreeMap<String, LoggedPort>,
}

impl PortLog {
    const INTERVAL: Duration = Duration::from_secs(1);

    /// Creates the log of ports that another process had before, with what it has logged: their
    /// numbers of disconnects.
    pub(crate) fn after(disconnects: impl Iterator<Item = (String, u64)>) -> Self {
        let known = disconnects.map(|(name, disconnects)| {
            (name.clone(), LoggedPort { name, disconnects, ..LoggedPort::default() })
        });
        Self { looked: None, known: known.collect() }
    }

    /// Looks at the ports, once in a second.
    pub(crate) fn look(&mut self, ports: impl FnOnce() -> Vec<LoggedPort>) {
        if self.looked.is_some_and(|looked| looked.elapsed() < Self::INTERVAL) {
            return;
        }
        let is_first = self.looked.replace(Instant::now()).is_none();
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

/// Returns the sum of the numbers of disconnects by reason.
pub(crate) fn total(disconnects: &BTreeMap<String, u64>) -> u64 {
    disconnects.values().sum()
}
