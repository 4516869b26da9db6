//! Client of the control socket, used by `dray switch ports` and similar commands.

use std::os::fd::BorrowedFd;
use std::path::Path;

pub use dray_daemon::ClientError;

use crate::changes::Changes;
use crate::config::{Name, PortConfig};
use crate::control::{PortStats, PortStatus, Status, TableEntry};

/// Client of the switch at a control socket. Every call opens its own connection.
#[derive(Clone, Debug)]
pub struct Client(dray_daemon::Client);

impl Client {
    /// Creates a client for the switch at `socket`.
    pub fn new(socket: &Path) -> Self {
        Self(dray_daemon::Client::new(socket, "dray switch"))
    }

    /// Returns the number of the user that the switch runs as.
    pub fn user(&self) -> Result<u32, ClientError> {
        self.0.user()
    }

    /// Returns the status of the switch.
    pub fn status(&self) -> Result<Status, ClientError> {
        self.0.json("GET", "/", b"")
    }

    /// Checks that all workers publish (`/livez`), or with `ready` that the ports of the
    /// configuration are open and have not failed (`/readyz`); the error has the reason.
    pub fn health(&self, ready: bool) -> Result<(), ClientError> {
        self.0.health(ready)
    }

    /// Returns the ports of the switch.
    pub fn ports(&self) -> Result<Vec<PortStatus>, ClientError> {
        self.0.json("GET", "/ports", b"")
    }

    /// Returns the port `name`.
    pub fn port(&self, name: &Name) -> Result<PortStatus, ClientError> {
        self.0.json("GET", &format!("/ports/{name}"), b"")
    }

    /// Returns the counters of all ports, since each was added.
    pub fn stats(&self) -> Result<Vec<PortStats>, ClientError> {
        self.0.json("GET", "/stats", b"")
    }

    /// Returns the counters of all ports since the last reset.
    pub fn stats_since_reset(&self) -> Result<Vec<PortStats>, ClientError> {
        self.0.json("GET", "/stats?since=reset", b"")
    }

    /// Makes [`stats_since_reset`](Self::stats_since_reset) count from zero.
    pub fn reset_stats(&self) -> Result<(), ClientError> {
        self.0.ask("POST", "/stats/reset", b"").map(drop)
    }

    /// Returns the known stations, of all ports or of one.
    pub fn table(&self, port: Option<&Name>) -> Result<Vec<TableEntry>, ClientError> {
        match port {
            None => self.0.json("GET", "/table", b""),
            Some(port) => self.0.json("GET", &format!("/table?port={port}"), b""),
        }
    }

    /// Removes the learned stations.
    pub fn flush_table(&self) -> Result<(), ClientError> {
        self.0.ask("DELETE", "/table", b"").map(drop)
    }

    /// Adds a port and returns its status.
    pub fn add_port(&self, port: &PortConfig) -> Result<PortStatus, ClientError> {
        self.add_port_with(port, &[])
    }

    /// Adds a port that uses these file descriptors; `port.fd` is their number.
    pub fn add_port_with(
        &self,
        port: &PortConfig,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<PortStatus, ClientError> {
        self.post_port("/ports", port, descriptors)
    }

    /// Like [`add_port_with`](Self::add_port_with); addresses pinned to the port may be those of
    /// stations behind other ports.
    pub fn force_port_with(
        &self,
        port: &PortConfig,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<PortStatus, ClientError> {
        self.post_port("/ports?force=1", port, descriptors)
    }

    fn post_port(
        &self,
        target: &str,
        port: &PortConfig,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<PortStatus, ClientError> {
        let body = serde_json::to_vec(port).expect("a port serialises to JSON");
        self.0.json_with("POST", target, &body, descriptors)
    }

    /// Removes a port.
    pub fn remove_port(&self, name: &Name) -> Result<(), ClientError> {
        self.0.ask("DELETE", &format!("/ports/{name}"), b"").map(drop)
    }

    /// Returns the configuration of the switch as a TOML file.
    pub fn config(&self) -> Result<String, ClientError> {
        self.0.text("/config")
    }

    /// Changes the ports to those of the configuration file `text`, or, with `dry_run`, only
    /// returns the changes.
    pub fn apply(&self, text: &str, dry_run: bool) -> Result<Changes, ClientError> {
        let target = if dry_run { "/config?dry_run=1" } else { "/config" };
        self.0.json("PUT", target, text.as_bytes())
    }

    /// Returns the metrics of the switch, as text.
    pub fn metrics(&self) -> Result<String, ClientError> {
        self.0.text("/metrics")
    }
}
