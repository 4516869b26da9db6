//! The transmitting half of a port with pairs of queues.

use std::io;
use std::sync::Arc;

use dray_wire::offload::Offloads;

use super::queues::{Pairs, TransmitQueue};
use super::shared::Shared;
use crate::ends::slot::Slot;
use crate::fill::Fill;
use crate::frame::FRAME_LIMIT;
use crate::lost::Lost;
use crate::{Frame, Transmit};

pub(super) struct TransmitHalf<P> {
    shared: Arc<Shared<P>>,
    pair: usize,
    lost: Lost,
}

impl<P: Pairs> TransmitHalf<P> {
    pub(super) fn new(shared: Arc<Shared<P>>, pair: usize) -> Self {
        Self { shared, pair, lost: Lost::new() }
    }

    #[inline]
    fn slot(&self) -> &Slot<P::Transmit> {
        &self.shared.pairs.pairs()[self.pair].transmit
    }
}

impl<P: Pairs> Transmit for TransmitHalf<P> {
    #[inline]
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        let Self { shared, pair, lost } = self;
        lost.begin();
        let slot = &shared.pairs.pairs()[*pair].transmit;
        let taken = slot.with(|queue| queue.transmit(frames, lost));
        if !lost.of_call().is_empty() {
            // A call that fails has taken nothing.
            lost.keep(taken);
        }
        Ok(taken)
    }

    fn frame_max(&self) -> usize {
        FRAME_LIMIT
    }

    fn fill(&self) -> Option<Fill> {
        self.slot().inspect(TransmitQueue::fill)
    }

    fn offloads(&self) -> Offloads {
        self.slot().with(|queue| Ok(queue.offloads()))
    }

    fn lost(&self) -> &Lost {
        &self.lost
    }

    fn pending(&mut self) -> usize {
        self.slot().with(TransmitQueue::pending)
    }

    fn is_ready(&self) -> bool {
        self.slot().is_running()
    }
}
