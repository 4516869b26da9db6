//! Segmentation and checksums for a port that does not take them over.

use dray_port::{Finished, Finisher, Frame};
use dray_wire::offload::Offload;

/// Segments and writes checksums; one worker uses it.
#[derive(Default)]
pub(super) struct Finishing {
    finisher: Finisher,
    rest: Option<Rest>,
}

/// A packet of which some segments were taken. The others go before any other frame of the worker.
struct Rest {
    bytes: Box<[u8]>,
    offload: Offload,
    /// Number of the segments that were taken.
    taken: usize,
}

impl Rest {
    fn frame(&self) -> Frame<'_> {
        Frame::with_offload(&self.bytes, self.offload)
    }
}

impl Finishing {
    pub(super) fn has_rest(&self) -> bool {
        self.rest.is_some()
    }

    /// Passes what `frame` becomes to `take`, which returns how many it took.
    pub(super) fn finish(
        &mut self,
        frame: &Frame<'_>,
        frame_max: usize,
        take: impl FnMut(&[Frame<'_>]) -> usize,
    ) -> Finished {
        self.finisher.finish(frame, 0, frame_max, take)
    }

    /// Keeps a copy of a packet of which `taken` segments were taken.
    pub(super) fn keep(&mut self, frame: &Frame<'_>, taken: usize) {
        let mut bytes = vec![0; frame.len()].into_boxed_slice();
        frame.copy_into(&mut bytes);
        self.rest = Some(Rest { bytes, offload: frame.offload(), taken });
    }

    /// Passes the segments that are left to `take`; returns true if none are left.
    pub(super) fn finish_rest(
        &mut self,
        frame_max: usize,
        take: impl FnMut(&[Frame<'_>]) -> usize,
    ) -> bool {
        let Self { finisher, rest } = self;
        let Some(left) = rest else { return true };
        let skip = left.taken;
        let frame = Frame::with_offload(&left.bytes, left.offload);
        match finisher.finish(&frame, skip, frame_max, take) {
            Finished::Some { taken, .. } => left.taken = taken,
            // It was valid, and not too long.
            Finished::All | Finished::Invalid | Finished::TooLong => *rest = None,
        }
        rest.is_none()
    }

    /// Forgets the segments that are left, after `lost` has been called with their packet.
    pub(super) fn forget_rest(&mut self, lost: impl FnOnce(&[Frame<'_>])) {
        if let Some(rest) = self.rest.take() {
            lost(&[rest.frame()]);
        }
    }
}
