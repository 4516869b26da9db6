//! State shared by the data threads and the control thread of a vhost port.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::queue::Running;
use crate::ends::limits::MemoryLimits;
use crate::ends::pairs::{Pair, Pairs};
use crate::ends::slot::Slot;
use crate::lock::lock;
use crate::session::queue_progress::QueueProgress;
use crate::session::snapshot::SessionMessages;
use crate::signal::control_wake::ControlWake;
use crate::uri::failed::Failed;

/// Session with a connected driver.
pub(super) trait Session: Send {
    /// Returns the driver's messages, for another process that continues the session.
    fn messages(&self) -> io::Result<SessionMessages>;
}

/// The queues of a port, and their counters. The driver receives on virtqueue `2 * q` and transmits
/// on `2 * q + 1`.
pub(super) struct Device {
    pairs: Vec<Pair<Running, Running>>,
    /// Number of malformed frames from the driver.
    malformed: Arc<AtomicU64>,
    pub(super) memory: MemoryLimits,
    /// True to offer offloads.
    pub(super) offloads: bool,
    /// Progress of each virtqueue.
    pub(super) progress: Arc<QueueProgress>,
    /// The session with the connected driver.
    session: Mutex<Option<Weak<Mutex<dyn Session>>>>,
}

impl Device {
    /// Creates `queues` pairs of queues. A data thread signals `wake` when a queue has failed.
    pub(super) fn new(
        queues: u16,
        memory: MemoryLimits,
        offloads: bool,
        wake: &Arc<ControlWake>,
    ) -> Result<Self, Failed> {
        let pairs = Pair::several(queues, wake)?;
        let progress = QueueProgress::new(2 * pairs.len()).map_err(|error| ("progress", error))?;
        let (malformed, progress, session) = (Arc::default(), Arc::new(progress), Mutex::default());
        Ok(Self { pairs, malformed, memory, offloads, progress, session })
    }

    pub(super) fn vrings(&self) -> usize {
        2 * self.pairs.len()
    }

    /// Sets the session with the connected driver.
    pub(super) fn connect(&self, session: Weak<Mutex<dyn Session>>) {
        *lock(&self.session) = Some(session);
    }

    fn pair(&self, index: usize) -> &Pair<Running, Running> {
        &self.pairs[index / 2]
    }

    pub(super) fn slot(&self, index: usize) -> &Slot<Running> {
        let pair = self.pair(index);
        if comes_from_driver(index) { &pair.receive } else { &pair.transmit }
    }

    /// Wakes the data thread of a queue that has changed.
    pub(super) fn wake(&self, index: usize) {
        self.pair(index).wakes.wake();
    }

    pub(super) fn watch_kick(&self, index: usize, kick: BorrowedFd<'_>) -> io::Result<()> {
        // Only a receiving queue waits for the driver; frames to a driver without room are dropped.
        if comes_from_driver(index) { self.pair(index).wakes.watch(kick) } else { Ok(()) }
    }

    pub(super) fn unwatch_kick(&self, index: usize, kick: BorrowedFd<'_>) {
        if comes_from_driver(index) {
            self.pair(index).wakes.unwatch(kick);
        }
    }

    /// Returns the event that wakes the control thread.
    pub(super) fn control_wake(&self) -> &Arc<ControlWake> {
        &self.pairs[0].wake
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

    fn messages(&self) -> Option<io::Result<SessionMessages>> {
        let session = lock(&self.session).as_ref().and_then(Weak::upgrade);
        Some(session.map_or_else(|| Ok(SessionMessages::default()), |s| lock(&s).messages()))
    }

    fn progress(&self) -> Option<&Arc<QueueProgress>> {
        Some(&self.progress)
    }
}
