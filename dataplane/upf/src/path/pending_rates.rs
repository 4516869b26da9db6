//! Rates of packets that wait for their next hop: a packet is counted in them once it leaves.

use dray_datapath::Sharing;
use dray_wire::gtpu::Direction;

use super::sessions::Sessions;
use super::shaping_queue::ShapingQueue;
use crate::meter::Patience;
use crate::session::{Counting, LISTED};

/// Rates in which a packet has to be counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRates {
    seid: u64,
    /// Number of the session.
    pub(super) slot: u32,
    meters: [u8; LISTED],
    /// Length of the packet in bytes; 0 in its fragments but for the first.
    len: u16,
}

impl PendingRates {
    pub(super) fn new((seid, slot): (u64, u32), meters: [u8; LISTED], len: usize) -> Self {
        Self { seid, slot, meters, len: len as u16 }
    }

    /// Returns the rates of the further fragments of a packet: its first fragment counts all of it.
    pub(super) fn reserved(self) -> Self {
        Self { len: 0, ..self }
    }

    /// Counts the packet at the tick `now`; returns the tick from which it may leave. `None` if its
    /// session has no room for it to wait.
    pub(super) fn reserve(
        &self,
        sessions: &Sessions,
        shaped: &ShapingQueue,
        (direction, sharing): (Direction, Sharing),
        now: u64,
    ) -> Option<u64> {
        let Self { slot, len, meters, .. } = *self;
        // The session may have ended, and its number be another one's.
        let session = sessions.slots.get(slot as usize).filter(|it| it.seid == self.seid);
        let Some(session) = session else { return Some(0) };
        if !shaped.may_wait(slot) {
            return None;
        }
        let (accounts, len) = (&*sessions.accounts, len.into());
        let packet = Counting { accounts, slot, direction, len, now, sharing };
        session.reserve(meters, &packet, Patience::Endless)
    }
}
