//! What is known of a port's peer.

use std::collections::BTreeMap;

use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

/// Where a port and its peer stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// No peer is there.
    #[default]
    Waiting,
    /// A peer is there and has not said all that is needed.
    Connected,
    /// Frames can pass.
    Running,
}

/// A port's peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Where port and peer stand.
    pub state: LinkState,
    /// What they agreed on.
    pub features: Vec<String>,
    /// Why earlier peers are gone, and how many of them.
    pub ends: BTreeMap<String, u64>,
    /// Why the last one is.
    pub last_end: Option<String>,
}

impl LinkStatus {
    /// Different reasons that are kept apart; a hostile peer can make up any number.
    const ENDS_MAX: usize = 32;

    pub(crate) fn ended(&mut self, why: &str) {
        self.last_end = Some(why.to_owned());
        let key = if self.ends.len() < Self::ENDS_MAX || self.ends.contains_key(why) {
            why
        } else {
            "other"
        };
        *self.ends.entry(key.to_owned()).or_default() += 1;
    }
}

/// Something that knows of a port's peer.
pub trait Link: Send + Sync {
    /// How it is now.
    fn status(&self) -> LinkStatus;

    /// Moves the port's control thread, if it has one, to these CPUs. Does nothing where that is not
    /// allowed.
    fn move_control(&self, _cpus: &CpuSet) {}
}
