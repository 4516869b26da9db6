//! Interface between control threads and the data path.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use dray_capture::Captures;
use dray_port::Fill;
use dray_wire::MacAddr;
use serde::{Deserialize, Serialize};

use crate::changes::Changes;
use crate::config::{Flow, Mode, Name, PortConfig, SwitchConfig};
use crate::counters::Counters;
use crate::error::SwitchError;

/// The running data path, as control threads see it. Every call returns soon and does not disturb
/// ports that it does not concern.
pub trait SwitchControl: Send + Sync {
    /// Adds a port. With `descriptors`, whose number is `port.fd`, the port uses these instead of
    /// opening what its URI names.
    fn add_port(&self, port: &PortConfig, descriptors: Vec<OwnedFd>) -> Result<(), SwitchError>;
    /// Checks that no address to be pinned to `port` is a station behind another port in one of the
    /// VLANs of `port`.
    fn check_addresses(&self, port: &PortConfig) -> Result<(), SwitchError>;
    /// Removes a port and the stations learned on it.
    fn remove_port(&self, name: &str) -> Result<(), SwitchError>;
    /// Changes the [configured](Self::configured) ports to those of `config`, which must have been
    /// checked; with an error, or with `dry_run`, nothing changes. Ports that were added one by
    /// one or given on the command line stay.
    fn apply(&self, config: &SwitchConfig, dry_run: bool) -> Result<Changes, SwitchError>;
    /// Returns the names of the ports of the configuration: those of the command line, and those of
    /// the file that was applied last, or that the switch started with.
    fn configured(&self) -> Vec<Name>;
    /// Returns the status of the switch.
    fn status(&self) -> Status;
    /// Checks that all workers publish; the error names those that do not. Takes two seconds if one
    /// does not.
    fn check_alive(&self) -> Result<(), String>;
    /// Returns the ports, in the order of adding.
    fn ports(&self) -> Vec<PortStatus>;
    /// Returns the stations of learning mode, learned or pinned, ordered by VLAN and address.
    fn table(&self) -> Vec<TableEntry>;
    /// Returns the captures of the ports' frames.
    fn captures(&self) -> Arc<Captures>;
    /// Removes all learned stations.
    fn flush_table(&self);
    /// Returns the counters since the last [`reset_stats`](Self::reset_stats), in the order of
    /// [`ports`](Self::ports).
    fn stats_since_reset(&self) -> Vec<PortStats>;
    /// Makes [`stats_since_reset`](Self::stats_since_reset) count from zero. The counters of
    /// [`ports`](Self::ports) are unaffected.
    fn reset_stats(&self);
}

/// Status of the switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of dray.
    pub version: String,
    /// Seconds since the switch was started.
    pub uptime_s: f64,
    /// Seconds since the last reset of the counters, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_s: Option<f64>,
    /// How the switch chooses the port for a frame.
    pub mode: Mode,
    /// How the switch handles a full receiver.
    pub flow: Flow,
    /// Number of ports.
    pub ports: usize,
    /// Number of known stations.
    pub stations: usize,
    /// Workers, the threads that move frames.
    pub workers: Vec<WorkerStatus>,
}

/// Status of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// CPU that the worker is pinned to.
    pub cpu: u32,
    /// Ports that the worker receives from.
    pub ports: Vec<Name>,
    /// Share of the last second in which the worker had frames to move, 0 to 1.
    pub load: f64,
    /// Time since its start in which the worker had frames to move, in seconds.
    pub work_s: f64,
    /// Number of times that the worker went to sleep.
    pub sleeps: u64,
    /// Number of batches that the worker has moved.
    #[serde(default)]
    pub batches: u64,
    /// Number of frames in these batches.
    #[serde(default)]
    pub frames: u64,
}

/// Progress of a port towards forwarding frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortState {
    /// No peer is connected.
    Waiting,
    /// A peer is connected and has not started its queues.
    Connected,
    /// Frames can pass.
    Running,
    /// The port failed and no frame has passed since; the last disconnect gives the reason.
    Failed,
}

impl PortState {
    /// Returns the name of the state in JSON and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Connected => "connected",
            Self::Running => "running",
            Self::Failed => "failed",
        }
    }
}

/// Status of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatus {
    /// Configuration of the port; its keys are at the top level of the object.
    #[serde(flatten)]
    pub config: PortConfig,
    /// State of the port.
    pub state: PortState,
    /// Port that this one exchanges frames with (patch mode).
    pub partner: Option<Name>,
    /// CPU of the worker that receives from the port.
    pub cpu: u32,
    /// Number of queue pairs in use.
    pub queues: u16,
    /// Features negotiated with the peer, by the standard's names.
    pub features: Vec<String>,
    /// Number of stations learned on the port.
    pub stations: u32,
    /// Why no peer could be reached at the last attempt, if the port connects to its peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
    /// Reason for the last disconnect.
    pub last_disconnect: Option<String>,
    /// Time of the last disconnect, in seconds of the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_disconnect_at: Option<u64>,
    /// Number of disconnects by reason.
    pub disconnects: BTreeMap<String, u64>,
    /// Fill of the rings on which the peer sends, for transports with rings that have a peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_ring: Option<Fill>,
    /// Fill of the rings on which the peer receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transmit_ring: Option<Fill>,
    /// Bypass of a port that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bypass: Option<BypassStatus>,
    /// Counters of the port.
    pub counters: Counters,
}

/// Frames that the kernel forwards from container to container, instead of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BypassStatus {
    /// True if frames may pass that way now.
    #[serde(rename = "open")]
    pub is_open: bool,
    /// Received frames of the port that passed that way.
    pub rx_frames: u64,
    /// Transmitted frames of the port that passed that way.
    pub tx_frames: u64,
}

/// Counters of a port, with its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStats {
    /// Name of the port.
    pub name: Name,
    /// Frames, bytes, drops; the keys are at the top level of the object.
    #[serde(flatten)]
    pub counters: Counters,
    /// Number of disconnects by reason.
    pub disconnects: BTreeMap<String, u64>,
}

impl From<PortStatus> for PortStats {
    fn from(port: PortStatus) -> Self {
        let PortStatus { config, counters, disconnects, .. } = port;
        Self { name: config.name, counters, disconnects }
    }
}

impl PortStats {
    /// Returns what was counted after `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let counters = self.counters.since(&earlier.counters);
        let disconnects = self.disconnects.iter().map(|(why, times)| {
            let then = earlier.disconnects.get(why).copied().unwrap_or(0);
            (why.clone(), times.checked_sub(then).unwrap_or(*times))
        });
        let disconnects = disconnects.filter(|(_, times)| *times > 0).collect();
        Self { name: self.name.clone(), counters, disconnects }
    }
}

/// A known station.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableEntry {
    /// VLAN of the station; 0 for ports without VLANs, and for an address pinned to a trunk, which
    /// is pinned in all the trunk's VLANs.
    pub vlan: u16,
    /// Address of the station.
    pub mac: MacAddr,
    /// Port that the station is behind.
    pub port: Name,
    /// Seconds since the station was last seen; 0 if it is pinned.
    pub age_s: u32,
    /// True if the address is pinned to its port: it was not learned, and does not expire.
    #[serde(default)]
    pub pinned: bool,
}
