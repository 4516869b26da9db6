//! The transmitting half of a port with pairs of queues.

use std::io;
use std::sync::Arc;

use dray_wire::offload::Offloads;

use super::{Pairs, Shared, TransmitQueue};
use crate::fill::Fill;
use crate::frame::FRAME_LIMIT;
use crate::slot::Slot;
use crate::{Frame, Transmit};

pub(super) struct TransmitHalf<P> {
    shared: Arc<Shared<P>>,
    pair: usize,
}

impl<P: Pairs> TransmitHalf<P> {
    pub(super) fn new(shared: Arc<Shared<P>>, pair: usize) -> Self {
        Self { shared, pair }
    }

    #[inline]
    fn slot(&self) -> &Slot<P::Transmit> {
        &self.shared.pairs.pairs()[self.pair].transmit
    }
}

impl<P: Pairs> Transmit for TransmitHalf<P> {
    #[inline]
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        Ok(self.slot().with(|queue| queue.transmit(frames)))
    }

    fn frame_max(&self) -> usize {
        FRAME_LIMIT
    }

    fn fill(&self) -> Option<Fill> {
        self.slot().look(TransmitQueue::fill)
    }

    fn offloads(&self) -> Offloads {
        self.slot().with(|queue| Ok(queue.offloads()))
    }

    fn pending(&mut self) -> usize {
        self.slot().with(TransmitQueue::pending)
    }

    fn is_ready(&self) -> bool {
        self.slot().is_running()
    }
}
