//! State for the process after this one, on the same pages after a crash or a restart and at a
//! take-over.
//!
//! Counters and positions of the queues are in memory that both processes map. Peers stay
//! connected.

use dray_service::{Page, Program, Sockets, monotonic_s};
use serde::{Deserialize, Serialize};

use crate::config::{Name, PortConfig, SwitchConfig};
use crate::control::{PortStats, TableEntry};

/// The program, with the version of the state. Two processes must have the same.
pub(crate) const PROGRAM: Program = Program { name: "switch", command: "dray switch", format: 4 };

pub(crate) type Recorder = dray_service::Recorder<OwnPort>;

/// State of a switch, apart from its ports.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    /// Configuration without ports, as TOML.
    pub(crate) settings: String,
    /// Time of this description, on the machine's monotonic clock.
    pub(crate) at_s: f64,
    /// True if the switch has ended by an order.
    pub(crate) has_ended: bool,
    /// All ports, in order.
    pub(crate) ports: Vec<PortConfig>,
    /// Names of the ports of the configuration, and of those of the command line among them.
    pub(crate) configured: Vec<Name>,
    pub(crate) given: Vec<Name>,
    /// Learned stations.
    pub(crate) stations: Vec<TableEntry>,
    pub(crate) uptime_s: f64,
    /// Seconds since the last reset of the counters, and what they were then.
    pub(crate) reset: Option<(f64, Vec<PortStats>)>,
}

/// The switch's own part of the page of a port; the memory of the port are its counters.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnPort {
    pub(crate) config: PortConfig,
    /// The partner of the port in patch mode.
    pub(crate) partner: Option<Name>,
}

/// Settings and sockets that a switch leaves to the process after it.
pub(crate) struct Leaving {
    pub(crate) settings: String,
    pub(crate) sockets: Sockets,
}

impl Leaving {
    pub(crate) fn new(config: &SwitchConfig, sockets: Sockets) -> Self {
        let settings = SwitchConfig { ports: Vec::new(), ..config.clone() }.to_toml();
        Self { settings, sockets }
    }

    /// Returns the page of the state.
    pub(crate) fn page(&self, state: State) -> Page<'_> {
        let state = State { settings: self.settings.clone(), at_s: monotonic_s(), ..state };
        Page::of_state(&PROGRAM, &state, &self.sockets, [])
    }
}
