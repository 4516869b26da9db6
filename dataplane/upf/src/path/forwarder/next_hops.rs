//! Packets that wait for the Ethernet address of their next hop.

use arrayvec::ArrayVec;
use dray_port::{Frame, clock};
use dray_wire::MacAddr;

use super::super::egress_queue::FrameClass;
use super::super::header_buffer::CHUNK;
use super::super::pending_rates::PendingRates;
use super::super::unresolved::Lost;
use super::Forwarder;
use super::departures::Departure;
use super::fates::{Batch, drop_frame, keep, lose, send, wait};
use crate::counters::DropReason;
use crate::neighbours::HOPS_MAX;

impl Forwarder {
    /// See [`Unresolved::mac_of`].
    #[inline(always)]
    pub(crate) fn mac_of(&self, hop: u16) -> Option<MacAddr> {
        self.unresolved.mac_of(&self.to, hop)
    }

    /// Returns true if packets wait for next hops.
    #[inline(always)]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.unresolved.is_empty()
    }

    /// Keeps a packet until its next hop is known. Returns another one that was dropped for it, if
    /// its sender must be notified.
    #[cold]
    pub(crate) fn wait(
        &mut self,
        frame: &Frame<'_>,
        leaving: &Departure,
        hop: u16,
    ) -> Option<Vec<u8>> {
        let class = if self.is_generated { FrameClass::Generated } else { FrameClass::Packet };
        let Self { headers, to, worker, tap, unresolved, counters, pending, .. } = self;
        let frame = leaving.frame(frame, headers);
        wait((&frame, class), (hop, *pending), (to, *worker, tap), unresolved, counters)
    }

    /// Transmits a message of our own to a next hop, or keeps it until the next hop is known. The
    /// destination in its Ethernet header must be 0.
    #[cold]
    pub(crate) fn send_own(&mut self, hop: u16, message: &[u8]) {
        let mac = self.mac_of(hop);
        self.make_room(1);
        let Self { to, worker, tap, egress, unresolved, counters, moved, .. } = self;
        let message = Frame::from(message);
        match mac {
            Some(MacAddr(mac)) => {
                let message = message.with_head(&mac, mac.len()..message.len());
                send(
                    &[message],
                    |_| FrameClass::Generated,
                    (to, *worker, tap),
                    egress,
                    counters,
                    moved,
                );
            }
            // The sender of the packet that is dropped for it gets no ICMP error.
            None => {
                wait(
                    (&message, FrameClass::Generated),
                    (hop, None),
                    (to, *worker, tap),
                    unresolved,
                    counters,
                );
            }
        }
    }

    /// Transmits packets whose next hop has an Ethernet address now, while the egress port has
    /// room; returns true if there were any.
    pub(crate) fn release_resolved(&mut self) -> bool {
        let learned = self.to.neighbours.learned();
        if std::mem::replace(&mut self.unresolved.learned, learned) == learned {
            return false;
        }
        let mut any = false;
        for hop in 0..HOPS_MAX as u16 {
            while self.unresolved.is_awaited(hop)
                && let Some(mac) = self.to.mac_of(hop)
            {
                if self.is_full() {
                    // The others leave once the port has taken these: newer packets wait behind
                    // them.
                    self.unresolved.learned = learned.wrapping_sub(1);
                    return any;
                }
                // Packets of the same session that were admitted earlier leave first.
                self.release_shaped(clock::ticks());
                self.make_room(CHUNK);
                self.release_hop(hop, mac);
                any = true;
            }
        }
        any
    }

    /// Transmits the first packets that wait for a next hop with the address `mac`, or delays them
    /// for their rates.
    fn release_hop(&mut self, hop: u16, mac: MacAddr) {
        let Self { direction, sharing, sessions, shaped, lag, .. } = self;
        let Self { unresolved, to, worker, tap, egress, counters, moved, .. } = self;
        let now = clock::ticks() - *lag;
        unresolved.release(hop, mac, |frames, notes| {
            let are_own = notes.first().is_some_and(|(class, _)| *class == FrameClass::Generated);
            to.neighbours.leave(hop, frames.len() as u16, are_own);
            if are_own {
                counters.made(frames.len(), to.transmit(tap, *worker, frames));
                return;
            }
            let (mut batch, mut classes) = (Batch::new(), ArrayVec::<FrameClass, CHUNK>::new());
            for (frame, (class, pending)) in frames.iter().zip(notes) {
                let pay = |pending: &PendingRates| {
                    pending.reserve(sessions, shaped, (*direction, *sharing), now)
                };
                match (pending.as_ref().map_or(Some(0), pay), pending) {
                    (Some(from), Some(pending)) if from > now => {
                        keep((frame, *class), (pending.slot, from), shaped, counters);
                    }
                    (Some(_), _) => {
                        batch.push(*frame);
                        classes.push(*class);
                    }
                    (None, _) => drop_frame(counters, DropReason::Policed, *class),
                }
            }
            send(&batch, |index| classes[index], (to, *worker, tap), egress, counters, moved);
        });
    }

    /// Drops a packet that has waited for its next hop for too long; `None` if no packet has.
    /// Returns its frame if its sender must be notified.
    pub(crate) fn expire(&mut self, now: u64) -> Option<Option<Vec<u8>>> {
        let Self { to, tap, unresolved, counters, .. } = self;
        let mut to_notify = None;
        let lost = |lost: Lost<'_>| {
            to_notify = lose(&lost, to, tap, counters).then(|| lost.frame.to_vec());
        };
        unresolved.expire(now, lost).then_some(to_notify)
    }

    /// Drops all packets that wait for next hops.
    pub(crate) fn abandon(&mut self) {
        while self.expire(u64::MAX).is_some() {}
    }
}
