//! Configuration of the switch: from a TOML file, as JSON over HTTP, or from the command line.

mod check;
mod error;
mod keys;
mod name;
mod pairs;
mod port;
mod rate;
mod reserved;
mod text;
mod vlan;

use dray_daemon::{ControlAddress, MetricsAddress};
use dray_datapath::Idle;
use dray_port::{Bytes, GUARDED_IN_ALL};
use serde::{Deserialize, Serialize};

use crate::table;

pub(crate) use check::wrong_mirror;
pub use error::ConfigError;
pub use keys::{KEYS, Key, Keys};
pub use name::{Name, NameError};
pub use pairs::{PairError, Pairs};
pub use port::{MACS_MAX, PortConfig, PortError};
pub use rate::{BitRate, Burst, FrameRate, Rate, RateError};
pub use reserved::Reserved;
pub use text::{FILE_MAX, from_json, read_file};
pub use vlan::{Vlan, VlanError, VlanId};

/// Default path of the control socket, outside of labs.
pub const CONTROL: &str = "/run/dray/switch.sock";

/// How the switch chooses the port for a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Ports come in pairs; each transmits what the other receives.
    Patch,
    /// MAC learning: a frame goes to the port where its destination was last seen, or to all ports.
    #[default]
    Learning,
}

/// How the switch handles a full receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flow {
    /// The frame is dropped and counted.
    #[default]
    Drop,
    /// The sender waits (patch mode only: in learning mode one slow receiver would stop all
    /// senders).
    Backpressure,
}

/// Configuration of a switch. Call [`check`](Self::check) before use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SwitchConfig {
    /// How the switch chooses the port for a frame.
    pub mode: Mode,
    /// How the switch handles a full receiver.
    pub flow: Flow,
    /// One worker on each of these CPUs; if empty, one worker on a CPU that the caller chooses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
    /// When an idle worker goes to sleep.
    pub idle: Idle,
    /// Seconds after which a silent station expires (learning mode).
    pub age_s: u16,
    /// Capacity of the table in stations (learning mode).
    pub table_size: usize,
    /// Maximum number of stations learned on one port.
    pub port_addresses: u32,
    /// Maximum memory that the peers of all ports may share together.
    pub peer_memory: Bytes,
    /// Path of the control socket, and the rights of its file.
    pub control: ControlAddress,
    /// TCP address at which metrics are served, if at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<MetricsAddress>,
    /// Ports that exist from the start.
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
            control: dray_daemon::default_control(CONTROL).into(),
            metrics: None,
            ports: Vec::new(),
        }
    }
}

impl SwitchConfig {
    /// Creates the table with the configured limits.
    pub fn table(&self) -> table::Table {
        table::Table::new(self.table_size, self.port_addresses)
    }
}

#[cfg(test)]
mod tests;
