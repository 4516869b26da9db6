//! Load of a user plane function.

use std::fmt;

use dray_wire::gtpu::Direction;
use serde::{Deserialize, Serialize};

/// Role name of the user plane function.
pub const UPF: &str = "upf";

/// Load of a user plane function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UpfLoad {
    /// Direction of packets.
    #[serde(rename = "way")]
    #[cfg_attr(test, schemars(with = "crate::schema::Way"))]
    pub direction: Direction,
    /// Number of sessions, one per user; packets rotate through them.
    pub sessions: u32,
    /// Packet detection rules per session, half for each direction. Packets match the last one.
    pub pdrs: u16,
}

impl UpfLoad {
    /// Creates a load of `sessions` sessions with `pdrs` rules each, from users to the network.
    pub const fn uplink(sessions: u32, pdrs: u16) -> Self {
        Self { direction: Direction::Uplink, sessions, pdrs }
    }

    /// Creates a load of `sessions` sessions with `pdrs` rules each, from the network to users.
    pub const fn downlink(sessions: u32, pdrs: u16) -> Self {
        Self { direction: Direction::Downlink, sessions, pdrs }
    }
}

/// Formats as `uplink, 8000 sessions of 2 PDRs`.
impl fmt::Display for UpfLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { direction, sessions, pdrs } = self;
        let direction = direction.name();
        write!(f, "{direction}, {sessions} sessions of {pdrs} PDRs")
    }
}
