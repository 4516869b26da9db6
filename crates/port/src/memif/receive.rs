//! The receiving half of a memif port.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::{Pair, Shared};
use crate::{Receive, Take, Wait, wait_any};

pub(super) struct MemifReceive {
    shared: Arc<Shared>,
    queue: usize,
    wait: Wait,
}

impl MemifReceive {
    /// Of the pair of rings `queue`.
    pub(super) fn new(shared: Arc<Shared>, queue: usize, wait: Wait) -> Self {
        Self { shared, queue, wait }
    }

    #[inline]
    fn pair(&self) -> &Pair {
        &self.shared.device.pairs[self.queue]
    }

    #[inline]
    fn poll(&mut self, take: &mut Take<'_>) -> usize {
        self.pair().receive.with(|queue| queue.receive(take))
    }
}

impl Receive for MemifReceive {
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize> {
        let lent = self.poll(take);
        if lent > 0 || self.wait != Wait::Block {
            return Ok(lent);
        }
        wait_any(&mut [self])?;
        Ok(self.poll(take))
    }

    fn dropped(&self) -> io::Result<u64> {
        // What does not fit is dropped, and counted, by the server.
        Ok(0)
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.pair().wakes.as_fd())
    }

    fn arm(&mut self, on: bool) -> bool {
        let pair = self.pair();
        // Before anything is asked for, so that no later event is forgotten.
        if on {
            pair.wakes.clear();
        }
        pair.receive.with_patience(|queue| Ok(queue.want_interrupts(on)))
    }

    fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }
}
