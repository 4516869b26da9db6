//! The passes of a chunk of packets: parse the headers and prefetch the bucket in the table; find
//! the session and prefetch it; prefetch what it points to; check and rewrite; transmit.

use arrayvec::ArrayVec;
use dray_capture::Kind;
use dray_port::{Frame, clock};
use dray_wire::icmp::Problem;

use super::head::CHUNK;
use super::lane::{Departures, Lane, Leaving};
use super::reading::{self, Unread};
use super::sessions::Change;
use crate::counters::DropReason;

/// A user's packet between two passes.
pub(crate) trait Item {
    /// Returns the number of its frame in the chunk, and the key of its session.
    fn place(&self) -> (usize, u64);

    /// Number of its session; before that is found, of the bucket to look for it in.
    fn slot(&mut self) -> &mut u32;
}

/// Why a packet is not forwarded as it is.
pub(crate) enum Stop {
    Drop(DropReason),
    /// It is complete, and waits for the Ethernet address of this next hop.
    Wait(Leaving, u16),
    /// It is buffered.
    Kept,
    /// It is forwarded in fragments.
    Divide,
    /// The packet is dropped, and its sender gets an ICMP error.
    Report(DropReason, Problem),
    /// A copy of it has to be parsed.
    Copy,
}

impl From<DropReason> for Stop {
    fn from(reason: DropReason) -> Self {
        Self::Drop(reason)
    }
}

impl From<Unread> for Stop {
    fn from(why: Unread) -> Self {
        match why {
            Unread::Invalid => Self::Drop(DropReason::InnerIp),
            Unread::MayChange => Self::Copy,
        }
    }
}

/// Handling of packets by a direction, pass by pass.
pub(crate) trait Passes {
    type Item: Item;

    /// Prepares for a batch: takes packets that do not come from the port. Returns true if there
    /// were any.
    fn prepare(&mut self, lane: &mut Lane) -> bool;

    /// Parses the headers, prefetches buckets, and processes all frames that are not users'
    /// packets. If it stops before the last frame, it sets `looked` to the number of frames.
    fn look(
        &mut self,
        lane: &mut Lane,
        frames: &[Frame<'_>],
        looked: &mut usize,
    ) -> ArrayVec<Self::Item, CHUNK>;

    /// Processes a packet without a session.
    fn unknown(&mut self, lane: &mut Lane, frame: &Frame<'_>, item: &Self::Item);

    /// Checks a packet against its session's rules, and writes its new headers.
    fn check(
        &mut self,
        lane: &mut Lane,
        frame: &Frame<'_>,
        item: &Self::Item,
        now: u64,
    ) -> Result<Leaving, Stop>;

    /// Fragments a packet that [`check`](Self::check) found too long, and sends the fragments.
    fn divide(
        &mut self,
        lane: &mut Lane,
        frame: &Frame<'_>,
        item: &Self::Item,
        now: u64,
    ) -> Result<(), Stop>;

    /// Counts a packet that is not forwarded, and tells its sender if a router has to.
    fn stop(&mut self, lane: &mut Lane, frame: &Frame<'_>, item: &Self::Item, stop: Stop);

    /// Notifies the sender of a packet that was dropped because its next hop has not replied.
    /// `frame` is what was to be transmitted, with the address of the station that the packet came
    /// from as its destination.
    fn report_lost(&mut self, lane: &mut Lane, frame: &[u8]);

    /// Processes what a chunk has completed.
    #[inline(always)]
    fn complete(&mut self, _lane: &mut Lane) {}

    /// Applies a change of a session.
    fn change(&mut self, lane: &mut Lane, change: &mut Change) {
        lane.sessions.apply(change);
    }

    /// Transmits packets whose next hop has an Ethernet address now, and drops those that have waited for
    /// too long; returns true if any were transmitted.
    #[inline(always)]
    fn tend(&mut self, lane: &mut Lane) -> bool {
        lane.has_waiting() && self.tend_waiting(lane)
    }

    #[cold]
    fn tend_waiting(&mut self, lane: &mut Lane) -> bool {
        let any = lane.release_resolved();
        let now = clock::ticks();
        // Limited, so that expiring takes no longer than a batch.
        for _ in 0..CHUNK {
            let Some(lost) = lane.expire(now) else { break };
            lost.iter().for_each(|frame| self.report_lost(lane, frame));
        }
        any
    }

    /// Keeps a packet until the Ethernet address of its next hop is known.
    #[cold]
    fn wait(&mut self, lane: &mut Lane, frame: &Frame<'_>, leaving: &Leaving, hop: u16) {
        let lost = lane.wait(frame, leaving, hop);
        lost.iter().for_each(|frame| self.report_lost(lane, frame));
    }

    /// Takes `frames` while the egress port has room, and returns how many it took.
    fn take(&mut self, lane: &mut Lane, frames: &[Frame<'_>]) -> usize {
        let mut taken = 0;
        while taken < frames.len() && !lane.is_full() {
            let rest = &frames[taken..];
            taken += self.chunk(lane, &rest[..rest.len().min(CHUNK)], true);
            self.complete(lane);
        }
        lane.received(&frames[..taken]);
        taken
    }

    /// Processes at most [`CHUNK`] frames, which `arrived` from the port or were made here; returns
    /// how many were processed.
    #[inline(always)]
    fn chunk(&mut self, lane: &mut Lane, frames: &[Frame<'_>], arrived: bool) -> usize {
        let mut looked = frames.len();
        let mut items = self.look(lane, frames, &mut looked);
        if arrived {
            lane.note_sources(&frames[..looked]);
            lane.from.show(&lane.tap, Kind::In, &frames[..looked]);
        }
        self.find(lane, frames, &mut items);
        lane.sessions.prefetch_more(lane.direction, items.iter_mut().map(|item| *item.slot()));
        let now = clock::ticks();
        if lane.has_later() {
            // Packets of this chunk must not overtake what has waited until now.
            lane.release_later(now);
        }
        let mut departures = Departures::new();
        for item in &items {
            let frame = &frames[item.place().0];
            match self.check(lane, frame, item, now) {
                Ok(leaving) => departures.push(leaving),
                Err(Stop::Copy) => self.check_copy(lane, frames, frame, &mut departures),
                Err(Stop::Wait(leaving, hop)) => self.wait(lane, frame, &leaving, hop),
                Err(Stop::Divide) => {
                    lane.transmit(frames, &departures);
                    departures.clear();
                    if let Err(stop) = self.divide(lane, frame, item, now) {
                        self.stop(lane, frame, item, stop);
                    }
                }
                Err(stop) => self.stop(lane, frame, item, stop),
            }
        }
        lane.transmit(frames, &departures);
        looked
    }

    /// Finds the sessions of the packets, and prefetches them.
    #[inline(always)]
    fn find(
        &mut self,
        lane: &mut Lane,
        frames: &[Frame<'_>],
        items: &mut ArrayVec<Self::Item, CHUNK>,
    ) {
        items.retain(|item| {
            let (frame, key) = item.place();
            let slot = lane.sessions.table.find_from(*item.slot(), key);
            match slot {
                Some(slot) => {
                    lane.sessions.prefetch(lane.direction, slot);
                    *item.slot() = slot;
                }
                None => self.unknown(lane, &frames[frame], item),
            }
            slot.is_some()
        });
    }

    /// Processes a private copy of `frame`, which no peer can write to, after transmitting
    /// the packets of `frames` that are ready.
    #[cold]
    fn check_copy(
        &mut self,
        lane: &mut Lane,
        frames: &[Frame<'_>],
        frame: &Frame<'_>,
        departures: &mut Departures,
    ) {
        let whole = reading::copy_of(frame);
        lane.transmit(frames, departures);
        departures.clear();
        // The copy uses the first head, whose own packet has been transmitted or dropped.
        self.chunk(lane, &[Frame::from(&whole[..])], false);
    }
}
