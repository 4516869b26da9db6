//! Packets that wait for the rate of their session.

use std::time::Duration;

use dray_port::{Frame, clock};
use dray_wire::MacAddr;

use super::super::egress_queue::FrameClass;
use super::super::header_buffer::CHUNK;
use super::super::sessions::Change;
use super::Forwarder;
use super::fates::{keep, send};
use crate::session::{Rule, Session};

/// Maximum delay of packets beyond their rate. If a thread pauses for longer, the clock of the
/// rates stops.
const LATE: Duration = Duration::from_millis(20);

/// Ticks in which the clock of the rates catches up by one.
const CATCH_UP: u64 = 128;

impl Forwarder {
    /// Transmits the packets that have waited for their rate and may leave at the tick `now`, while
    /// the egress port has room; returns true if there were any.
    #[cold]
    pub(crate) fn release_shaped(&mut self, now: u64) -> bool {
        let Some(next) = self.shaped.next() else { return false };
        // After a pause of the thread, packets that became due meanwhile do not leave all at once:
        // the clock of the rates goes on where it was, and catches up slowly.
        let elapsed = now.saturating_sub(std::mem::replace(&mut self.lag_at, now));
        let caught_up = now - self.lag.saturating_sub(elapsed / CATCH_UP);
        let latest = caught_up.min(next + clock::to_ticks(LATE));
        self.lag = now - latest;
        self.release_until(latest)
    }

    /// Transmits all packets that wait for their rate.
    #[cold]
    pub(crate) fn flush_shaped(&mut self) {
        self.release_until(u64::MAX);
    }

    fn release_until(&mut self, latest: u64) -> bool {
        let mut any = false;
        while self.shaped.next().is_some_and(|from| from <= latest) {
            self.make_room(CHUNK);
            let Self { shaped, to, worker, tap, egress, counters, moved, .. } = self;
            any |= shaped.release(latest, |batch, classes| {
                send(batch, |index| classes[index], (to, *worker, tap), egress, counters, moved);
            });
        }
        if self.shaped.is_empty() {
            self.lag = 0;
        }
        any
    }

    /// Transmits the packets of a session that wait for their rate before the session changes, if
    /// newer ones could overtake them.
    pub(crate) fn expedite(&mut self, change: &Change) {
        let (slot, new) = (change.slot, &change.session);
        if !self.has_shaped() || new.rules.is_empty() {
            return;
        }
        let metered = |rule: &Rule| (rule.pdr, rule.meters);
        let of = |session: &Session| session.rules.iter().map(metered).collect::<Vec<_>>();
        let is_same = self.sessions.slots.get(slot as usize).is_some_and(|old| of(old) == of(new));
        if (change.rates_change || !is_same) && self.shaped.expedite(slot) {
            self.release_until(0);
        }
    }

    /// Transmits an end marker of a session to a next hop, after the packets of the session that
    /// wait for their rate.
    pub(crate) fn send_end_marker(&mut self, slot: u32, hop: u16, marker: &[u8]) {
        let (last, mac) = (self.shaped.last(slot), self.mac_of(hop));
        let (Some(from), Some(MacAddr(mac))) = (last, mac) else {
            return self.send_own(hop, marker);
        };
        let Self { shaped, counters, .. } = self;
        let marker = Frame::from(marker);
        let marker = marker.with_head(&mac, mac.len()..marker.len());
        keep((&marker, FrameClass::Generated), (slot, from), shaped, counters);
    }

    /// Returns the time until the next of the packets that wait for their rate may leave.
    pub(crate) fn next_shaped(&self) -> Option<Duration> {
        let next = self.shaped.next()?;
        Some(clock::to_duration((next + self.lag).saturating_sub(clock::ticks())))
    }

    /// Returns true if packets wait for their rates.
    #[inline(always)]
    pub(crate) fn has_shaped(&self) -> bool {
        !self.shaped.is_empty()
    }
}
