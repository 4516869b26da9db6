//! The transmit queues of a port.

use std::sync::{Mutex, MutexGuard};

use dray_port::{Fill, Transmit};

use crate::lock;

/// The transmit queues of a port, each locked for the length of a batch. With one queue for each
/// worker, two data threads seldom contend for one.
pub struct TransmitQueues(Vec<Mutex<Box<dyn Transmit>>>);

impl TransmitQueues {
    /// Creates them from a port's halves, which never wait: a worker that serves several ports
    /// must not wait at one of them.
    pub fn new(mut tx: Vec<Box<dyn Transmit>>) -> Self {
        tx.iter_mut().for_each(|tx| tx.never_wait());
        Self(tx.into_iter().map(Mutex::new).collect())
    }

    /// Returns the length of the longest frame that all of them transmit, in bytes.
    pub fn frame_max(&self) -> usize {
        self.0.iter().map(|tx| lock(tx).frame_max()).min().unwrap_or_default()
    }

    /// Returns how full the rings of all queues are together, if they have some.
    pub fn fill(&self) -> Option<Fill> {
        Fill::sum(self.0.iter().map(|tx| lock(tx).fill()))
    }

    /// Returns the queue of a worker. Each worker has its own as far as there are queues, so that
    /// flows stay in order. A peer may start only some of its queues, but the first is always among
    /// them.
    #[inline]
    pub fn of(&self, worker: usize) -> MutexGuard<'_, Box<dyn Transmit>> {
        let own = worker % self.0.len();
        let tx = lock(&self.0[own]);
        if own == 0 || tx.is_ready() {
            return tx;
        }
        drop(tx);
        lock(&self.0[0])
    }
}
