//! A queue that a data thread uses and that a control thread inserts and removes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use dray_ring::RingError;

use crate::lock::lock;
use crate::signal::control_wake::ControlWake;

/// A place for a queue that the data thread uses, occupied or empty.
///
/// The control thread inserts a ready queue and removes it. The data thread holds the lock for the
/// duration of one batch, and the control thread for a few instructions, so neither waits for long,
/// and memory that is being read or written stays mapped. Without contention the lock costs one
/// atomic exchange per batch.
#[derive(Debug)]
pub(crate) struct Slot<Q> {
    state: Mutex<State<Q>>,
    /// True if the queue is running: otherwise the data thread need not lock it.
    runs: AtomicBool,
    /// Wakes the control thread when a queue has failed.
    failed: Arc<ControlWake>,
}

#[derive(Debug)]
pub(crate) enum State<Q> {
    /// Not set up, stopped or disabled.
    Stopped,
    /// In use.
    Running(Q),
    /// The peer violated the protocol. The control thread disposes of the queue.
    Failed(Failure, Q),
}

/// Why a running queue has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    RingError(#[from] RingError),
    #[error("shared memory is lost: its file was truncated or its pages cannot be allocated")]
    MemoryLost,
    #[error("invalid received frame: {len} bytes in {buffers} buffers")]
    Header { buffers: u16, len: u32 },
}

impl<Q> Slot<Q> {
    pub(crate) fn new(failed: Arc<ControlWake>) -> Self {
        Self { state: Mutex::new(State::Stopped), runs: AtomicBool::new(false), failed }
    }

    /// For the control thread: waits until the data thread is between two batches.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State<Q>> {
        lock(&self.state)
    }

    /// For the control thread: replaces the state and returns the old one.
    pub(crate) fn replace(&self, state: State<Q>) -> State<Q> {
        let mut guard = self.lock();
        self.runs.store(matches!(state, State::Running(_)), Ordering::Release);
        std::mem::replace(&mut guard, state)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.runs.load(Ordering::Acquire)
    }

    /// For the control thread: runs `inspect` on the queue, if it is running.
    pub(crate) fn inspect<T>(&self, inspect: impl FnOnce(&Q) -> T) -> Option<T> {
        match &*self.lock() {
            State::Running(queue) => Some(inspect(queue)),
            State::Stopped | State::Failed(..) => None,
        }
    }

    /// Returns the failure of the queue, if it has failed.
    pub(crate) fn failure(&self) -> Option<Failure> {
        match &*self.lock() {
            State::Failed(failure, _) => Some(*failure),
            State::Stopped | State::Running(_) => None,
        }
    }

    /// For the data thread: runs `work` on the queue, if it is running and the control thread has
    /// not locked it. For work that can be retried without loss.
    #[inline]
    pub(crate) fn try_with<T: Default>(
        &self,
        work: impl FnOnce(&mut Q) -> Result<T, Failure>,
    ) -> T {
        if !self.runs.load(Ordering::Relaxed) {
            return T::default();
        }
        let mut guard = match self.state.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::WouldBlock) => return T::default(),
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
        };
        self.work(&mut guard, work)
    }

    /// For the data thread: runs `work` on the queue, if it is running; waits while the control
    /// thread has locked it. For frames that would be dropped otherwise, and for a thread that is
    /// about to sleep, which the control thread would not wake afterwards.
    #[inline]
    pub(crate) fn with<T: Default>(&self, work: impl FnOnce(&mut Q) -> Result<T, Failure>) -> T {
        self.work(&mut self.lock(), work)
    }

    #[inline]
    fn work<T: Default>(
        &self,
        guard: &mut State<Q>,
        work: impl FnOnce(&mut Q) -> Result<T, Failure>,
    ) -> T {
        let State::Running(queue) = guard else { return T::default() };
        work(queue).unwrap_or_else(|failure| {
            self.runs.store(false, Ordering::Relaxed);
            if let State::Running(queue) = std::mem::replace(guard, State::Stopped) {
                *guard = State::Failed(failure, queue);
            }
            self.failed.signal();
            T::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn try_with_skips_locked_queue_and_with_waits() {
        let slot = Slot::new(ControlWake::new().unwrap());
        slot.replace(State::Running(7));
        let locked = slot.lock();
        assert_eq!(slot.try_with(|queue| Ok(*queue)), 0);
        thread::scope(|scope| {
            let waits = scope.spawn(|| slot.with(|queue| Ok(*queue)));
            thread::sleep(Duration::from_millis(20));
            drop(locked);
            assert_eq!(waits.join().unwrap(), 7);
        });
        assert_eq!(slot.try_with(|queue| Ok(*queue)), 7);
    }
}
