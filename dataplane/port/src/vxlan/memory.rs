//! Knowledge of a VXLAN port, in memory that outlives the process: another one continues with it.
//!
//! ```text
//! word 0        longest frame without a tag, and longest frame at all
//! word 2        secret factor of the table of stations
//! word 8        learned hosts (`remotes`), each of 4 words
//! word 8 + ...  buckets of the table of stations (`stations`), each of 8 words
//! ```

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use dray_shm::SharedWords;
use dray_wire::FRAME_MAX;
use dray_wire::ethernet::ETHERNET_LEN;

use crate::FRAME_LIMIT;

/// Maximum number of hosts that are not in the list.
pub(super) const LEARNED_MAX: usize = 1024;
/// Number of buckets of the table of stations.
pub(super) const BUCKETS: usize = 2048;

/// Words of a cache line.
pub(super) const LINE: usize = 8;
const HOST: usize = 4;
const WORDS: usize = LINE + LEARNED_MAX * HOST + BUCKETS * LINE;

/// Lengths of frames, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Of the longest frame without a tag.
    pub(super) frame_max: usize,
    /// Of the longest frame at all.
    pub(super) longest: usize,
}

#[derive(Clone)]
pub(super) struct Memory(Arc<SharedWords>);

impl Memory {
    pub(super) fn create(limits: Limits) -> io::Result<Self> {
        let memory = Self(Arc::new(SharedWords::create("dray-vxlan", WORDS)?));
        let [frame_max, longest, factor, ..] = memory.0.words() else { unreachable!("WORDS") };
        frame_max.store(limits.frame_max as u64, Relaxed);
        longest.store(limits.longest as u64, Relaxed);
        factor.store(RandomState::new().hash_one(()) | 1, Relaxed);
        Ok(memory)
    }

    /// Opens the memory of another process, which may contain anything.
    pub(super) fn of(descriptor: OwnedFd) -> io::Result<Self> {
        let words = SharedWords::of(descriptor)?;
        match words.words().len() {
            WORDS => Ok(Self(Arc::new(words))),
            count => Err(io::Error::other(format!("{count} words, not {WORDS}"))),
        }
    }

    pub(super) fn limits(&self) -> Limits {
        let word = |at: usize| self.0.words()[at].load(Relaxed) as usize;
        let frame_max = word(0).clamp(ETHERNET_LEN, FRAME_MAX);
        Limits { frame_max, longest: word(1).clamp(frame_max, FRAME_LIMIT) }
    }

    pub(super) fn factor(&self) -> u64 {
        self.0.words()[2].load(Relaxed)
    }

    pub(super) fn hosts(&self) -> &[[AtomicU64; HOST]] {
        &self.0.words()[LINE..].as_chunks().0[..LEARNED_MAX]
    }

    #[inline]
    pub(super) fn buckets(&self) -> &[[AtomicU64; LINE]] {
        self.0.words()[LINE + LEARNED_MAX * HOST..].as_chunks().0
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
