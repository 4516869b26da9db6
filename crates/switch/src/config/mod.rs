//! What the switch is told, in a TOML file, over HTTP as JSON, or on the command line.

mod check;
mod idle;
mod name;
mod pairs;
mod port;
mod rate;
mod text;
mod vlan;

use std::path::PathBuf;

use dray_port::{Bytes, GUARDED_IN_ALL};
use serde::{Deserialize, Serialize};

use crate::table;

pub use check::ConfigError;
pub use idle::{Idle, IdleError};
pub use name::{Name, NameError};
pub use pairs::{PairError, Pairs};
pub use port::{Keys, MACS_MAX, PortConfig, PortError, parse_macs, parse_trunk};
pub use rate::{BitRate, Burst, FrameRate, Rate, RateError};
pub use text::from_json;
pub use vlan::{Vlan, VlanError, VlanId};

/// Where the control socket is unless told otherwise.
pub const CONTROL: &str = "/run/dray/switch.sock";

/// How frames find their port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Ports come in pairs; what one receives the other transmits.
    Patch,
    /// MAC learning: to the port where the destination was last heard of, or to all.
    #[default]
    Learning,
}

/// What happens when a receiver is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flow {
    /// The frame is dropped and counted.
    #[default]
    Drop,
    /// The sender is held back (patch mode only: elsewhere one slow receiver would stop all).
    Backpressure,
}

/// All that a switch is told. Call [`check`](Self::check) before use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SwitchConfig {
    /// How frames find their port.
    pub mode: Mode,
    /// What happens when a receiver is full.
    pub flow: Flow,
    /// One worker on each of these CPUs; none: one worker where the caller thinks best.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
    /// When a worker without work goes to sleep.
    pub idle: Idle,
    /// Seconds after which a silent station is forgotten (learning mode).
    pub age_s: u16,
    /// Room for this many stations (learning mode).
    pub table_size: usize,
    /// Of which one port may have so many.
    pub port_addresses: u32,
    /// The most memory that the peers of all ports may share together.
    pub peer_memory: Bytes,
    /// The control socket.
    pub control: PathBuf,
    /// The ports to begin with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortConfig>,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            flow: Flow::default(),
            cpus: Vec::new(),
            idle: Idle::default(),
            // As IEEE 802.1Q recommends.
            age_s: 300,
            table_size: 65_536,
            port_addresses: 4096,
            peer_memory: Bytes(GUARDED_IN_ALL),
            control: CONTROL.into(),
            ports: Vec::new(),
        }
    }
}

impl SwitchConfig {
    /// The table that this asks for.
    pub fn table(&self) -> table::Table {
        table::Table::new(self.table_size, self.port_addresses)
    }
}

#[cfg(test)]
mod tests;
