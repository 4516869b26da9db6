//! State of a port's link to its peer.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dray_bpf::BypassEntry;
use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

use crate::session::snapshot::Frozen;

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
    /// Why the last attempt to reach a peer failed; `None` for a port that listens, and once a peer
    /// was reached.
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

/// A port's link to its peer.
pub trait Link: Send + Sync {
    /// Returns the present status.
    fn status(&self) -> LinkStatus;

    /// Moves the port's control thread, if it has one, to these CPUs. Does nothing if that is not
    /// permitted.
    fn move_control(&self, _cpus: &CpuSet) {}

    /// Stops the control thread, so that another process can continue the port; `None` if that is
    /// not possible for this kind of port. Waits at most `patience` for a message that it handles.
    fn freeze(&self, _patience: Duration) -> Option<io::Result<Frozen<'_>>> {
        None
    }

    /// Returns the number of changes of what [`freeze`](Self::freeze) describes.
    fn changes(&self) -> u64 {
        0
    }

    /// Returns the entry of the port in a bypass: the kernel may forward its frames instead of the port's user.
    fn bypass(&self) -> Option<&BypassEntry> {
        None
    }

    /// Returns true if no frame can pass: no peer is connected, or its queues are stopped; or the
    /// interface is down. A port that does not know its peer's end returns false. For a thread that looks
    /// at it a few times a second: a peer that left and came back since is told of as well, if that is
    /// known.
    fn is_down(&self) -> bool {
        false
    }

    /// Registers `forget`, which is called each time that a peer has left, before the next one is
    /// accepted.
    fn on_end(&self, forget: Box<dyn Fn() + Send + Sync>) {
        drop(forget);
    }

    /// Registers `tell`, which is called after each such change.
    fn on_change(&self, tell: Box<dyn Fn() + Send + Sync>) {
        drop(tell);
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
