//! Positions of a port's queues, in memory that outlives the process.
//!
//! ```text
//! word 0            number of changes that invalidate a snapshot of the port
//! word 8 * (1 + q)  progress of queue q (`dray_ring::Progress`); each on a cache line of its own
//! ```
//!
//! A [snapshot](crate::PortSnapshot) of the port is valid until the number of changes increases,
//! and for one process: the process that continues from it invalidates it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dray_ring::Progress;
use dray_shm::{SharedWord, SharedWords};

/// Words of a cache line.
const LINE: usize = 8;
/// Number of changes once another process has continued the port.
const TAKEN: u64 = u64::MAX;

/// Positions of a port's queues, written by the process that uses them.
#[derive(Debug)]
pub(crate) struct QueueProgress(Arc<SharedWords>);

impl QueueProgress {
    /// Creates the progress of `queues` queues, none of which runs.
    pub(crate) fn new(queues: usize) -> io::Result<Self> {
        Ok(Self(Arc::new(SharedWords::create("dray-progress", LINE * (1 + queues))?)))
    }

    /// Returns the word with the progress of a queue.
    pub(crate) fn of(&self, queue: usize) -> SharedWord {
        self.0.word(LINE * (1 + queue))
    }

    /// Records that a queue does not run any more.
    pub(crate) fn clear(&self, queue: usize) {
        self.0.words()[LINE * (1 + queue)].store(0, Ordering::Relaxed);
    }

    /// Invalidates snapshots of the port.
    pub(crate) fn change(&self) {
        self.0.words()[0].fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn changes(&self) -> u64 {
        self.0.words()[0].load(Ordering::SeqCst)
    }
}

impl AsFd for QueueProgress {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Progress of the queues of an old process, which hands over or has ended.
#[derive(Debug)]
pub(crate) struct PastProgress {
    words: SharedWords,
    changes: u64,
}

impl PastProgress {
    /// Opens the progress of a port whose snapshot was taken after `changes` changes.
    pub(crate) fn new(descriptor: OwnedFd, changes: u64) -> Result<Self, String> {
        let words = SharedWords::of(descriptor).map_err(|error| format!("progress: {error}"))?;
        let now = words.words().first().map(|word| word.load(Ordering::SeqCst));
        match now == Some(changes) && changes != TAKEN {
            true => Ok(Self { words, changes }),
            false => Err(outdated()),
        }
    }

    /// Invalidates the snapshot for other processes.
    pub(crate) fn take(&self) -> Result<(), String> {
        let (now, orders) = (&self.words.words()[0], Ordering::SeqCst);
        let taken = now.compare_exchange(self.changes, TAKEN, orders, orders);
        taken.map(drop).map_err(|_| outdated())
    }

    /// Returns the progress of a queue, if it ran.
    pub(crate) fn progress(&self, queue: usize) -> Option<Progress> {
        let word = self.words.words().get(LINE * (1 + queue))?;
        Progress::read(word.load(Ordering::SeqCst))
    }
}

fn outdated() -> String {
    "the port has changed since its snapshot".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_is_valid_once_and_until_a_change() {
        let progress = QueueProgress::new(2).unwrap();
        let file = || progress.as_fd().try_clone_to_owned().unwrap();
        progress.change();
        let changes = progress.changes();
        assert!(PastProgress::new(file(), changes - 1).is_err());
        let [first, second] = [(); 2].map(|()| PastProgress::new(file(), changes).unwrap());
        first.take().unwrap();
        assert!(second.take().is_err());
        assert!(PastProgress::new(file(), changes).is_err());
        assert!(PastProgress::new(file(), TAKEN).is_err());
        let progress = QueueProgress::new(2).unwrap();
        let past = PastProgress::new(progress.as_fd().try_clone_to_owned().unwrap(), 0).unwrap();
        progress.change();
        assert!(past.take().is_err());
        assert!(past.progress(0).is_none() && past.progress(usize::MAX / 16).is_none());
    }
}
