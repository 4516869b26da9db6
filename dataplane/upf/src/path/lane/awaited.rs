//! Packets that wait for the Ethernet address of their next hop.

use arrayvec::ArrayVec;
use dray_port::{Frame, clock};
use dray_wire::MacAddr;

use super::super::egress_queue::Sort;
use super::super::head::CHUNK;
use super::super::toll::Toll;
use super::super::unresolved::Lost;
use super::Lane;
use super::departures::Leaving;
use super::fates::{Batch, drop_sort, keep, lose, send, wait};
use crate::counters::DropReason;
use crate::neighbours::HOPS_MAX;

impl Lane {
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
        leaving: &Leaving,
        hop: u16,
    ) -> Option<Vec<u8>> {
        let sort = if self.is_own { Sort::Own } else { Sort::Packet };
        let Self { heads, to, worker, tap, unresolved, counters, toll, .. } = self;
        let frame = leaving.frame(frame, heads);
        wait((&frame, sort), (hop, *toll), (to, *worker, tap), unresolved, counters)
    }

    /// Transmits a message of our own to a next hop, or keeps it until the next hop is known. The
    /// destination in its Ethernet header is 0.
    #[cold]
    pub(crate) fn send_own(&mut self, hop: u16, message: &[u8]) {
        let mac = self.mac_of(hop);
        self.make_room(1);
        let Self { to, worker, tap, held, unresolved, counters, moved, .. } = self;
        let message = Frame::from(message);
        match mac {
            Some(MacAddr(mac)) => {
                let message = message.with_head(&mac, mac.len()..message.len());
                send(&[message], |_| Sort::Own, (to, *worker, tap), held, counters, moved);
            }
            // The sender of the packet that makes room is not told.
            None => {
                wait((&message, Sort::Own), (hop, None), (to, *worker, tap), unresolved, counters);
            }
        }
    }

    /// Transmits packets whose next hop has an Ethernet address now, while the egress port has room;
    /// returns true if there were any.
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
                    // The others leave once the port has taken these: newer packets wait behind them.
                    self.unresolved.learned = learned.wrapping_sub(1);
                    return any;
                }
                // Packets of the same session that left earlier.
                self.release_later(clock::ticks());
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
        let Self { direction, sharing, sessions, later, lag, .. } = self;
        let Self { unresolved, to, worker, tap, held, counters, moved, .. } = self;
        let now = clock::ticks() - *lag;
        unresolved.release(hop, mac, |frames, notes| {
            let are_own = notes.first().is_some_and(|(sort, _)| *sort == Sort::Own);
            to.neighbours.leave(hop, frames.len() as u16, are_own);
            if are_own {
                counters.made(frames.len(), to.transmit(tap, *worker, frames));
                return;
            }
            let (mut batch, mut sorts) = (Batch::new(), ArrayVec::<Sort, CHUNK>::new());
            for (frame, (sort, toll)) in frames.iter().zip(notes) {
                let pay = |toll: &Toll| toll.pay(sessions, later, (*direction, *sharing), now);
                match (toll.as_ref().map_or(Some(0), pay), toll) {
                    (Some(from), Some(toll)) if from > now => {
                        keep((frame, *sort), (toll.slot, from), later, counters);
                    }
                    (Some(_), _) => {
                        batch.push(*frame);
                        sorts.push(*sort);
                    }
                    (None, _) => drop_sort(counters, DropReason::Policed, *sort),
                }
            }
            send(&batch, |index| sorts[index], (to, *worker, tap), held, counters, moved);
        });
    }

    /// Drops a packet that has waited for its next hop for too long; `None` if no packet has.
    /// Returns its frame if its sender must be notified.
    pub(crate) fn expire(&mut self, now: u64) -> Option<Option<Vec<u8>>> {
        let Self { to, tap, unresolved, counters, .. } = self;
        let mut told = None;
        let lost =
            |lost: Lost<'_>| told = lose(&lost, to, tap, counters).then(|| lost.frame.to_vec());
        unresolved.expire(now, lost).then_some(told)
    }

    /// Drops all packets that wait for next hops.
    pub(crate) fn abandon(&mut self) {
        while self.expire(u64::MAX).is_some() {}
    }
}
