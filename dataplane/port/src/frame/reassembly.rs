//! Buffers for frames that arrive in several pieces.

use crate::frame::{FRAME_LIMIT, OFFLOADED_LIMIT};

/// Room for frames that were received spread over several buffers: they are reassembled here, at
/// the cost of a second copy. Frames of one buffer, which are almost all, never come here.
pub(crate) struct ReassemblyBuffer(Box<[u8]>);

impl ReassemblyBuffer {
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

    /// Returns all of the room, for frames of any length.
    #[inline]
    pub(crate) fn room(&mut self) -> Room<'_> {
        // The longest frame fits, so that no frame waits forever.
        const { assert!(Self::MAX * FRAME_LIMIT > 4 * OFFLOADED_LIMIT) };
        Room(&mut self.0)
    }
}

/// Room that is divided among frames.
pub(crate) struct Room<'g>(&'g mut [u8]);

impl<'g> Room<'g> {
    /// Returns room for a frame of `len` bytes, if there is so much left.
    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Option<&'g mut [u8]> {
        if len > self.0.len() {
            return None;
        }
        let (taken, rest) = std::mem::take(&mut self.0).split_at_mut(len);
        self.0 = rest;
        Some(taken)
    }
}
