//! The other end of the control socket: what `dray switch ports` and its like ask with.

use std::path::Path;

pub use dray_daemon::ClientError;

use crate::config::{Name, PortConfig};
use crate::engine::{PortStats, PortStatus, Status, TableEntry};

/// Asks the switch at a control socket. Every call is a connection of its own.
#[derive(Clone, Debug)]
pub struct Client(dray_daemon::Client);

impl Client {
    /// For the switch at `socket`.
    pub fn new(socket: &Path) -> Self {
        Self(dray_daemon::Client::new(socket, "dray switch"))
    }

    /// How the switch is.
    pub fn status(&self) -> Result<Status, ClientError> {
        self.0.json("GET", "/", b"")
    }

    /// Its ports.
    pub fn ports(&self) -> Result<Vec<PortStatus>, ClientError> {
        self.0.json("GET", "/ports", b"")
    }

    /// What was counted at its ports.
    pub fn stats(&self) -> Result<Vec<PortStats>, ClientError> {
        self.0.json("GET", "/stats", b"")
    }

    /// The stations it knows, of all ports or of one.
    pub fn table(&self, port: Option<&Name>) -> Result<Vec<TableEntry>, ClientError> {
        match port {
            None => self.0.json("GET", "/table", b""),
            Some(port) => self.0.json("GET", &format!("/table?port={port}"), b""),
        }
    }

    /// Makes it forget them.
    pub fn flush_table(&self) -> Result<(), ClientError> {
        self.0.ask("DELETE", "/table", b"").map(drop)
    }

    /// Adds a port, and returns how it is.
    pub fn add_port(&self, port: &PortConfig) -> Result<PortStatus, ClientError> {
        let body = serde_json::to_vec(port).expect("a port has a form in JSON");
        self.0.json("POST", "/ports", &body)
    }

    /// Removes a port.
    pub fn remove_port(&self, name: &Name) -> Result<(), ClientError> {
        self.0.ask("DELETE", &format!("/ports/{name}"), b"").map(drop)
    }

    /// Its configuration as a TOML file.
    pub fn config(&self) -> Result<String, ClientError> {
        let bytes = self.0.ask("GET", "/config", b"")?;
        String::from_utf8(bytes).map_err(|error| self.0.broken(&error))
    }
}
