//! A virtqueue of a virtio port with its buffers, ready to move frames.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use arrayvec::ArrayVec;
use dray_ring::packed::{PackedDriver, PackedLayout};
use dray_ring::split::{SplitDriver, SplitLayout};
use dray_ring::{Access, Buffer, DriverQueue, Lie, Used};

use super::VirtioUri;
use super::memory::{HEADER_LEN, QueueOffsets, SLOT_FRAME, SharedMemory, Slots};
use crate::either::{Either, either};
use crate::event::PeerEvent;
use crate::fill::Fill;
use crate::frame::{self, FRAME_LIMIT, Frame};
use crate::gathered::Gathered;
use crate::pairs;
use crate::slot::Failure;
use crate::{BATCH_MAX, Batch, Take};

/// Number of slots that the longest frame takes.
const SLOTS_MAX: usize = FRAME_LIMIT.div_ceil(SLOT_FRAME);

pub(super) type Queue = Either<SplitDriver, PackedDriver>;

/// Creates the rings of a new virtqueue. The owner of the result must keep `memory` mapped.
fn queue(memory: &SharedMemory, uri: &VirtioUri, offsets: &QueueOffsets) -> Result<Queue, String> {
    let [descriptors, driver, used] =
        [offsets.descriptors, offsets.driver, offsets.device].map(|offset| memory.at(offset));
    if uri.packed {
        // SAFETY: the parts lie in the memory, which the queue's owner holds as long as the queue.
        let layout = unsafe { PackedLayout::new(uri.size, descriptors, driver, used) };
        let layout = layout.map_err(|error| error.to_string())?;
        Ok(Queue::Packed(PackedDriver::new(layout, false)))
    } else {
        // SAFETY: as above.
        let layout = unsafe { SplitLayout::new(uri.size, descriptors, driver, used) };
        let layout = layout.map_err(|error| error.to_string())?;
        Ok(Queue::Split(SplitDriver::new(layout, false)))
    }
}

/// Length that no frame in a slot has: the slot's descriptor must be written.
const REWRITE: u16 = u16::MAX;

/// The virtqueue on which the port transmits.
#[derive(Debug)]
pub(super) struct TransmitQueue {
    queue: Queue,
    slots: Slots,
    /// Signalled when the back end wants to be notified of frames.
    kick: PeerEvent,
    /// For each slot, the length of the frame that its descriptor describes, or [`REWRITE`].
    posted: Box<[u16]>,
    /// Holds the memory of rings and slots.
    _memory: Arc<SharedMemory>,
}

impl TransmitQueue {
    /// Kicks once although no frame is posted: a back end may start a ring only at the first kick
    /// (vhost-user, "Ring states"), and VPP considers a port down until all its rings are started.
    pub(super) fn new(
        memory: &Arc<SharedMemory>,
        uri: &VirtioUri,
        offsets: &QueueOffsets,
        kick: PeerEvent,
    ) -> Result<Self, String> {
        let (queue, slots) = (queue(memory, uri, offsets)?, memory.slots(offsets));
        kick.signal();
        let posted = vec![REWRITE; slots.count()].into();
        Ok(Self { queue, slots, kick, posted, _memory: memory.clone() })
    }
}

impl pairs::TransmitQueue for TransmitQueue {
    #[inline]
    fn transmit(&mut self, frames: &[Frame<'_>]) -> Result<usize, Failure> {
        let Self { queue, slots, posted, .. } = self;
        let (taken, kick) = either!(queue, queue => transmit(queue, *slots, posted, frames)?);
        if kick {
            self.kick.signal();
        }
        Ok(taken)
    }

    fn fill(&self) -> Fill {
        either!(&self.queue, queue => {
            Fill::new(queue.in_use().saturating_sub(queue.waiting()), queue.size())
        })
    }

    fn pending(&mut self) -> Result<usize, Failure> {
        either!(&mut self.queue, queue => {
            queue.poll_each(usize::MAX, |_| ())?;
            Ok(queue.in_use().into())
        })
    }
}

#[inline]
fn transmit<Q: DriverQueue>(
    queue: &mut Q,
    slots: Slots,
    posted: &mut [u16],
    frames: &[Frame<'_>],
) -> Result<(usize, bool), Lie> {
    // Reclaims the slots of transmitted frames.
    queue.poll_each(usize::MAX, |_| ())?;
    let mut taken = 0;
    while taken < frames.len() {
        let rest = &frames[taken..];
        match transmit_short(queue, slots, posted, rest) {
            0 if rest[0].len() <= SLOT_FRAME => break,
            0 if !transmit_long(queue, slots, posted, &rest[0]) => break,
            0 => taken += 1,
            short => taken += short,
        }
    }
    Ok((taken, queue.publish()))
}

/// Transmits frames of one slot each, up to the first longer one; returns how many there was room
/// for.
#[inline]
fn transmit_short<Q: DriverQueue>(
    queue: &mut Q,
    slots: Slots,
    posted: &mut [u16],
    frames: &[Frame<'_>],
) -> usize {
    let mut ids = ArrayVec::<u16, BATCH_MAX>::new();
    queue.ids(&mut ids);
    let is_short = |(frame, _): &(&Frame<'_>, _)| frame.len() <= SLOT_FRAME;
    let short = frames.iter().zip(&ids).take_while(is_short).count();
    let (frames, ids) = (&frames[..short], &ids[..short]);
    let mut copies = frame::Copies::new();
    for (frame, &id) in frames.iter().zip(ids) {
        frame.add_copies(slots.frame(id), &mut copies);
    }
    // SAFETY: the slots have room for frames of this length, and no code of ours reads them.
    unsafe { frame::copy_each(&copies) };
    // Number of slots that are filled and wait to be posted with unchanged descriptors.
    let mut run = 0;
    for (frame, &id) in frames.iter().zip(ids) {
        let len = frame.len() as u16;
        if std::mem::replace(&mut posted[usize::from(id)], len) == len {
            run += 1;
        } else {
            queue.repost(std::mem::take(&mut run));
            let start = slots.frame(id);
            queue.post(&[buffer(start, HEADER_LEN, frame.len(), Access::Read)]);
        }
    }
    queue.repost(run);
    short
}

/// Transmits a frame that takes several slots. Returns true if there was room.
#[cold]
fn transmit_long<Q: DriverQueue>(
    queue: &mut Q,
    slots: Slots,
    posted: &mut [u16],
    frame: &Frame<'_>,
) -> bool {
    let count = frame.len().div_ceil(SLOT_FRAME);
    let mut ids = ArrayVec::<u16, SLOTS_MAX>::new();
    queue.ids(&mut ids);
    if ids.len() < count {
        return false;
    }
    let mut buffers = ArrayVec::<Buffer, SLOTS_MAX>::new();
    for (id, at) in ids.into_iter().zip((0..frame.len()).step_by(SLOT_FRAME)) {
        let start = slots.frame(id);
        posted[usize::from(id)] = REWRITE;
        let part = at..(at + SLOT_FRAME).min(frame.len());
        // SAFETY: the part is no longer than the slot.
        unsafe { frame.copy_part(part.clone(), start) };
        let header = if at == 0 { HEADER_LEN } else { 0 };
        buffers.push(buffer(start, header, part.len(), Access::Read));
    }
    queue.post(&buffers).is_some()
}

/// Returns a buffer of `len` bytes at `start` with `header` bytes before it. The header of a
/// transmitted frame is never written: it is all zero from the start, which requests no offload.
#[inline]
fn buffer(start: NonNull<u8>, header: usize, len: usize, access: Access) -> Buffer {
    let address = start.as_ptr() as u64 - header as u64;
    Buffer { address, len: (header + len) as u32, access }
}

/// The virtqueue on which the port receives.
#[derive(Debug)]
pub(super) struct ReceiveQueue {
    queue: Queue,
    slots: Slots,
    kick: PeerEvent,
    /// Signalled by the back end when a frame has arrived.
    pub(super) call: PeerEvent,
    /// Buffers that the back end returned, in order, whose frames were not taken yet.
    filled: ArrayVec<Used, FILLED_MAX>,
    /// Holds the memory of rings and slots.
    _memory: Arc<SharedMemory>,
}

/// Maximum number of buffers looked at per batch: those of a whole batch of frames, and what the
/// last frame takes beyond if it is long.
const FILLED_MAX: usize = BATCH_MAX + SLOTS_MAX;

impl ReceiveQueue {
    /// Creates the queue and posts every slot.
    pub(super) fn new(
        memory: &Arc<SharedMemory>,
        uri: &VirtioUri,
        offsets: &QueueOffsets,
        kick: PeerEvent,
        call: PeerEvent,
    ) -> Result<Self, String> {
        let (queue, slots) = (queue(memory, uri, offsets)?, memory.slots(offsets));
        let (filled, _memory) = (ArrayVec::new(), memory.clone());
        let mut new = Self { queue, slots, kick, call, filled, _memory };
        either!(&mut new.queue, queue => {
            while let Some(id) = queue.next_id() {
                queue.post(&[empty(slots, id)]);
            }
            queue.publish();
        });
        // Kicks even if the back end wants no kicks, as polling back ends say early.
        new.kick.signal();
        Ok(new)
    }
}

impl pairs::ReceiveQueue for ReceiveQueue {
    #[inline]
    fn receive(&mut self, gathered: &mut Gathered, take: &mut Take<'_>) -> Result<usize, Failure> {
        let Self { queue, slots, filled, .. } = self;
        let (lent, kick) = either!(queue, queue => receive(queue, *slots, filled, gathered, take)?);
        if kick {
            self.kick.signal();
        }
        Ok(lent)
    }

    fn want_events(&mut self, on: bool) -> bool {
        either!(&mut self.queue, queue => queue.want_calls(on)) || !self.filled.is_empty()
    }

    fn fill(&self) -> Fill {
        either!(&self.queue, queue => Fill::new(queue.waiting(), queue.size()))
    }
}

#[inline]
fn empty(slots: Slots, id: u16) -> Buffer {
    buffer(slots.frame(id), HEADER_LEN, SLOT_FRAME, Access::Write)
}

#[inline]
fn receive<Q: DriverQueue>(
    queue: &mut Q,
    slots: Slots,
    filled: &mut ArrayVec<Used, FILLED_MAX>,
    gathered: &mut Gathered,
    take: &mut Take<'_>,
) -> Result<(usize, bool), Failure> {
    queue.poll_each(filled.remaining_capacity(), |used| filled.push(used))?;
    let mut room = gathered.rooms();
    let mut batch = Batch::new();
    // Number of buffers of each frame.
    let mut counts = ArrayVec::<u16, BATCH_MAX>::new();
    let mut next = 0;
    while !batch.is_full() && next < filled.len() {
        let first = filled[next];
        if first.len == 0 {
            // Returned empty, because no frame fitted. Its place in the order is kept.
            if !batch.is_empty() {
                break;
            }
            filled.remove(0);
            queue.repost(1);
            continue;
        }
        if let Some(ahead) = filled.get(next + 8) {
            // SAFETY: the header is a part of the slot.
            frame::prefetch_to_read(unsafe { slots.frame(ahead.id).sub(HEADER_LEN) }.as_ptr());
        }
        let start = slots.frame(first.id);
        // SAFETY: the last two bytes of the header lie just before the frame, at an even address.
        let buffers = unsafe { start.sub(2).cast::<AtomicU16>().as_ref() }.load(Ordering::Relaxed);
        let buffers = u16::from_le(buffers);
        let len = first.len.wrapping_sub(HEADER_LEN as u32);
        if buffers == 1 && (1..=SLOT_FRAME).contains(&(len as usize)) {
            // SAFETY: the slot holds `len` bytes. The queue holds the memory, and is locked for
            // longer than the frame is lent.
            batch.push(unsafe { Frame::shared(start, len) });
            counts.push(1);
            next += 1;
            continue;
        }
        let all = usize::from(buffers);
        if !(1..=SLOTS_MAX).contains(&all) || len as usize > SLOT_FRAME {
            return Err(Failure::Header { buffers, len: first.len });
        }
        if next + all > filled.len() {
            // The frame's other buffers are not returned yet.
            break;
        }
        let Some(to) = room.next() else { break };
        let len = gather(slots, &filled[next..next + all], to)?;
        batch.push(Frame::from(&to[..len]));
        counts.push(buffers);
        next += all;
    }
    let lent = batch.len();
    let taken = if lent > 0 { take(&batch).min(lent) } else { 0 };
    // Ids become free in the order in which their buffers came back, so these are the oldest ones.
    let done = counts[..taken].iter().sum();
    queue.repost(done);
    filled.drain(..usize::from(done));
    Ok((lent, queue.publish()))
}

/// Copies a frame that the back end spread over the slots `parts`; returns its length.
#[cold]
fn gather(slots: Slots, parts: &[Used], to: &mut [u8]) -> Result<usize, Failure> {
    let lie = |len| Failure::Header { buffers: parts.len() as u16, len };
    let mut at = 0;
    for (index, used) in parts.iter().enumerate() {
        // Slots after the first are filled from the start of their header space.
        let header = if index == 0 { HEADER_LEN } else { 0 };
        let part = (used.len as usize).saturating_sub(header);
        if at + part > to.len() || part > SLOT_FRAME + HEADER_LEN - header {
            return Err(lie(used.len));
        }
        // SAFETY: the header is a part of the slot, and the part lies in the slot and fits into
        // `to`.
        unsafe {
            let from = slots.frame(used.id).sub(HEADER_LEN - header);
            frame::copy(from.as_ptr(), to[at..].as_mut_ptr(), part);
        }
        at += part;
    }
    if at == 0 {
        return Err(lie(0));
    }
    Ok(at)
}
