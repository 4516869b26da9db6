//! Limits of choices.

/// Maximum number of sender/receiver pairs.
pub(super) const PAIRS_MAX: usize = 128;
/// Maximum number of byte streams per sender.
pub(super) const STREAMS_MAX: u16 = 256;
