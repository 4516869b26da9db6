//! The transmitting half of a memif port.

use std::io;
use std::sync::Arc;

use super::Shared;
use super::queue::TransmitQueue;
use crate::frame::FRAME_LIMIT;
use crate::{Frame, Transmit};

pub(super) struct MemifTransmit {
    shared: Arc<Shared>,
    queue: usize,
}

impl MemifTransmit {
    /// Of the pair of rings `queue`.
    pub(super) fn new(shared: Arc<Shared>, queue: usize) -> Self {
        Self { shared, queue }
    }
}

impl Transmit for MemifTransmit {
    #[inline]
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        let pair = &self.shared.device.pairs[self.queue];
        Ok(pair.transmit.with(|queue| queue.transmit(frames, false)))
    }

    #[inline]
    fn transmit_series(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        let pair = &self.shared.device.pairs[self.queue];
        Ok(pair.transmit.with(|queue| queue.transmit(frames, true)))
    }

    fn frame_max(&self) -> usize {
        FRAME_LIMIT
    }

    fn pending(&mut self) -> usize {
        let pair = &self.shared.device.pairs[self.queue];
        pair.transmit.with_patience(TransmitQueue::pending)
    }

    fn is_ready(&self) -> bool {
        self.shared.device.pairs[self.queue].transmit.is_running()
    }
}
