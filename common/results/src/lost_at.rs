//! Places at which frames are lost.

use serde::{Deserialize, Serialize};

/// Number of lost frames by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LostAt {
    /// Frames that the sending interface dropped (`tx_dropped`) because the queue of the CPU that
    /// should have received them was full.
    pub interface: u64,
    /// Frames that entered one end of the link and did not leave the other.
    pub link: u64,
    /// Frames dropped because the socket receive buffer of a receiver or forwarder was full.
    pub socket: u64,
    /// Frames that a forwarder could not transmit.
    pub forwarder: u64,
}

impl LostAt {
    /// Sum over all places.
    pub fn total(&self) -> u64 {
        self.interface + self.link + self.socket + self.forwarder
    }
}

impl std::ops::AddAssign for LostAt {
    fn add_assign(&mut self, other: Self) {
        self.interface += other.interface;
        self.link += other.link;
        self.socket += other.socket;
        self.forwarder += other.forwarder;
    }
}
