//! A ring in a client's memory, ready to move frames.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use arrayvec::ArrayVec;
use dray_ring::memif::{Posted, ServerRing};
use dray_ring::{CHAIN_MAX, RingError};
use dray_shm::GuestMemory;

use crate::ends::pairs;
use crate::ends::slot::Failure;
use crate::fill::Fill;
use crate::frame::reassembly::ReassemblyBuffer;
use crate::frame::{self, Copier, FRAME_LEAST, FRAME_LIMIT, Frame};
use crate::lost::{Loss, Lost};
use crate::signal::peer_event::PeerEvent;
use crate::{BATCH_MAX, Batch, Take};

/// State shared by the data threads and the control thread of a server.
pub(super) type Device = pairs::Device<ReceiveQueue, TransmitQueue>;

/// Maximum number of entries read per call, up to the end of a frame: while a data thread reads
/// them it serves no other port. A whole batch of the longest frames in buffers of 500 bytes needs
/// as many.
const ENTRIES_MAX: usize = 8192;

/// Returns the address in [`GuestMemory`] of an offset in a region: no region exceeds 4 GiB.
pub(super) fn address(region: u16, offset: u32) -> u64 {
    u64::from(region) << 32 | u64::from(offset)
}

/// The client's memory.
#[derive(Debug)]
struct Memory {
    regions: Arc<GuestMemory>,
    /// Search hint: the last region.
    hint: usize,
}

impl Memory {
    /// Returns the buffer of an entry, all of which is mapped.
    #[inline(always)]
    fn find(&mut self, posted: &Posted) -> Result<NonNull<u8>, RingError> {
        let &Posted { region, offset, len, .. } = posted;
        let found = self.regions.translate(address(region, offset), len.into(), &mut self.hint);
        found.ok_or(RingError::OutsideRegion { region, offset, len })
    }

    /// Completes a batch; returns how many frames it moved. Lost memory reads as zeroes, so values
    /// read from it are not treated as a protocol violation, and a batch that may have used it is
    /// not reported as moved.
    #[inline]
    fn finish(
        &self,
        moved: Result<(usize, bool), RingError>,
        event: &PeerEvent,
    ) -> Result<usize, Failure> {
        if self.regions.is_lost() {
            return Err(Failure::MemoryLost);
        }
        let (frames, is_wanted) = moved?;
        if is_wanted {
            event.signal();
        }
        Ok(frames)
    }
}

/// A buffer of the client, and its length.
type Part = (NonNull<u8>, usize);
/// The buffers of one frame.
type Parts = ArrayVec<Part, { CHAIN_MAX as usize }>;

/// The ring on which the port receives.
#[derive(Debug)]
pub(super) struct ReceiveQueue {
    ring: ServerRing,
    memory: Memory,
    /// Signalled by the client when a frame has arrived.
    pub(super) event: PeerEvent,
    /// Counts received frames that are too short or too long.
    malformed: Arc<AtomicU64>,
}

impl ReceiveQueue {
    /// `ring` must lie in `memory`.
    pub(super) fn new(
        mut ring: ServerRing,
        memory: Arc<GuestMemory>,
        event: PeerEvent,
        malformed: Arc<AtomicU64>,
    ) -> Self {
        ring.want_interrupts(false);
        Self { ring, memory: Memory { regions: memory, hint: 0 }, event, malformed }
    }

    #[inline]
    fn lend(
        &mut self,
        reassembly: &mut ReassemblyBuffer,
        take: &mut Take<'_>,
    ) -> Result<(usize, bool), RingError> {
        let posted = self.ring.poll()?;
        let mut batch = Batch::new();
        for index in 0..posted.min(BATCH_MAX as u16) {
            let entry = self.ring.posted(index);
            if entry.more || !(FRAME_LEAST..=FRAME_LIMIT).contains(&(entry.len as usize)) {
                // Handled by `lend_odd`, once it is the first.
                break;
            }
            let start = self.memory.find(&entry)?;
            // SAFETY: the buffer is mapped for as long as the queue's lock is held, which is longer
            // than the frame is lent.
            batch.push(unsafe { Frame::shared(start, entry.len) });
        }
        let lent = batch.len();
        if lent > 0 {
            self.ring.commit(lent as u16);
            let taken = take(&batch).min(lent);
            self.ring.take(taken as u16);
            return Ok((lent, self.ring.publish()));
        }
        if posted == 0 {
            return Ok((0, false));
        }
        self.lend_odd(posted, reassembly, take)
    }

    /// Slow path: the first frame is multi-buffer or malformed.
    #[cold]
    fn lend_odd(
        &mut self,
        mut posted: u16,
        reassembly: &mut ReassemblyBuffer,
        take: &mut Take<'_>,
    ) -> Result<(usize, bool), RingError> {
        let mut room = reassembly.rooms();
        let mut batch = Batch::new();
        // Number of entries of each frame, and of all.
        let mut counts = ArrayVec::<u16, { ReassemblyBuffer::MAX }>::new();
        let mut next = 0;
        let mut read = 0;
        while next < posted && read < ENTRIES_MAX {
            let mut parts = Parts::new();
            let Some(len) = self.parts(next..posted, &mut parts)? else { break };
            read += parts.len();
            if !(FRAME_LEAST..=FRAME_LIMIT).contains(&len) {
                if !batch.is_empty() {
                    // Handled once it is the first: entries are returned in order.
                    break;
                }
                self.malformed.fetch_add(1, Ordering::Relaxed);
                self.ring.take(parts.len() as u16);
                posted -= parts.len() as u16;
                continue;
            }
            let Some(to) = room.next() else { break };
            let mut at = 0;
            for (start, len) in &parts {
                // SAFETY: the part is mapped, and all parts fit into `to`, by the length.
                unsafe { frame::copy(start.as_ptr(), to[at..].as_mut_ptr(), *len) };
                at += len;
            }
            // Only this copy is checked and used.
            compiler_fence(Ordering::SeqCst);
            batch.push(Frame::from(&to[..len]));
            counts.push(parts.len() as u16);
            next += parts.len() as u16;
        }
        self.ring.commit(counts.iter().sum());
        let taken = if batch.is_empty() { 0 } else { take(&batch).min(batch.len()) };
        self.ring.take(counts[..taken].iter().sum());
        Ok((batch.len(), self.ring.publish()))
    }

    /// Finds the buffers of the frame that begins with the first of the posted entries `range`.
    /// Returns its length, or `None` if its end is not posted yet.
    fn parts(
        &mut self,
        range: std::ops::Range<u16>,
        parts: &mut Parts,
    ) -> Result<Option<usize>, RingError> {
        let max = CHAIN_MAX.min(self.ring.size());
        let mut len = 0;
        for index in range {
            let entry = self.ring.posted(index);
            parts.push((self.memory.find(&entry)?, entry.len as usize));
            len += entry.len as usize;
            if !entry.more {
                return Ok(Some(len));
            }
            if parts.len() == usize::from(max) {
                return Err(RingError::ChainTooLong { max });
            }
        }
        Ok(None)
    }
}

impl pairs::ReceiveQueue for ReceiveQueue {
    #[inline]
    fn receive(
        &mut self,
        reassembly: &mut ReassemblyBuffer,
        take: &mut Take<'_>,
    ) -> Result<usize, Failure> {
        let moved = self.lend(reassembly, take);
        self.memory.finish(moved, &self.event)
    }

    fn want_events(&mut self, on: bool) -> bool {
        self.ring.want_interrupts(on)
    }

    fn fill(&self) -> Fill {
        Fill::new(self.ring.waiting(), self.ring.size())
    }
}

/// The ring on which the port transmits, into buffers that the client posts empty.
#[derive(Debug)]
pub(super) struct TransmitQueue {
    ring: ServerRing,
    memory: Memory,
    copier: Copier,
    /// Signalled for a client that requests notifications.
    event: PeerEvent,
}

/// Outcome of transmitting a frame that needs several buffers.
enum Put {
    Done,
    /// It can never fit.
    Dropped,
    NoRoom,
}

impl TransmitQueue {
    /// `ring` must lie in `memory`.
    pub(super) fn new(ring: ServerRing, memory: Arc<GuestMemory>, event: PeerEvent) -> Self {
        let memory = Memory { regions: memory, hint: 0 };
        Self { ring, memory, copier: Copier::new(), event }
    }

    fn put_all(
        &mut self,
        frames: &[Frame<'_>],
        lost: &mut Lost,
    ) -> Result<(usize, bool), RingError> {
        let mut posted = self.ring.poll()?;
        let (mut taken, mut read) = (0, 0);
        while taken < frames.len() && read < ENTRIES_MAX {
            let short = self.put(&frames[taken..], posted)?;
            taken += short;
            posted -= short as u16;
            read += short;
            let Some(frame) = frames.get(taken) else { break };
            let (put, entries) = self.put_long(frame, posted)?;
            read += usize::from(entries);
            match put {
                Put::Done => posted -= entries,
                Put::Dropped => lost.add(taken, Loss::TooLong),
                Put::NoRoom => break,
            }
            taken += 1;
        }
        Ok((taken, self.ring.publish()))
    }

    /// Transmits frames of one buffer each, into `posted` entries, up to the first that does not
    /// fit its buffer; returns how many.
    #[inline]
    fn put(&mut self, frames: &[Frame<'_>], posted: u16) -> Result<usize, RingError> {
        let mut space = frame::CopySpace::new();
        let mut copies = space.list();
        let mut count = 0;
        for (index, frame) in (0..posted).zip(&frames[..frames.len().min(BATCH_MAX)]) {
            let entry = self.ring.posted(index);
            if frame.len() > entry.len as usize {
                break;
            }
            frame.add_copies(self.memory.find(&entry)?, &mut copies);
            count = index + 1;
        }
        // SAFETY: the buffers are mapped, and long enough for their frames.
        unsafe { self.copier.copy_each(copies.as_slice()) };
        for (index, frame) in (0..count).zip(frames) {
            self.ring.fill(index, frame.len() as u32, false);
        }
        self.ring.take(count);
        Ok(count.into())
    }

    /// Transmits a frame into several of `posted` entries; returns how many it read.
    #[cold]
    fn put_long(&mut self, frame: &Frame<'_>, posted: u16) -> Result<(Put, u16), RingError> {
        let max = CHAIN_MAX.min(self.ring.size());
        let mut parts = Parts::new();
        let mut room = 0;
        while room < frame.len() {
            let index = parts.len() as u16;
            if index == max {
                return Ok((Put::Dropped, index));
            }
            if index == posted {
                return Ok((Put::NoRoom, index));
            }
            let entry = self.ring.posted(index);
            let len = (entry.len as usize).min(frame.len() - room);
            parts.push((self.memory.find(&entry)?, len));
            room += len;
        }
        let mut at = 0;
        for (index, (start, len)) in (0..).zip(&parts) {
            // SAFETY: the part is mapped, and no longer than its buffer.
            unsafe { frame.copy_part(at..at + len, *start) };
            at += len;
            self.ring.fill(index, *len as u32, at < frame.len());
        }
        self.ring.take(parts.len() as u16);
        Ok((Put::Done, parts.len() as u16))
    }
}

impl pairs::TransmitQueue for TransmitQueue {
    #[inline]
    fn transmit(&mut self, frames: &[Frame<'_>], lost: &mut Lost) -> Result<usize, Failure> {
        let moved = self.put_all(frames, lost);
        self.memory.finish(moved, &self.event)
    }

    fn fill(&self) -> Fill {
        // Buffers that the client has posted are empty.
        Fill::new(self.ring.size() - self.ring.waiting(), self.ring.size())
    }
}
