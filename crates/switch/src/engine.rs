//! What the control interface asks of the data path, and what it is answered.

use std::collections::BTreeMap;

use dray_wire::MacAddr;
use serde::{Deserialize, Serialize};

use crate::config::{Flow, Mode, Name, PairError, PortConfig};
use crate::counters::Counters;

/// The running data path, as control threads see it. Every call returns soon, and none disturbs the
/// ports that it is not about.
pub trait Engine: Send + Sync {
    /// Adds a port.
    fn add_port(&self, port: &PortConfig) -> Result<(), EngineError>;
    /// Removes a port, and what was learned on it.
    fn remove_port(&self, name: &str) -> Result<(), EngineError>;
    /// How the switch is.
    fn status(&self) -> Status;
    /// The ports, in the order of adding.
    fn ports(&self) -> Vec<PortStatus>;
    /// The stations of the learning mode, learned or pinned, ordered by VLAN and address.
    fn table(&self) -> Vec<TableEntry>;
    /// Forgets all stations that were learned.
    fn flush_table(&self);
}

/// A port could not be added or removed; everything is as it was.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum EngineError {
    /// There is a port of this name.
    #[error("port {0:?}: the name is taken")]
    NameTaken(String),
    /// There is no port of this name.
    #[error("port {0:?}: there is none of this name")]
    NoSuchPort(String),
    /// An address is pinned to another port.
    #[error("port {0:?}: mac: {1} is pinned to port {2:?}; an address belongs to one port")]
    AddressTaken(String, MacAddr, String),
    /// The pair that it asks for cannot be.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// The switch has all the ports that it can have.
    #[error("port {0:?}: the switch has {1} ports and takes no more")]
    TooManyPorts(String, usize),
    /// The port takes privileges that the switch has given up.
    #[error(
        "port {uri:?}: a switch in its sandbox opens no interfaces; name the port when the switch \
         starts, or start it with --sandbox off"
    )]
    Sandboxed {
        /// The port.
        uri: String,
    },
    /// The port cannot be opened: the message says which, and why.
    #[error("{0}")]
    Open(String),
}

/// How the switch is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Of dray.
    pub version: String,
    /// Seconds since it was started.
    pub uptime_s: f64,
    /// How frames find their port.
    pub mode: Mode,
    /// What happens when a receiver is full.
    pub flow: Flow,
    /// Number of ports.
    pub ports: usize,
    /// Number of known stations.
    pub stations: usize,
    /// Who moves the frames.
    pub workers: Vec<WorkerStatus>,
}

/// How a worker is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// The CPU it is pinned to.
    pub cpu: u32,
    /// The ports it receives from.
    pub ports: Vec<Name>,
    /// Share of the last second in which it had frames to move, 0 to 1.
    pub load: f64,
    /// Time since it started in which it had frames to move, in seconds.
    pub work_s: f64,
    /// How often it went to sleep.
    pub sleeps: u64,
}

/// How far a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortState {
    /// No peer is connected.
    Waiting,
    /// A peer is connected and has not started its queues.
    Connected,
    /// Frames can pass.
    Running,
    /// It failed and nothing has passed since; the last disconnect says why.
    Failed,
}

impl PortState {
    /// The word for it in JSON and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Connected => "connected",
            Self::Running => "running",
            Self::Failed => "failed",
        }
    }
}

/// How a port is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatus {
    /// What was asked for; its keys are the object's own.
    #[serde(flatten)]
    pub config: PortConfig,
    /// How far it is.
    pub state: PortState,
    /// The port it exchanges frames with (patch mode).
    pub partner: Option<Name>,
    /// The CPU of the worker that receives from it.
    pub cpu: u32,
    /// Queue pairs in use.
    pub queues: u16,
    /// What was negotiated with the peer, by the standard's names.
    pub features: Vec<String>,
    /// Stations learned on it.
    pub stations: u32,
    /// Why the last peer is gone.
    pub last_disconnect: Option<String>,
    /// How many peers went, by reason.
    pub disconnects: BTreeMap<String, u64>,
    /// What was counted.
    pub counters: Counters,
}

/// What was counted at a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStats {
    /// The port.
    pub name: Name,
    /// Frames, bytes, drops; its keys are the object's own.
    #[serde(flatten)]
    pub counters: Counters,
    /// How many peers went, by reason.
    pub disconnects: BTreeMap<String, u64>,
}

impl From<PortStatus> for PortStats {
    fn from(port: PortStatus) -> Self {
        let PortStatus { config, counters, disconnects, .. } = port;
        Self { name: config.name, counters, disconnects }
    }
}

/// A known station.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableEntry {
    /// Its VLAN; 0 for ports that know none, and for an address that is pinned to a trunk: it is so
    /// in all the trunk's VLANs.
    pub vlan: u16,
    /// Its address.
    pub mac: MacAddr,
    /// The port it is behind.
    pub port: Name,
    /// Seconds since it was last heard of; 0 where it is pinned.
    pub age_s: u32,
    /// It is pinned to its port: it was not learned, and is not forgotten.
    #[serde(default)]
    pub pinned: bool,
}
