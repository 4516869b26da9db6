//! Number of entries of a ring.

/// Size of a ring in entries: a power of two from 2 to 32768 (Virtio 1.3, section 2.7).
///
/// ```
/// use dray_ring::QueueSize;
///
/// assert_eq!(QueueSize::new(256).map(QueueSize::get), Ok(256));
/// let error = QueueSize::new(63).unwrap_err();
/// assert_eq!(error.to_string(), "ring size 63: allowed is a power of two from 2 to 32768");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSize(u16);

/// The number is not a valid ring size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ring size {0}: allowed is a power of two from 2 to 32768")]
pub struct SizeError(u32);

impl QueueSize {
    /// Checks a size.
    pub fn new(size: u32) -> Result<Self, SizeError> {
        match u16::try_from(size) {
            Ok(small) if small >= 2 && small.is_power_of_two() => Ok(Self(small)),
            _ => Err(SizeError(size)),
        }
    }

    /// Returns the size, in entries.
    #[inline]
    pub fn get(self) -> u16 {
        self.0
    }

    /// Returns the entry for a running index.
    #[inline]
    pub(crate) fn slot(self, index: u16) -> usize {
        usize::from(index & (self.0 - 1))
    }
}

impl TryFrom<u32> for QueueSize {
    type Error = SizeError;

    fn try_from(size: u32) -> Result<Self, SizeError> {
        Self::new(size)
    }
}
