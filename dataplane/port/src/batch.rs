//! Number of frames that move together.

/// Maximum number of frames per receive or transmit call.
pub const BATCH_MAX: usize = 256;
