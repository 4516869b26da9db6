//! The receiving half of a vhost port: frames that the driver transmits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Shared;
use super::queue::Gathered;
use crate::{Receive, Take, Wait, wait_any};

pub(super) struct VhostReceive {
    shared: Arc<Shared>,
    queue: usize,
    gathered: Gathered,
    wait: Wait,
}

impl VhostReceive {
    /// Of the queue pair `queue`.
    pub(super) fn new(shared: Arc<Shared>, queue: usize, wait: Wait) -> Self {
        Self { shared, queue, gathered: Gathered::new(), wait }
    }

    #[inline]
    fn poll(&mut self, take: &mut Take<'_>) -> usize {
        let slot = self.shared.device.driver_transmits(self.queue);
        slot.with(|running| running.receive(&mut self.gathered, take))
    }
}

impl Receive for VhostReceive {
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize> {
        let lent = self.poll(take);
        if lent > 0 || self.wait != Wait::Block {
            return Ok(lent);
        }
        wait_any(&mut [self])?;
        Ok(self.poll(take))
    }

    fn dropped(&self) -> io::Result<u64> {
        let malformed = self.shared.device.malformed().load(Ordering::Relaxed);
        // One number for the whole port: the first queue reports it.
        Ok(if self.queue == 0 { malformed } else { 0 })
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.device.wakes(self.queue).as_fd())
    }

    fn arm(&mut self, on: bool) -> bool {
        let device = &self.shared.device;
        // Before anything is asked for, so that no later event is forgotten.
        if on {
            device.wakes(self.queue).clear();
        }
        let slot = device.driver_transmits(self.queue);
        slot.with_patience(|running| Ok(running.want_kicks(on)))
    }

    fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }
}
