//! The transmitting half of a virtio port.

use std::io;
use std::sync::Arc;

use super::Shared;
use super::queue::TransmitQueue;
use crate::frame::FRAME_LIMIT;
use crate::{Frame, Transmit};

pub(super) struct VirtioTransmit {
    shared: Arc<Shared>,
    queue: usize,
}

impl VirtioTransmit {
    /// Of the queue pair `queue`.
    pub(super) fn new(shared: Arc<Shared>, queue: usize) -> Self {
        Self { shared, queue }
    }
}

impl Transmit for VirtioTransmit {
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
