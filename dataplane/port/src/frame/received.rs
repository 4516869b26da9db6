//! Received frames that wait in a port's memory until they are taken.

use arrayvec::ArrayVec;
use dray_wire::offload::Offload;

use crate::frame::{BATCH_MAX, Frame};
use crate::{Batch, Take};

/// Position of a frame in a port's memory.
pub(crate) struct Filled {
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) offload: Offload,
}

/// Up to `N` frames that a port has received into its memory and lends until they are taken.
#[derive(Default)]
pub(crate) struct ReceivedFrames<const N: usize = BATCH_MAX> {
    frames: ArrayVec<Filled, N>,
    /// Number of those that were taken.
    taken: usize,
}

impl<const N: usize> ReceivedFrames<N> {
    /// Removes all frames.
    pub(crate) fn clear(&mut self) {
        self.frames.clear();
        self.taken = 0;
    }

    /// Returns true if no frame is left to lend.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken == self.frames.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.frames.is_full()
    }

    pub(crate) fn push(&mut self, frame: Filled) {
        self.frames.push(frame);
    }

    /// Lends the frames, which lie in `memory`, to `take`; returns how many it lent.
    #[inline]
    pub(crate) fn lend(&mut self, memory: &[u8], take: &mut Take<'_>) -> usize {
        let frame = |&Filled { start, len, offload }: &Filled| {
            Frame::with_offload(&memory[start..start + len], offload)
        };
        // Filled in place: a batch that is returned from a function is moved, full or not.
        let mut batch = Batch::new();
        batch.extend(self.frames[self.taken..].iter().map(frame));
        if !batch.is_empty() {
            self.taken += take(&batch).min(batch.len());
        }
        batch.len()
    }
}
