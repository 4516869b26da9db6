//! Packets that are ready but that the egress port had no room for.
//!
//! They are copied here, and no more packets are taken until they are gone. Excess packets thus
//! wait at their source, where the sender can see the queue, instead of being lost here.

use arrayvec::ArrayVec;
use dray_port::{FRAME_LIMIT, Frame};

use super::header_buffer::CHUNK;
use crate::counters::Sent;

/// Maximum number of packets in the queue. It exceeds a batch, since a packet may become many
/// fragments, and packets that waited for their session come in a row.
const QUEUE_MAX: usize = 8 * CHUNK;

/// Class of a transmitted frame, by which it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FrameClass {
    /// A packet that was received.
    Packet,
    /// A fragment of such a packet, but for the last one, which counts as the packet.
    Fragment,
    /// A packet that was made here.
    Generated,
}

/// Copies of packets that wait for the egress port.
pub(super) struct EgressQueue {
    bytes: Box<[u8]>,
    lens: ArrayVec<(usize, FrameClass), QUEUE_MAX>,
    /// How many of these, from the front, have been transmitted.
    sent: usize,
}

impl EgressQueue {
    pub(super) fn new() -> Self {
        // Memory that is never touched is not allocated.
        Self { bytes: vec![0; QUEUE_MAX * FRAME_LIMIT].into(), lens: ArrayVec::new(), sent: 0 }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// Returns true if there is room for `count` more packets.
    #[inline(always)]
    pub(super) fn has_room(&self, count: usize) -> bool {
        self.lens.len() + count <= QUEUE_MAX
    }

    /// Returns the number of waiting frames of a class.
    pub(super) fn count(&self, class: FrameClass) -> u64 {
        self.lens[self.sent..].iter().filter(|(_, of)| *of == class).count() as u64
    }

    /// Appends copies of frames; the caller has checked that there is [room](Self::has_room).
    #[cold]
    pub(super) fn keep<'f>(&mut self, frames: impl Iterator<Item = (&'f Frame<'f>, FrameClass)>) {
        let rooms = self.bytes.chunks_exact_mut(FRAME_LIMIT).skip(self.lens.len());
        for ((frame, class), room) in frames.zip(rooms) {
            self.lens.push((frame.copy_into(room), class));
        }
    }

    /// Passes the first waiting packets to `transmit`, and those that the port took to `count`;
    /// returns their number.
    pub(super) fn release(
        &mut self,
        transmit: impl FnOnce(&[Frame<'_>]) -> Sent,
        count: impl FnOnce(&[(usize, FrameClass)], Sent),
    ) -> usize {
        let waiting = self.lens.iter().zip(self.bytes.chunks_exact(FRAME_LIMIT)).skip(self.sent);
        let frames: ArrayVec<Frame<'_>, CHUNK> =
            waiting.map(|((len, _), bytes)| Frame::from(&bytes[..*len])).take(CHUNK).collect();
        let sent = transmit(&frames);
        let taken = sent.taken;
        drop(frames);
        count(&self.lens[self.sent..][..taken], sent);
        self.sent += taken;
        if self.sent == self.lens.len() {
            self.forget();
        }
        taken
    }

    /// Drops all waiting packets.
    pub(super) fn forget(&mut self) {
        self.lens.clear();
        self.sent = 0;
    }
}
