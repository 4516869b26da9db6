//! Status of a port's link to its peer.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Connection state of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// No peer is connected.
    #[default]
    Waiting,
    /// A peer is connected; negotiation is not complete.
    Connected,
    /// Frames can pass.
    Running,
}

/// Status of a port's link to its peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// The connection state.
    pub state: LinkState,
    /// The negotiated features.
    pub features: Vec<String>,
    /// Number of earlier peers by the reason for which they were disconnected.
    pub ends: BTreeMap<String, u64>,
    /// The reason for which the last peer was disconnected.
    pub last_end: Option<String>,
    /// Time of the last end, in seconds of the Unix epoch.
    #[serde(default)]
    pub last_end_at: Option<u64>,
    /// Reason for which the last attempt to reach a peer failed; `None` for a port that listens,
    /// and after a peer was reached.
    pub unreachable: Option<String>,
}

impl LinkStatus {
    /// Maximum number of distinct reasons; a hostile peer can cause any number.
    const ENDS_MAX: usize = 32;

    /// Returns why frames cannot pass; `None` if they can.
    pub fn reason(&self) -> Option<String> {
        let unknown = match self.state {
            LinkState::Running => return None,
            LinkState::Waiting => "none has connected",
            LinkState::Connected => "connected, but still negotiating",
        };
        let known = self.unreachable.as_ref().or(self.last_end.as_ref());
        Some(known.map_or(unknown.to_owned(), Clone::clone))
    }

    pub(crate) fn ended(&mut self, why: &str) {
        self.last_end = Some(why.to_owned());
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.last_end_at = now.ok().map(|now| now.as_secs());
        let key = if self.ends.len() < Self::ENDS_MAX || self.ends.contains_key(why) {
            why
        } else {
            "other"
        };
        *self.ends.entry(key.to_owned()).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_known_reason_is_given() {
        let mut status = LinkStatus::default();
        assert_eq!(status.reason().as_deref(), Some("none has connected"));
        status.state = LinkState::Connected;
        assert_eq!(status.reason().as_deref(), Some("connected, but still negotiating"));
        status.state = LinkState::Waiting;
        status.ended("the peer disconnected");
        assert_eq!(status.reason().as_deref(), Some("the peer disconnected"));
        assert!(status.last_end_at.is_some_and(|at| at > 1_700_000_000));
        status.unreachable = Some("nothing listens there".to_owned());
        assert_eq!(status.reason().as_deref(), Some("nothing listens there"));
        status.state = LinkState::Running;
        assert_eq!(status.reason(), None);
    }
}
