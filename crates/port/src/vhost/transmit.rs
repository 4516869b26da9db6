//! The transmitting half of a vhost port: frames that the driver receives.

use std::io;
use std::sync::Arc;

use super::Shared;
use crate::frame::FRAME_LIMIT;
use crate::{Frame, Transmit};

pub(super) struct VhostTransmit {
    shared: Arc<Shared>,
    queue: usize,
}

impl VhostTransmit {
    /// Of the queue pair `queue`.
    pub(super) fn new(shared: Arc<Shared>, queue: usize) -> Self {
        Self { shared, queue }
    }
}

impl Transmit for VhostTransmit {
    #[inline]
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        let slot = self.shared.device.driver_receives(self.queue);
        Ok(slot.with(|running| running.transmit(frames)))
    }

    fn frame_max(&self) -> usize {
        FRAME_LIMIT
    }

    fn is_ready(&self) -> bool {
        self.shared.device.driver_receives(self.queue).is_running()
    }
}
