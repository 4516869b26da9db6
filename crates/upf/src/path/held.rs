//! Packets that are ready and that the port out had no room for.
//!
//! They are copied here, and no more packets are taken until they are gone: so what is too much waits
//! where it came from, whose sender can see that, instead of being lost here.

use arrayvec::ArrayVec;
use dray_port::{FRAME_LIMIT, Frame};

use super::lane::CHUNK;

/// Packets that there is room for: more than are transmitted together, for one that is divided is many,
/// and packets that waited for their session come in a row.
const HELD_MAX: usize = 8 * CHUNK;

/// Packets that are ready.
pub(super) struct Held {
    bytes: Box<[u8]>,
    lens: ArrayVec<usize, HELD_MAX>,
    /// The first of these have been transmitted.
    sent: usize,
}

impl Held {
    pub(super) fn new() -> Self {
        // Never touched, it takes no memory.
        Self { bytes: vec![0; HELD_MAX * FRAME_LIMIT].into(), lens: ArrayVec::new(), sent: 0 }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// Returns true if there is room for so many more.
    #[inline(always)]
    pub(super) fn has_room(&self, count: usize) -> bool {
        self.lens.len() + count <= HELD_MAX
    }

    /// Keeps copies of `frames` behind those that wait; there is [room](Self::has_room) for them.
    #[cold]
    pub(super) fn keep(&mut self, frames: &[Frame<'_>]) {
        let rooms = self.bytes.chunks_exact_mut(FRAME_LIMIT).skip(self.lens.len());
        for (frame, room) in frames.iter().zip(rooms) {
            self.lens.push(frame.copy_into(room));
        }
    }

    /// Hands the first of those that wait to `transmit`, which returns how many it took; how many bytes
    /// those had.
    pub(super) fn release(
        &mut self,
        transmit: impl FnOnce(&[Frame<'_>]) -> usize,
    ) -> (usize, usize) {
        let waiting = self.lens.iter().zip(self.bytes.chunks_exact(FRAME_LIMIT)).skip(self.sent);
        let frames: ArrayVec<Frame<'_>, CHUNK> =
            waiting.map(|(len, bytes)| Frame::from(&bytes[..*len])).take(CHUNK).collect();
        let taken = transmit(&frames);
        drop(frames);
        let bytes = self.lens[self.sent..][..taken].iter().sum();
        self.sent += taken;
        if self.sent == self.lens.len() {
            self.forget();
        }
        (taken, bytes)
    }

    /// Lets go of all; how many those were.
    pub(super) fn forget(&mut self) -> usize {
        let count = self.lens.len() - self.sent;
        self.lens.clear();
        self.sent = 0;
        count
    }
}
