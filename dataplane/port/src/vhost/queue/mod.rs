//! A virtqueue of a vhost port, ready to move frames.

mod receive;
#[cfg(test)]
mod tests;
mod transmit;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use dray_ring::packed::PackedDevice;
use dray_ring::split::SplitDevice;
use dray_ring::{DeviceQueue, RingError};
use dray_shm::GuestMemory;
use dray_wire::offload::Offloads;

use crate::Take;
use crate::ends::headers::Headers;
use crate::ends::layout::{EitherLayout, with_layout};
use crate::ends::pairs::{ReceiveQueue, TransmitQueue};
use crate::ends::slot::Failure;
use crate::fill::Fill;
use crate::frame::reassembly::ReassemblyBuffer;
use crate::frame::{Copier, Frame};
use crate::lost::Lost;
use crate::signal::peer_event::PeerEvent;
use receive::receive;
use transmit::transmit;

/// Everything needed to move frames. Immutable except for the queue's own position.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) queue: Queue,
    pub(super) memory: Arc<GuestMemory>,
    /// Signalled when the peer wants to be notified of used buffers.
    pub(super) call: Option<PeerEvent>,
    pub(super) headers: Headers,
    pub(super) copier: Copier,
    /// Counts received frames that are too short or too long or have an invalid header.
    pub(super) malformed: Arc<AtomicU64>,
}

pub(super) type Queue = EitherLayout<SplitDevice, PackedDevice>;

impl Running {
    /// Completes a batch; returns how many frames it moved. Lost memory reads as zeroes, so values
    /// read from it are not treated as a protocol violation, and a batch that may have used it is
    /// not reported as moved.
    #[inline]
    fn finish(&self, moved: Result<(usize, bool), RingError>) -> Result<usize, Failure> {
        if self.memory.is_lost() {
            return Err(Failure::MemoryLost);
        }
        let (frames, call) = moved?;
        if let Some(event) = self.call.as_ref().filter(|_| call) {
            event.signal();
        }
        Ok(frames)
    }

    pub(super) fn base(&self) -> u16 {
        with_layout!(&self.queue, queue => queue.base())
    }
}

impl ReceiveQueue for Running {
    #[inline]
    fn receive(
        &mut self,
        reassembly: &mut ReassemblyBuffer,
        take: &mut Take<'_>,
    ) -> Result<usize, Failure> {
        let (memory, headers, malformed) = (&*self.memory, self.headers, &*self.malformed);
        // Compiled twice, so that headers without meaning are not read.
        let moved = match headers.offloads.checksum {
            false => with_layout!(&mut self.queue, queue => {
                receive::<_, false>(queue, memory, headers, reassembly, malformed, take)
            }),
            true => with_layout!(&mut self.queue, queue => {
                receive::<_, true>(queue, memory, headers, reassembly, malformed, take)
            }),
        };
        self.finish(moved)
    }

    fn want_events(&mut self, on: bool) -> bool {
        with_layout!(&mut self.queue, queue => queue.want_kicks(on))
    }

    fn fill(&self) -> Fill {
        with_layout!(&self.queue, queue => Fill::new(queue.waiting(), queue.size()))
    }
}

impl TransmitQueue for Running {
    #[inline]
    fn transmit(&mut self, frames: &[Frame<'_>], lost: &mut Lost) -> Result<usize, Failure> {
        let Self { queue, memory, headers, copier, .. } = self;
        let moved = with_layout!(queue, queue => {
            transmit(queue, memory, *headers, copier, frames, lost)
        });
        self.finish(moved)
    }

    fn fill(&self) -> Fill {
        // Buffers that the driver has posted are empty.
        with_layout!(&self.queue, queue => Fill::new(queue.size() - queue.waiting(), queue.size()))
    }

    fn offloads(&self) -> Offloads {
        self.headers.offloads
    }
}
