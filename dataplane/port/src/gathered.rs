//! Buffers for frames that arrive in several pieces.

use crate::frame::FRAME_LIMIT;

/// Room for frames that were received spread over several buffers: they are reassembled here, at
/// the cost of a second copy. Frames of one buffer, which are almost all, never come here.
pub(crate) struct Gathered(Box<[u8]>);

impl Gathered {
    /// Maximum number of multi-buffer frames per batch; further ones wait for the next batch.
    pub(crate) const MAX: usize = 32;

    pub(crate) fn new() -> Self {
        // Pages that are never touched take no memory.
        Self(vec![0; Self::MAX * FRAME_LIMIT].into())
    }

    /// Iterates over the buffers for one frame each, of [`FRAME_LIMIT`] bytes.
    #[inline]
    pub(crate) fn rooms(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.0.chunks_exact_mut(FRAME_LIMIT)
    }
}
