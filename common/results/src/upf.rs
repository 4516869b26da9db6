//! Load of a user plane function.

use std::fmt;

use dray_wire::gtpu::Direction;
use serde::{Deserialize, Serialize};

/// Role name of the user plane function.
pub const UPF: &str = "upf";

/// Way of packets through a user plane function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Way {
    /// From users, through tunnels, to a server.
    Uplink,
    /// From a server, through tunnels, to users.
    Downlink,
    /// Both at the same time. Rates are sums.
    Both,
}

impl Way {
    /// Returns its directions, in order.
    pub fn directions(self) -> &'static [Direction] {
        match self {
            Self::Uplink => &Direction::ALL[..1],
            Self::Downlink => &Direction::ALL[1..],
            Self::Both => &Direction::ALL,
        }
    }

    /// Returns its name in a few letters.
    pub fn short(self) -> &'static str {
        match self {
            Self::Uplink => "up",
            Self::Downlink => "down",
            Self::Both => "both",
        }
    }
}

/// Load of a user plane function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UpfLoad {
    /// Way of packets.
    pub way: Way,
    /// Number of sessions, one per user; packets rotate through them.
    pub sessions: u32,
    /// Packet detection rules per session, half for each direction. Packets match the last one.
    pub pdrs: u16,
}

impl UpfLoad {
    /// Creates a load of `sessions` sessions with `pdrs` rules each.
    pub const fn new(way: Way, sessions: u32, pdrs: u16) -> Self {
        Self { way, sessions, pdrs }
    }
}

/// Formats as `uplink, 8000 sessions of 2 PDRs`.
impl fmt::Display for UpfLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { way, sessions, pdrs } = self;
        let way = match way {
            Way::Uplink => "uplink",
            Way::Downlink => "downlink",
            Way::Both => "both ways",
        };
        write!(f, "{way}, {sessions} sessions of {pdrs} PDRs")
    }
}
