//! State shared by the data threads and the control thread of a vhost port.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::backend::Backend;
use super::queue::Running;
use crate::attention::Attention;
use crate::limits::MemoryLimits;
use crate::live::Conversation;
use crate::marks::Marks;
use crate::pairs::{Pair, Pairs};
use crate::scheme::Failed;
use crate::slot::Slot;

/// The queues of a port, and their counters. Virtqueue `2 * q` leads to the driver, `2 * q + 1`
/// comes from it.
pub(super) struct Device {
    pairs: Vec<Pair<Running, Running>>,
    /// Number of malformed frames from the driver.
    malformed: Arc<AtomicU64>,
    pub(super) memory: MemoryLimits,
    /// True to offer offloads.
    pub(super) offloads: bool,
    /// Position of each virtqueue.
    pub(super) marks: Arc<Marks>,
    /// The connected driver.
    session: Mutex<Weak<Mutex<Backend>>>,
}

impl Device {
    /// Creates `queues` pairs of queues. `attention` is signalled by a data thread that gives up a
    /// queue.
    pub(super) fn new(
        queues: u16,
        memory: MemoryLimits,
        offloads: bool,
        attention: &Arc<Attention>,
    ) -> Result<Self, Failed> {
        let pairs = Pair::several(queues, attention)?;
        let marks = Marks::new(2 * pairs.len()).map_err(|error| ("marks", error))?;
        let (malformed, marks, session) = (Arc::default(), Arc::new(marks), Mutex::default());
        Ok(Self { pairs, malformed, memory, offloads, marks, session })
    }

    pub(super) fn vrings(&self) -> usize {
        2 * self.pairs.len()
    }

    /// Sets the connected driver.
    pub(super) fn connect(&self, backend: &Arc<Mutex<Backend>>) {
        *lock(&self.session) = Arc::downgrade(backend);
    }

    fn session<T: Default>(&self, of: impl FnOnce(&Backend) -> T) -> T {
        let backend = lock(&self.session).upgrade();
        backend.map_or_else(T::default, |backend| of(&lock(&backend)))
    }

    fn pair(&self, index: usize) -> &Pair<Running, Running> {
        &self.pairs[index / 2]
    }

    pub(super) fn slot(&self, index: usize) -> &Slot<Running> {
        let pair = self.pair(index);
        if comes_from_driver(index) { &pair.receive } else { &pair.transmit }
    }

    /// Wakes the data thread, because a queue of it has changed.
    pub(super) fn wake(&self, index: usize) {
        self.pair(index).wakes.wake();
    }

    pub(super) fn watch_kick(&self, index: usize, kick: BorrowedFd<'_>) -> io::Result<()> {
        // No thread waits for room to transmit to the driver: if the receiver is full, frames are
        // dropped.
        if comes_from_driver(index) { self.pair(index).wakes.watch(kick) } else { Ok(()) }
    }

    pub(super) fn forget_kick(&self, index: usize, kick: BorrowedFd<'_>) {
        if comes_from_driver(index) {
            self.pair(index).wakes.forget(kick);
        }
    }

    /// Returns the event that wakes the control thread.
    pub(super) fn attention(&self) -> &Arc<Attention> {
        &self.pairs[0].attention
    }

    /// Returns the counter that the queues increment.
    pub(super) fn malformed_counter(&self) -> Arc<AtomicU64> {
        self.malformed.clone()
    }
}

pub(super) fn comes_from_driver(index: usize) -> bool {
    index % 2 == 1
}

impl Pairs for Device {
    type Receive = Running;
    type Transmit = Running;

    #[inline]
    fn pairs(&self) -> &[Pair<Running, Running>] {
        &self.pairs
    }

    fn is_running(&self) -> bool {
        (0..self.vrings()).any(|index| self.slot(index).is_running())
    }

    fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }

    fn said(&self) -> Option<io::Result<Conversation>> {
        let said = self.session(|backend| Some(backend.said()));
        said.or_else(|| Some(Ok(Conversation::default())))
    }

    fn marks(&self) -> Option<&Arc<Marks>> {
        Some(&self.marks)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
