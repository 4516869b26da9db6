//! A queue that a data thread uses and a control thread puts in and takes out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use dray_ring::Lie;

use crate::attention::Attention;

/// A queue in the hands of the data thread, or not.
///
/// The control thread puts a ready queue in and takes it out; the data thread holds the lock for
/// the length of one batch and only ever tries it, so neither waits for long, and memory that is
/// being read or written stays mapped. Without contention the lock is one atomic exchange a batch.
#[derive(Debug)]
pub(crate) struct Slot<Q> {
    state: Mutex<State<Q>>,
    /// Whether it is worth trying the lock.
    runs: AtomicBool,
    /// Wakes the control thread when the data thread gave a queue up.
    failed: Arc<Attention>,
}

#[derive(Debug)]
pub(crate) enum State<Q> {
    /// Not set up, stopped or disabled.
    Stopped,
    /// In use.
    Running(Q),
    /// The peer lied. What is left of the queue is disposed of by the control thread.
    Failed(Failure, Q),
}

/// Why a running queue had to be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Lie(#[from] Lie),
    #[error("memory that it shared is gone: the file was truncated, or its pages cannot be had")]
    MemoryLost,
    #[error("a received frame of {len} bytes in {buffers} buffers")]
    Header { buffers: u16, len: u32 },
}

impl<Q> Slot<Q> {
    pub(crate) fn new(failed: Arc<Attention>) -> Self {
        Self { state: Mutex::new(State::Stopped), runs: AtomicBool::new(false), failed }
    }

    /// For the control thread: waits until the data thread is between two batches.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State<Q>> {
        // A data thread that panicked left the queue as it was at its last step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the control thread: puts `state` in the place of what was there.
    pub(crate) fn replace(&self, state: State<Q>) -> State<Q> {
        let mut guard = self.lock();
        self.runs.store(matches!(state, State::Running(_)), Ordering::Release);
        std::mem::replace(&mut guard, state)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.runs.load(Ordering::Acquire)
    }

    /// Why the data thread gave the queue up, if it did.
    pub(crate) fn failure(&self) -> Option<Failure> {
        match &*self.lock() {
            State::Failed(failure, _) => Some(*failure),
            State::Stopped | State::Running(_) => None,
        }
    }

    /// For the data thread: does `work` on the queue, where it runs and nobody is changing it.
    #[inline]
    pub(crate) fn with<T: Default>(&self, work: impl FnOnce(&mut Q) -> Result<T, Failure>) -> T {
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

    /// For a data thread that is about to sleep, or has slept: as [`with`](Self::with), but what is
    /// to be done is done even where the control thread is looking at the queue just now. It does
    /// not look for long, and it wakes nobody afterwards.
    pub(crate) fn with_patience<T: Default>(
        &self,
        work: impl FnOnce(&mut Q) -> Result<T, Failure>,
    ) -> T {
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
