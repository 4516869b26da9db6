//! Transmitting: packets leave in batches, or wait while the egress port takes none.

use std::time::Duration;

use arrayvec::ArrayVec;
use dray_port::{Frame, clock};

use super::super::egress_queue::FrameClass;
use super::super::header_buffer::{CHUNK, HeaderBuffer};
use super::Forwarder;
use super::fates::{Batch, count, keep, send};
use crate::counters::DropReason;

/// Maximum time that packets wait for a port that takes none: control messages wait behind them.
const PATIENCE: Duration = Duration::from_millis(10);

/// A packet that is ready to be transmitted.
#[derive(Clone, Copy)]
pub(crate) struct Departure {
    /// Number of its frame in the chunk.
    pub(crate) frame: u16,
    /// Range of its new headers in the header buffer.
    pub(crate) head: (u16, u16),
    /// Range of the remaining bytes in the frame.
    pub(crate) body: (u16, u16),
}

pub(crate) type Departures = ArrayVec<Departure, CHUNK>;

/// Frames that go through the passes together, at most [`CHUNK`], and those of their packets that
/// are ready.
pub(crate) struct Chunk<'f> {
    pub(crate) frames: &'f [Frame<'f>],
    pub(crate) departures: Departures,
}

impl Departure {
    #[inline(always)]
    pub(super) fn frame<'f>(&self, frame: &Frame<'f>, headers: &'f [HeaderBuffer]) -> Frame<'f> {
        let head = usize::from(self.head.0)..usize::from(self.head.1);
        let body = usize::from(self.body.0)..usize::from(self.body.1);
        frame.with_head(&headers[usize::from(self.frame)].0[head], body)
    }
}

impl Forwarder {
    /// Transmits packets that wait for the egress port; returns true if any were taken.
    #[cold]
    pub(crate) fn release(&mut self) -> bool {
        let Self { egress, to, worker, tap, counters, .. } = self;
        let transmit = |frames: &[Frame<'_>]| to.transmit(tap, *worker, frames);
        let taken = egress.release(transmit, |frames, sent| {
            count(counters, frames.iter().copied(), sent);
        });
        let now = clock::ticks();
        if taken > 0 {
            self.moved = now;
        } else if now - self.moved > clock::to_ticks(PATIENCE) || !self.to.is_ready(self.worker) {
            self.give_up();
        }
        taken > 0
    }

    /// Drops the packets that wait for the egress port.
    pub(crate) fn give_up(&mut self) {
        self.counters.drops.add(DropReason::PortFull, self.egress.count(FrameClass::Packet));
        self.counters.generated_dropped += self.egress.count(FrameClass::Generated);
        self.egress.forget();
    }

    /// Keeps those departures of a chunk that have to wait for their rate.
    #[cold]
    fn keep_delayed(&mut self, chunk: &mut Chunk<'_>) {
        let class = if self.is_generated { FrameClass::Generated } else { FrameClass::Packet };
        let Self { headers, delays, shaped, counters, .. } = self;
        chunk.departures.retain(|departure| {
            let number = departure.frame;
            let Some((_, until)) = delays.iter().find(|(frame, _)| *frame == number) else {
                return true;
            };
            let frame = departure.frame(&chunk.frames[usize::from(number)], headers);
            keep((&frame, class), *until, shaped, counters);
            false
        });
        delays.clear();
    }

    /// Transmits the departures of a chunk, except those that have to wait for their rate.
    #[inline]
    pub(crate) fn transmit(&mut self, chunk: &mut Chunk<'_>) {
        if !self.delays.is_empty() {
            self.keep_delayed(chunk);
        }
        let Chunk { frames, departures } = chunk;
        if departures.is_empty() {
            return;
        }
        self.make_room(departures.len());
        let Self { headers, to, worker, tap, egress, counters, moved, is_generated, .. } = self;
        let frame =
            |departure: &Departure| departure.frame(&frames[usize::from(departure.frame)], headers);
        let batch: Batch<'_> = departures.iter().map(frame).collect();
        let to = (&**to, *worker, &**tap);
        // Two calls, in each of which the compiler knows the class.
        match is_generated {
            false => send(&batch, |_| FrameClass::Packet, to, egress, counters, moved),
            true => send(&batch, |_| FrameClass::Generated, to, egress, counters, moved),
        }
        departures.clear();
    }

    /// Waits until the egress queue has room for `count` packets, in case the egress port takes
    /// none.
    #[inline(always)]
    pub(super) fn make_room(&mut self, count: usize) {
        // While packets wait there, only buffered or fragmented packets get here.
        while !self.egress.has_room(count) {
            if !self.release() {
                std::thread::yield_now();
            }
        }
    }
}
