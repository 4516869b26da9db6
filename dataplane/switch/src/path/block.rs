//! A piece of memory with frames that wait for their time.

use dray_port::{BATCH_MAX, Batch, Frame, OFFLOADED_LIMIT};
use dray_wire::offload::Offload;

/// Length in bytes.
pub(super) const BLOCK: usize = 128 << 10;
/// Frames start at multiples of this, which bounds the number of short ones.
const ALIGN: usize = 64;

const _: () = assert!(BLOCK >= OFFLOADED_LIMIT);

/// Copies of frames, in order, each with the tick from which it may go.
pub(super) struct Block {
    bytes: Box<[u8]>,
    copies: Vec<Copy>,
    /// Number of copies that have gone, the first ones.
    gone: usize,
    /// Place of the next copy.
    end: usize,
}

struct Copy {
    from: u64,
    start: u32,
    len: u32,
    offload: Offload,
}

impl Block {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; BLOCK].into(), copies: Vec::new(), gone: 0, end: 0 }
    }

    /// Returns the tick from which the first frame may go, if there is one.
    pub(super) fn next(&self) -> Option<u64> {
        self.copies.get(self.gone).map(|first| first.from)
    }

    pub(super) fn has_room(&self, len: usize) -> bool {
        self.end + len <= BLOCK
    }

    /// Appends a copy of a frame, for which there is [room](Self::has_room), that may go from the
    /// tick `from` on.
    pub(super) fn push(&mut self, frame: &Frame<'_>, from: u64) {
        let (start, len) = (self.end, frame.len());
        frame.copy_into(&mut self.bytes[start..start + len]);
        let offload = frame.offload();
        self.copies.push(Copy { from, start: start as u32, len: len as u32, offload });
        self.end = (start + len).next_multiple_of(ALIGN);
    }

    /// Passes a batch of the frames whose time has come by the tick `now` to `take`, which returns
    /// how many it took. Returns how many there were, and how many were taken.
    pub(super) fn release(
        &mut self,
        now: u64,
        take: impl FnOnce(&[Frame<'_>]) -> usize,
    ) -> (usize, usize) {
        let there = self.copies[self.gone..].iter();
        let frame = |copy: &Copy| {
            let start = copy.start as usize;
            Frame::with_offload(&self.bytes[start..start + copy.len as usize], copy.offload)
        };
        let due = there.take_while(|copy| copy.from <= now).take(BATCH_MAX);
        let batch: Batch<'_> = due.map(frame).collect();
        if batch.is_empty() {
            return (0, 0);
        }
        let (count, taken) = (batch.len(), take(&batch));
        drop(batch);
        self.gone += taken;
        if self.gone == self.copies.len() {
            (self.gone, self.end) = (0, 0);
            self.copies.clear();
        }
        (count, taken)
    }
}
