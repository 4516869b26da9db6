//! The passes of a chunk of packets: parse the headers and prefetch the bucket in the table; find
//! the session and prefetch it; prefetch what it points to; check and rewrite; transmit.

use arrayvec::ArrayVec;
use dray_capture::Kind;
use dray_port::{Frame, clock};
use dray_wire::icmp::Problem;

use super::forwarder::{Chunk, Departure, Departures, Forwarder};
use super::header_buffer::CHUNK;
use super::reading::{self, ParseError};
use super::sessions::Change;
use crate::counters::DropReason;

/// A user's packet between two passes.
pub(crate) trait Item {
    /// Returns the number of its frame in the chunk, and the key of its session.
    fn place(&self) -> (usize, u64);

    /// Returns the number of its session; until the session is found, that of the bucket to search.
    fn slot(&mut self) -> &mut u32;
}

/// Why a packet is not forwarded at once.
pub(crate) enum Stop {
    Drop(DropReason),
    /// The packet is dropped, and its sender gets an ICMP error.
    Report(DropReason, Problem),
    /// The packet has its new headers, and waits for the Ethernet address of this next hop.
    Wait(Departure, u16),
    /// The packet is buffered.
    Kept,
    /// It has to be forwarded in fragments.
    Divide,
    /// A copy of it has to be parsed.
    Copy,
}

impl From<DropReason> for Stop {
    fn from(reason: DropReason) -> Self {
        Self::Drop(reason)
    }
}

impl From<ParseError> for Stop {
    fn from(why: ParseError) -> Self {
        match why {
            ParseError::Invalid => Self::Drop(DropReason::InnerIp),
            ParseError::MayChange => Self::Copy,
        }
    }
}

/// Handling of packets by a direction, pass by pass.
pub(crate) trait Passes {
    type Item: Item;

    /// Prepares for a batch: takes packets that do not come from the port. Returns true if there
    /// were any.
    fn prepare(&mut self, forwarder: &mut Forwarder) -> bool;

    /// Parses the headers, prefetches buckets, and processes all frames that are not users'
    /// packets. If it stops before the last frame, it sets `parsed` to the number of frames.
    fn parse(
        &mut self,
        forwarder: &mut Forwarder,
        frames: &[Frame<'_>],
        parsed: &mut usize,
    ) -> ArrayVec<Self::Item, CHUNK>;

    /// Processes a packet without a session.
    fn unknown(&mut self, forwarder: &mut Forwarder, frame: &Frame<'_>, item: &Self::Item);

    /// Checks a packet of `chunk` against its session's rules, and [forwards](Forwarder::forward)
    /// it, in fragments only if `DIVIDE`.
    fn check<const DIVIDE: bool>(
        &mut self,
        forwarder: &mut Forwarder,
        chunk: &mut Chunk<'_>,
        item: &Self::Item,
        now: u64,
    ) -> Result<(), Stop>;

    /// Counts a packet that is dropped.
    #[inline(always)]
    fn discard(
        &mut self,
        forwarder: &mut Forwarder,
        frame: &Frame<'_>,
        _: &Self::Item,
        reason: DropReason,
    ) {
        forwarder.dropped(reason, frame);
    }

    /// Sends an ICMP error about a packet to its sender.
    fn report(
        &mut self,
        forwarder: &mut Forwarder,
        frame: &Frame<'_>,
        item: &Self::Item,
        problem: Problem,
    );

    /// Notifies the sender of a packet that was dropped because its next hop has not replied.
    /// `frame` is what was to be transmitted, with the address of the station that the packet came
    /// from as its destination.
    fn report_lost(&mut self, forwarder: &mut Forwarder, frame: &[u8]);

    /// Processes what a chunk has completed.
    #[inline(always)]
    fn complete(&mut self, _: &mut Forwarder) {}

    /// Applies a change of a session.
    fn change(&mut self, forwarder: &mut Forwarder, change: &mut Change) {
        forwarder.sessions.apply(change);
    }

    /// Transmits packets whose next hop has an Ethernet address now, and drops those that have
    /// waited for too long; returns true if any were transmitted.
    #[cold]
    fn release_waiting(&mut self, forwarder: &mut Forwarder) -> bool {
        let any = forwarder.release_resolved();
        let now = clock::ticks();
        // Limited, so that expiring takes no longer than a batch.
        for _ in 0..CHUNK {
            let Some(lost) = forwarder.expire(now) else { break };
            lost.iter().for_each(|frame| self.report_lost(forwarder, frame));
        }
        any
    }

    /// Keeps a packet until the Ethernet address of its next hop is known.
    #[cold]
    fn wait(
        &mut self,
        forwarder: &mut Forwarder,
        frame: &Frame<'_>,
        departure: &Departure,
        hop: u16,
    ) {
        let lost = forwarder.wait(frame, departure, hop);
        lost.iter().for_each(|frame| self.report_lost(forwarder, frame));
    }

    /// Processes `frames` while the egress port has room; returns how many it processed.
    fn take(&mut self, forwarder: &mut Forwarder, frames: &[Frame<'_>]) -> usize {
        let mut taken = 0;
        while taken < frames.len() && !forwarder.is_full() {
            let rest = &frames[taken..];
            taken += self.chunk(forwarder, &rest[..rest.len().min(CHUNK)], true);
            self.complete(forwarder);
        }
        forwarder.received(&frames[..taken]);
        taken
    }

    /// Processes at most [`CHUNK`] frames, which `arrived` from the port or were made here; returns
    /// how many were processed.
    #[inline(always)]
    fn chunk(&mut self, forwarder: &mut Forwarder, frames: &[Frame<'_>], arrived: bool) -> usize {
        let mut parsed = frames.len();
        let mut items = self.parse(forwarder, frames, &mut parsed);
        if arrived {
            forwarder.note_sources(&frames[..parsed]);
            forwarder.from.show(&forwarder.tap, Kind::In, &frames[..parsed]);
        }
        self.find(forwarder, frames, &mut items);
        forwarder
            .sessions
            .prefetch_more(forwarder.direction, items.iter_mut().map(|item| *item.slot()));
        let now = clock::ticks();
        // Packets of this chunk must not overtake those that have waited for their rate until now.
        if forwarder.has_shaped() {
            forwarder.release_shaped(now);
        }
        let mut chunk = Chunk { frames, departures: Departures::new() };
        for item in &items {
            if let Err(stop) = self.check::<false>(forwarder, &mut chunk, item, now) {
                self.stop(forwarder, &mut chunk, item, (stop, now));
            }
        }
        forwarder.transmit(&mut chunk);
        parsed
    }

    /// Processes a packet that is not forwarded at once.
    #[inline(always)]
    fn stop(
        &mut self,
        forwarder: &mut Forwarder,
        chunk: &mut Chunk<'_>,
        item: &Self::Item,
        (stop, now): (Stop, u64),
    ) {
        let frame = &chunk.frames[item.place().0];
        match stop {
            Stop::Drop(reason) => self.discard(forwarder, frame, item, reason),
            Stop::Report(reason, problem) => {
                forwarder.dropped(reason, frame);
                self.report(forwarder, frame, item, problem);
            }
            Stop::Wait(departure, hop) => self.wait(forwarder, frame, &departure, hop),
            Stop::Kept => forwarder.counters.buffering += 1,
            Stop::Divide => self.divide(forwarder, chunk, item, now),
            Stop::Copy => self.check_copy(forwarder, chunk, frame),
        }
    }

    /// Finds the sessions of the packets, and prefetches them.
    #[inline(always)]
    fn find(
        &mut self,
        forwarder: &mut Forwarder,
        frames: &[Frame<'_>],
        items: &mut ArrayVec<Self::Item, CHUNK>,
    ) {
        items.retain(|item| {
            let (frame, key) = item.place();
            let slot = forwarder.sessions.table.find_from(*item.slot(), key);
            match slot {
                Some(slot) => {
                    forwarder.sessions.prefetch(forwarder.direction, slot);
                    *item.slot() = slot;
                }
                None => self.unknown(forwarder, &frames[frame], item),
            }
            slot.is_some()
        });
    }

    /// Checks a packet again that was too long, and forwards it in fragments. In the fast path,
    /// what the first check found stays in registers, which passing it on would prevent.
    #[cold]
    fn divide(
        &mut self,
        forwarder: &mut Forwarder,
        chunk: &mut Chunk<'_>,
        item: &Self::Item,
        now: u64,
    ) {
        if let Err(stop) = self.check::<true>(forwarder, chunk, item, now) {
            self.stop(forwarder, chunk, item, (stop, now));
        }
    }

    /// Processes a private copy of `frame`, which no peer can write to, after transmitting the
    /// packets of `chunk` that are ready.
    #[cold]
    fn check_copy(&mut self, forwarder: &mut Forwarder, chunk: &mut Chunk<'_>, frame: &Frame<'_>) {
        let whole = reading::copy_of(frame);
        forwarder.transmit(chunk);
        // The copy uses the first header buffer, whose own packet has been transmitted or dropped.
        self.chunk(forwarder, &[Frame::from(&whole[..])], false);
    }
}
