//! A ring of a memif port with its buffers, ready to move frames.

use std::sync::Arc;

use arrayvec::ArrayVec;
use dray_ring::memif::ClientRing;

use super::memory::{BUFFER, Buffers, SharedMemory};
use crate::ends::pairs;
use crate::ends::slot::Failure;
use crate::fill::Fill;
use crate::frame::reassembly::ReassemblyBuffer;
use crate::frame::{self, Copier, FRAME_LIMIT, Frame};
use crate::lost::{Loss, Lost};
use crate::signal::peer_event::PeerEvent;
use crate::{BATCH_MAX, Batch, Take};

/// State shared by the data threads and the control thread of a client.
pub(super) type Device = pairs::Device<ReceiveQueue, TransmitQueue>;

/// The ring on which the port transmits.
#[derive(Debug)]
pub(super) struct TransmitQueue {
    ring: ClientRing,
    buffers: Buffers,
    copier: Copier,
    /// Signalled for a server that requests notifications.
    event: PeerEvent,
    /// Keeps the memory of ring and buffers mapped.
    _memory: Arc<SharedMemory>,
}

impl TransmitQueue {
    /// `ring` and `buffers` must lie in `memory`.
    pub(super) fn new(
        ring: ClientRing,
        buffers: Buffers,
        event: PeerEvent,
        memory: Arc<SharedMemory>,
    ) -> Self {
        Self { ring, buffers, copier: Copier::new(), event, _memory: memory }
    }

    #[inline]
    fn reclaim(&mut self) -> Result<(), Failure> {
        let returned = self.ring.poll()?;
        self.ring.take(returned);
        Ok(())
    }

    /// Transmits frames of one buffer each, up to the first longer one; returns how many there was
    /// room for.
    #[inline]
    fn put(&mut self, frames: &[Frame<'_>]) -> usize {
        let room = frames.iter().take(usize::from(self.ring.room()).min(BATCH_MAX));
        let count = room.take_while(|frame| frame.len() <= BUFFER).count();
        let Self { ring, buffers, copier, .. } = self;
        let mut space = frame::CopySpace::new();
        let mut copies = space.list();
        for (at, frame) in (0..).zip(&frames[..count]) {
            frame.add_copies(buffers.start(ring.entry(at)), &mut copies);
        }
        // SAFETY: the buffers have room for frames of this length, and no code of ours reads them.
        unsafe { copier.copy_each(copies.as_slice()) };
        let lens = frames[..count].iter().map(|frame| frame.len() as u32);
        ring.post_each(lens, |entry| buffers.offset(entry));
        count
    }

    /// Transmits a frame of several buffers. Returns true if there was room.
    #[cold]
    fn put_long(&mut self, frame: &Frame<'_>) -> bool {
        if frame.len().div_ceil(BUFFER) > self.ring.room().into() {
            return false;
        }
        for at in (0..frame.len()).step_by(BUFFER) {
            let entry = self.ring.entry(0);
            let part = at..(at + BUFFER).min(frame.len());
            // SAFETY: the part is no longer than a buffer.
            unsafe { frame.copy_part(part.clone(), self.buffers.start(entry)) };
            let more = part.end < frame.len();
            self.ring.post(self.buffers.offset(entry), part.len() as u32, more);
        }
        true
    }
}

impl pairs::TransmitQueue for TransmitQueue {
    #[inline]
    fn transmit(&mut self, frames: &[Frame<'_>], lost: &mut Lost) -> Result<usize, Failure> {
        self.reclaim()?;
        let mut taken = 0;
        while taken < frames.len() {
            match self.put(&frames[taken..]) {
                0 if frames[taken].len() <= BUFFER => break,
                // The ring is too small.
                0 if frames[taken].len().div_ceil(BUFFER) > self.ring.size().into() => {
                    lost.add(taken, Loss::TooLong);
                    taken += 1;
                }
                0 if !self.put_long(&frames[taken]) => break,
                0 => taken += 1,
                short => taken += short,
            }
        }
        if self.ring.publish() {
            self.event.signal();
        }
        Ok(taken)
    }

    fn fill(&self) -> Fill {
        let used = self.ring.in_use().saturating_sub(self.ring.waiting());
        Fill::new(used, self.ring.size())
    }

    fn pending(&mut self) -> Result<usize, Failure> {
        self.reclaim()?;
        Ok(self.ring.in_use().into())
    }
}

/// Maximum number of buffers of one frame.
const BUFFERS_MAX: usize = FRAME_LIMIT.div_ceil(BUFFER);

/// The ring on which the port receives.
#[derive(Debug)]
pub(super) struct ReceiveQueue {
    ring: ClientRing,
    buffers: Buffers,
    /// Signalled by the server when a frame has arrived.
    pub(super) event: PeerEvent,
    /// Keeps the memory of ring and buffers mapped.
    _memory: Arc<SharedMemory>,
}

impl ReceiveQueue {
    /// Creates the queue and posts every buffer. `ring` and `buffers` must lie in `memory`.
    pub(super) fn new(
        ring: ClientRing,
        buffers: Buffers,
        event: PeerEvent,
        memory: Arc<SharedMemory>,
    ) -> Self {
        let mut new = Self { ring, buffers, event, _memory: memory };
        new.ring.want_interrupts(false);
        post_all(&mut new.ring, buffers);
        new
    }
}

impl pairs::ReceiveQueue for ReceiveQueue {
    #[inline]
    fn receive(
        &mut self,
        reassembly: &mut ReassemblyBuffer,
        take: &mut Take<'_>,
    ) -> Result<usize, Failure> {
        let Self { ring, buffers, .. } = self;
        let returned = ring.poll()?;
        let mut room = reassembly.rooms();
        let mut batch = Batch::new();
        // Number of buffers of each frame.
        let mut counts = ArrayVec::<u16, BATCH_MAX>::new();
        let mut next = 0;
        while !batch.is_full() && next < returned {
            let first = ring.returned(next);
            if next + 8 < returned {
                frame::prefetch_to_read(buffers.start(ring.returned(next + 8).entry).as_ptr());
            }
            if !first.more {
                if !(1..=BUFFER as u32).contains(&first.len) {
                    return Err(Failure::Header { buffers: 1, len: first.len });
                }
                // SAFETY: the buffer holds `first.len` bytes. The queue holds the memory, and is
                // locked for longer than the frame is lent.
                batch.push(unsafe { Frame::shared(buffers.start(first.entry), first.len) });
                counts.push(1);
                next += 1;
                continue;
            }
            let Some(to) = room.next() else { break };
            match gather(ring, *buffers, next, returned, to)? {
                Some((count, len)) => {
                    batch.push(Frame::from(&to[..len]));
                    counts.push(count);
                    next += count;
                }
                // The frame's other buffers are not returned yet.
                None => break,
            }
        }
        let lent = batch.len();
        let taken = if lent > 0 { take(&batch).min(lent) } else { 0 };
        ring.take(counts[..taken].iter().sum());
        post_all(ring, *buffers);
        Ok(lent)
    }

    fn want_events(&mut self, on: bool) -> bool {
        self.ring.want_interrupts(on)
    }

    fn fill(&self) -> Fill {
        Fill::new(self.ring.waiting(), self.ring.size())
    }
}

/// Posts every free buffer, empty.
#[inline]
fn post_all(ring: &mut ClientRing, buffers: Buffers) {
    for _ in 0..ring.room() {
        let entry = ring.entry(0);
        ring.post(buffers.offset(entry), BUFFER as u32, false);
    }
    // No event is signalled: a server that transmits into empty buffers does not wait for them.
    ring.publish();
}

/// Copies the multi-buffer frame that begins at returned entry `next`. Returns the number of its
/// buffers and its length, or `None` if not all of it is there.
#[cold]
fn gather(
    ring: &ClientRing,
    buffers: Buffers,
    next: u16,
    returned: u16,
    to: &mut [u8],
) -> Result<Option<(u16, usize)>, Failure> {
    let mut len = 0;
    for (count, index) in (1..).zip(next..returned) {
        let part = ring.returned(index);
        let bytes = part.len as usize;
        if bytes > BUFFER || len + bytes > to.len() || usize::from(count) > BUFFERS_MAX {
            return Err(Failure::Header { buffers: count, len: part.len });
        }
        // SAFETY: the part lies in its buffer, and fits into `to`.
        unsafe {
            frame::copy(buffers.start(part.entry).as_ptr(), to[len..].as_mut_ptr(), bytes);
        }
        len += bytes;
        if !part.more {
            return match len {
                0 => Err(Failure::Header { buffers: count, len: 0 }),
                _ => Ok(Some((count, len))),
            };
        }
    }
    Ok(None)
}
