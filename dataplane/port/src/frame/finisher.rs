//! Does the work that is left to do on frames with an offload, for ports that do not take it over.

use dray_wire::offload::{Finish, HEADERS_MAX};

use crate::frame::{FRAME_LIMIT, OFFLOADED_LIMIT};
use crate::{Batch, Frame};

/// Number of frames that are finished at a time.
const AT_A_TIME: usize = 64;

/// Makes frames without an [offload](Frame::offload) of frames with one: segments them, and writes
/// their checksums.
pub struct Finisher {
    /// Copy of a frame that others can write to, or that is not contiguous.
    scratch: Box<[u8]>,
    heads: Box<[[u8; HEADERS_MAX]]>,
}

/// Result of transmitting a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// All frames that it became were taken.
    All,
    /// The first of the frames that it became were taken, as many as given.
    Some {
        /// Number of frames taken, in all calls for this frame.
        taken: usize,
        /// Number of frames that it becomes.
        of: usize,
    },
    /// The frame does not fit its offload: its sender has changed it meanwhile.
    Invalid,
    /// The frames that it becomes are too long.
    TooLong,
}

impl Default for Finisher {
    fn default() -> Self {
        // Pages that are never touched take no memory.
        let heads = vec![[0; HEADERS_MAX]; AT_A_TIME].into_boxed_slice();
        Self { scratch: vec![0; OFFLOADED_LIMIT].into(), heads }
    }
}

impl Finisher {
    /// Passes the frames that `frame` becomes to `take`, except the first `skip`, in batches.
    /// `take` returns how many it took; it is not called again once it takes fewer than it was
    /// given. None of the frames is longer than `frame_max`, or 4 bytes more with a VLAN tag.
    pub fn finish(
        &mut self,
        frame: &Frame<'_>,
        skip: usize,
        frame_max: usize,
        mut take: impl FnMut(&[Frame<'_>]) -> usize,
    ) -> Finished {
        let offload = frame.offload();
        let bytes = frame.bytes_in(&mut self.scratch);
        let Some(finish) = Finish::new(bytes, offload) else { return Finished::Invalid };
        let len = finish.frame_max();
        if len > FRAME_LIMIT || !Frame::from(&bytes[..len]).fits(frame_max) {
            return Finished::TooLong;
        }
        let (mut next, of) = (skip, finish.count());
        while next < of {
            let count = self.heads.len().min(of - next);
            let mut batch = Batch::new();
            for (index, head) in (next..).zip(&mut self.heads[..count]) {
                let len = finish.head(index, head);
                let part = &bytes[finish.part(index)];
                batch.push(Frame::from(part).with_head(&head[..len], 0..part.len()));
            }
            let taken = take(&batch).min(count);
            next += taken;
            if taken < count {
                return Finished::Some { taken: next, of };
            }
        }
        Finished::All
    }
}
