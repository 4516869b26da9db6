//! Room for frames in several pieces.

use crate::frame::FRAME_LIMIT;

/// Room for frames that came spread over several buffers: they are put together here, at the cost of a
/// second copy. A frame of up to one buffer, as almost all are, never comes here.
pub(crate) struct Gathered(Box<[u8]>);

impl Gathered {
    /// Frames in one batch that may be spread so; the next ones wait for the next batch.
    pub(crate) const MAX: usize = 32;

    pub(crate) fn new() -> Self {
        // Never touched, it takes no memory.
        Self(vec![0; Self::MAX * FRAME_LIMIT].into())
    }

    /// Room for one frame after the other, [`FRAME_LIMIT`] bytes for each.
    #[inline]
    pub(crate) fn rooms(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.0.chunks_exact_mut(FRAME_LIMIT)
    }
}
