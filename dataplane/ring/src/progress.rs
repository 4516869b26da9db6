//! Progress of a device on a queue, stored where it outlives the process.
//!
//! A device that is killed within a batch has forwarded some of the frames without returning their
//! buffers. The next device must not read these buffers again. A device therefore records the end
//! of each batch before it uses the batch, and its position afterwards. No memory barrier is
//! needed, since a killed process has executed its stores up to some point of the program. The
//! compiler preserves their order: stores to rings that follow such a record are releases.
//!
//! ```text
//! bit 63      62 ... 48   47 .. 32   31 .. 16   15 .. 0
//! is set      0           step       next       used      0: the queue does not run
//! ```

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::compiler_fence;

use dray_shm::SharedWord;

const SET: u64 = 1 << 63;

/// Progress of a device on a queue. A position is a running index, or in a packed ring a
/// descriptor with its wrap bit in bit 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The first chain that may not have been returned.
    pub(crate) used: u16,
    /// End of the chains that may have been used.
    pub(crate) next: u16,
    /// In a packed ring, the number of descriptors of the chain at `used`.
    pub(crate) step: u16,
}

impl Progress {
    /// Decodes the progress that a device has recorded; `None` if its queue did not run.
    pub fn read(word: u64) -> Option<Self> {
        let [used, next, step] = [0, 16, 32].map(|shift| (word >> shift) as u16);
        (word & SET != 0).then_some(Self { used, next, step })
    }

    fn word(self) -> u64 {
        let Self { used, next, step } = self;
        SET | u64::from(step) << 32 | u64::from(next) << 16 | u64::from(used)
    }
}

/// Shared word in which a device records its progress, if there is one.
#[derive(Debug, Default)]
pub(crate) struct ProgressCell(Option<SharedWord>);

impl ProgressCell {
    pub(crate) fn at(word: SharedWord) -> Self {
        Self(Some(word))
    }

    #[inline(always)]
    pub(crate) fn record(&self, used: u16, next: u16, step: u16) {
        if let Some(word) = &self.0 {
            // Keeps stores to the ring before this point in front of the record.
            compiler_fence(SeqCst);
            word.store(Progress { used, next, step }.word(), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dray_shm::SharedWords;

    use super::*;

    #[test]
    fn recorded_progress_is_read_back() {
        let words = Arc::new(SharedWords::create("test", 1).unwrap());
        let read = || Progress::read(words.words()[0].load(Relaxed));
        assert_eq!(read(), None);
        let cell = ProgressCell::at(words.word(0));
        for (used, next, step) in [(0, 0, 0), (1, 2, 3), (u16::MAX, 0x8000, 0x8000)] {
            cell.record(used, next, step);
            assert_eq!(read(), Some(Progress { used, next, step }));
        }
        ProgressCell::default().record(1, 2, 3);
    }
}
