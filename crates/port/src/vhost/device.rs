//! What the data threads and the control thread of a vhost port share.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::queue::Running;
use crate::event::{Event, Wakes};
use crate::slot::{Failure, Slot};

/// The part of a port that its data threads use. Virtqueue `2 * q` leads to the driver, `2 * q + 1`
/// comes from it.
pub(super) struct Device {
    slots: Vec<Slot<Box<Running>>>,
    /// By queue pair: what wakes who sleeps until the driver transmits.
    wakes: Vec<Wakes>,
    /// Frames that were none, or that never fitted the driver's buffers.
    malformed: Arc<AtomicU64>,
}

impl Device {
    /// `attention` is signalled by a data thread that gives up a queue.
    pub(super) fn new(queues: u16, attention: &Arc<Event>) -> io::Result<Self> {
        Ok(Self {
            slots: (0..2 * queues).map(|_| Slot::new(attention.clone())).collect(),
            wakes: (0..queues).map(|_| Wakes::new()).collect::<io::Result<_>>()?,
            malformed: Arc::default(),
        })
    }

    pub(super) fn vrings(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn slot(&self, index: usize) -> &Slot<Box<Running>> {
        &self.slots[index]
    }

    #[inline]
    pub(super) fn driver_receives(&self, queue: usize) -> &Slot<Box<Running>> {
        &self.slots[2 * queue]
    }

    #[inline]
    pub(super) fn driver_transmits(&self, queue: usize) -> &Slot<Box<Running>> {
        &self.slots[2 * queue + 1]
    }

    pub(super) fn wakes(&self, queue: usize) -> &Wakes {
        &self.wakes[queue]
    }

    /// Wakes the data thread, for a queue has changed under it.
    pub(super) fn wake(&self, index: usize) {
        self.wakes[index / 2].wake();
    }

    pub(super) fn watch_kick(&self, index: usize, kick: BorrowedFd<'_>) -> io::Result<()> {
        // Nobody waits for room to receive: a full receiver drops.
        if index % 2 == 1 { self.wakes[index / 2].watch(kick) } else { Ok(()) }
    }

    pub(super) fn forget_kick(&self, index: usize, kick: BorrowedFd<'_>) {
        if index % 2 == 1 {
            self.wakes[index / 2].forget(kick);
        }
    }

    pub(super) fn malformed(&self) -> &Arc<AtomicU64> {
        &self.malformed
    }

    pub(super) fn is_running(&self) -> bool {
        self.slots.iter().any(Slot::is_running)
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        self.slots.iter().find_map(Slot::failure)
    }
}
