//! The receiving half of a port with pairs of queues.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::queues::{Pair, Pairs, ReceiveQueue};
use super::shared::Shared;
use crate::fill::Fill;
use crate::frame::reassembly::ReassemblyBuffer;
use crate::{PATIENCE, Receive, Take, Wait, wait_any};

pub(super) struct ReceiveHalf<P> {
    shared: Arc<Shared<P>>,
    pair: usize,
    reassembly: ReassemblyBuffer,
    wait: Wait,
}

impl<P: Pairs> ReceiveHalf<P> {
    pub(super) fn new(shared: Arc<Shared<P>>, pair: usize, wait: Wait) -> Self {
        Self { shared, pair, reassembly: ReassemblyBuffer::new(), wait }
    }

    fn pair(&self) -> &Pair<P::Receive, P::Transmit> {
        &self.shared.pairs.pairs()[self.pair]
    }

    #[inline]
    fn poll(&mut self, take: &mut Take<'_>) -> usize {
        let Self { shared, pair, reassembly, .. } = self;
        shared.pairs.pairs()[*pair].receive.try_with(|queue| queue.receive(reassembly, take))
    }
}

impl<P: Pairs> Receive for ReceiveHalf<P> {
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize> {
        let lent = self.poll(take);
        if lent > 0 || self.wait != Wait::Block {
            return Ok(lent);
        }
        wait_any(&mut [self], PATIENCE)?;
        Ok(self.poll(take))
    }

    fn refused(&self) -> u64 {
        // One number for the whole port: the first queue reports it. Frames for which the peer's
        // queue has no room are dropped, and counted, by the peer.
        if self.pair == 0 { self.shared.pairs.malformed() } else { 0 }
    }

    fn fill(&self) -> Option<Fill> {
        self.pair().receive.inspect(ReceiveQueue::fill)
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.pair().wakes.as_fd())
    }

    fn arm(&mut self, on: bool) -> bool {
        let pair = self.pair();
        // Before events are requested, so that no later event is lost.
        if on {
            pair.wakes.clear();
        }
        pair.receive.with(|queue| Ok(queue.want_events(on)))
    }

    fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }
}
