//! Status of sessions, for control threads.

use serde::{Deserialize, Serialize};

use crate::config::{SessionConfig, Tunnel, teid};
use crate::usage::Counted;

/// Treatment of packets by a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// At least one rule forwards packets, and none buffers any.
    Forwarding,
    /// At least one rule buffers packets for the user.
    Buffering,
    /// All rules drop packets, or their gates are closed.
    Blocked,
}

/// Status of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Session endpoint identifier.
    pub seid: u64,
    /// Treatment of its packets.
    pub state: SessionState,
    /// The user's addresses: IPv4 addresses, and IPv6 prefixes of 64 bits.
    pub ue: Vec<String>,
    /// TEIDs of its tunnels at our end.
    #[serde(with = "teid::list")]
    pub teids: Vec<u32>,
    /// Tunnels of the session at the gNBs' end.
    pub tunnels: Vec<Tunnel>,
    /// Number of buffered packets.
    pub waiting: u16,
    /// Counts of its usage reporting rules.
    pub usage: Vec<UsageStatus>,
    /// Configuration of the session; `None` in lists of sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<SessionConfig>,
}

/// Counts of a usage reporting rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageStatus {
    /// Number of the rule in the session.
    pub urr: u32,
    /// Volume and packets counted so far.
    #[serde(flatten)]
    pub counted: Counted,
}
