//! Alignment of the parts of a ring in memory.

use std::ptr::NonNull;

/// A part of a ring is misaligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part} at {address:#x} is not aligned to {align} bytes")]
pub struct AlignError {
    part: &'static str,
    address: usize,
    align: usize,
}

/// Checks that a part of a ring is aligned to `align` bytes.
pub(crate) fn aligned(
    part: &'static str,
    start: NonNull<u8>,
    align: usize,
) -> Result<(), AlignError> {
    let address = start.addr().get();
    if address.is_multiple_of(align) { Ok(()) } else { Err(AlignError { part, address, align }) }
}
