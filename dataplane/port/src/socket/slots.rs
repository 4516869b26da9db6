//! Slots of memory that a socket receives into.

use crate::FRAME_LIMIT;
use crate::frame::OFFLOADED_LIMIT;

/// Length of a slot: a cache line of its own, the longest frame and one byte more, in whole cache
/// lines. An odd number of lines spreads the slots' first lines over all sets of the cache.
pub(crate) const SLOT_LEN: usize = slot_len(FRAME_LIMIT);
/// Length of a slot for a frame with an offload.
pub(super) const LONG_SLOT_LEN: usize = slot_len(OFFLOADED_LIMIT);
pub(super) const LINE: usize = 64;

const fn slot_len(longest: usize) -> usize {
    let lines = (LINE + longest + 1).div_ceil(LINE);
    (lines | 1) * LINE
}
