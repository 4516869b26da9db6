//! Packets that are ready but that the egress port had no room for.
//!
//! They are copied here, and no more packets are taken until they are gone. Excess packets thus
//! wait at their source, where the sender can see the queue, instead of being lost here.

use arrayvec::ArrayVec;
use dray_port::{FRAME_LIMIT, Frame};

use super::lane::CHUNK;

/// Maximum number of held packets. It exceeds a batch, since a fragmented packet is many, and
/// packets that waited for their session come in a row.
const HELD_MAX: usize = 8 * CHUNK;

/// Copies of packets that wait for the egress port.
pub(super) struct Held {
    bytes: Box<[u8]>,
    lens: ArrayVec<usize, HELD_MAX>,
    /// How many of these, from the front, have been transmitted.
    sent: usize,
}

impl Held {
    pub(super) fn new() -> Self {
        // Memory that is never touched is not allocated.
        Self { bytes: vec![0; HELD_MAX * FRAME_LIMIT].into(), lens: ArrayVec::new(), sent: 0 }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// Returns true if there is room for `count` more packets.
    #[inline(always)]
    pub(super) fn has_room(&self, count: usize) -> bool {
        self.lens.len() + count <= HELD_MAX
    }

    /// Appends copies of `frames`; the caller has checked that there is [room](Self::has_room).
    #[cold]
    pub(super) fn keep(&mut self, frames: &[Frame<'_>]) {
        let rooms = self.bytes.chunks_exact_mut(FRAME_LIMIT).skip(self.lens.len());
        for (frame, room) in frames.iter().zip(rooms) {
            self.lens.push(frame.copy_into(room));
        }
    }

    /// Hands the first waiting packets to `transmit`, which returns how many it took; returns that
    /// number.
    pub(super) fn release(&mut self, transmit: impl FnOnce(&[Frame<'_>]) -> usize) -> usize {
        let waiting = self.lens.iter().zip(self.bytes.chunks_exact(FRAME_LIMIT)).skip(self.sent);
        let frames: ArrayVec<Frame<'_>, CHUNK> =
            waiting.map(|(len, bytes)| Frame::from(&bytes[..*len])).take(CHUNK).collect();
        let taken = transmit(&frames);
        drop(frames);
        self.sent += taken;
        if self.sent == self.lens.len() {
            self.forget();
        }
        taken
    }

    /// Drops all waiting packets, and returns how many there were.
    pub(super) fn forget(&mut self) -> usize {
        let count = self.lens.len() - self.sent;
        self.lens.clear();
        self.sent = 0;
        count
    }
}
