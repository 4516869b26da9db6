//! A virtqueue of a virtio port with its buffers, ready to move frames.

use std::iter;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering, compiler_fence};

use arrayvec::ArrayVec;
use dray_ring::packed::{PackedDriver, PackedLayout};
use dray_ring::split::{SplitDriver, SplitLayout};
use dray_ring::{Access, Buffer, DriverQueue, RingError, Used};
use dray_wire::offload::{Offloads, VIRTIO_NET_LEN, VirtioNet};

use super::VirtioUri;
use super::memory::{HEADER_LEN, QueueOffsets, SLOT_FRAME, SharedMemory, Slots};
use crate::ends::headers::{self, Headers};
use crate::ends::layout::{EitherLayout, with_layout};
use crate::ends::pairs;
use crate::ends::slot::Failure;
use crate::fill::Fill;
use crate::frame::list::{List, Space};
use crate::frame::reassembly::{self, ReassemblyBuffer};
use crate::frame::{self, Copier, Copies, FRAME_LIMIT, Frame, OFFLOADED_LIMIT};
use crate::lost::{Loss, Lost};
use crate::signal::peer_event::PeerEvent;
use crate::{BATCH_MAX, Take};

/// State shared by the data threads and the control thread of a virtio port.
pub(super) type Device = pairs::Device<ReceiveQueue, TransmitQueue>;

/// Number of slots that the longest frame takes.
pub(super) const SLOTS_MAX: usize = OFFLOADED_LIMIT.div_ceil(SLOT_FRAME);

pub(super) type Queue = EitherLayout<SplitDriver, PackedDriver>;

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

/// Negotiated headers of a queue, and the counter of its malformed frames.
#[derive(Debug)]
pub(super) struct Terms {
    /// Of the headers: the offloads are those that the back end takes over, or leaves to this
    /// port.
    pub(super) headers: Headers,
    /// Counts received frames with an invalid header.
    pub(super) malformed: Arc<AtomicU64>,
}

/// Length that no frame in a slot has: the slot's header and descriptor must be written.
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
    copier: Copier,
    terms: Terms,
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
        terms: Terms,
    ) -> Result<Self, String> {
        let (queue, slots) = (queue(memory, uri, offsets)?, memory.slots(offsets));
        kick.signal();
        let posted = vec![REWRITE; slots.count()].into();
        let (copier, _memory) = (Copier::new(), memory.clone());
        Ok(Self { queue, slots, kick, posted, copier, terms, _memory })
    }
}

impl pairs::TransmitQueue for TransmitQueue {
    #[inline]
    fn transmit(&mut self, frames: &[Frame<'_>], lost: &mut Lost) -> Result<usize, Failure> {
        let Self { queue, slots, posted, copier, terms, .. } = self;
        let (taken, kick) = with_layout!(queue, queue => transmit(queue, *slots, posted, copier, terms, frames, lost)?);
        if kick {
            self.kick.signal();
        }
        Ok(taken)
    }

    fn fill(&self) -> Fill {
        with_layout!(&self.queue, queue => {
            Fill::new(queue.in_use().saturating_sub(queue.waiting()), queue.size())
        })
    }

    fn offloads(&self) -> Offloads {
        self.terms.headers.offloads
    }

    fn pending(&mut self) -> Result<usize, Failure> {
        with_layout!(&mut self.queue, queue => {
            reclaim(queue)?;
            Ok(queue.in_use().into())
        })
    }
}

#[inline]
fn transmit<Q: DriverQueue>(
    queue: &mut Q,
    slots: Slots,
    posted: &mut [u16],
    copier: &mut Copier,
    terms: &Terms,
    frames: &[Frame<'_>],
    lost: &mut Lost,
) -> Result<(usize, bool), RingError> {
    reclaim(queue)?;
    let mut taken = 0;
    while taken < frames.len() {
        let rest = &frames[taken..];
        match transmit_short(queue, slots, posted, copier, rest) {
            0 if is_short(&rest[0]) => break,
            0 => {
                match transmit_odd(queue, slots, posted, terms, &rest[0]) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(why) => lost.add(taken, why),
                }
                taken += 1;
            }
            short => taken += short,
        }
    }
    Ok((taken, queue.publish()))
}

/// Frees the slots of transmitted frames.
#[inline(never)] // As the other loops over all frames of a batch: they need the registers.
fn reclaim<Q: DriverQueue>(queue: &mut Q) -> Result<(), RingError> {
    queue.poll_each(usize::MAX, |_| ())
}

/// Returns true if the frame takes one slot, and its header asks for nothing.
#[inline]
fn is_short(frame: &Frame<'_>) -> bool {
    frame.len() <= SLOT_FRAME && !frame.has_offload()
}

/// Transmits short frames, up to the first other one; returns how many there was room for.
#[inline]
fn transmit_short<Q: DriverQueue>(
    queue: &mut Q,
    slots: Slots,
    posted: &mut [u16],
    copier: &mut Copier,
    frames: &[Frame<'_>],
) -> usize {
    let mut ids = ArrayVec::<u16, BATCH_MAX>::new();
    queue.ids(&mut ids);
    let mut space = frame::CopySpace::new();
    let (copies, short, posted_alike) = list_short(slots, posted, frames, &ids, space.list());
    // SAFETY: the slots have room for frames of this length, and no code of ours reads them.
    unsafe { copier.copy_each(copies.as_slice()) };
    if posted_alike {
        queue.repost(short as u16);
    } else {
        post_each(queue, slots, posted, &frames[..short], &ids);
    }
    short
}

/// Lists the copies of short frames to the slots `ids`, up to the first other frame. Returns the
/// list, the number of frames, and true if the descriptors of all these slots are those of their
/// frames already.
#[inline(never)]
fn list_short<'s>(
    slots: Slots,
    posted: &[u16],
    frames: &[Frame<'_>],
    ids: &[u16],
    mut copies: Copies<'s>,
) -> (Copies<'s>, usize, bool) {
    let (mut short, mut posted_alike) = (0, true);
    for (frame, &id) in frames.iter().zip(ids) {
        if !is_short(frame) {
            break;
        }
        frame.add_copies(slots.frame(id), &mut copies);
        posted_alike &= posted[usize::from(id)] == frame.len() as u16;
        short += 1;
    }
    (copies, short, posted_alike)
}

/// Posts the slots `ids` with `frames`, some of which have another length than the slot's frame
/// before.
#[inline(never)]
fn post_each<Q: DriverQueue>(
    queue: &mut Q,
    slots: Slots,
    posted: &mut [u16],
    frames: &[Frame<'_>],
    ids: &[u16],
) {
    // Number of slots that wait to be posted with unchanged descriptors.
    let mut run = 0;
    for (frame, &id) in frames.iter().zip(ids) {
        let len = frame.len() as u16;
        let before = std::mem::replace(&mut posted[usize::from(id)], len);
        if before == len {
            run += 1;
            continue;
        }
        if run > 0 {
            queue.repost(std::mem::take(&mut run));
        }
        let start = slots.frame(id);
        if before == REWRITE {
            write_header(start, VirtioNet::default());
        }
        queue.post(&[buffer(start, HEADER_LEN, frame.len(), Access::Read)]);
    }
    queue.repost(run);
}

/// Transmits a frame that takes several slots, or has an offload. Returns true if there was room,
/// and an error for a frame that never fits the ring, or with an offload that the back end does not
/// take over.
#[cold]
fn transmit_odd<Q: DriverQueue>(
    queue: &mut Q,
    slots: Slots,
    posted: &mut [u16],
    terms: &Terms,
    frame: &Frame<'_>,
) -> Result<bool, Loss> {
    let header = match frame.has_offload() {
        true => terms.headers.of(frame),
        false => Some(VirtioNet::default()),
    };
    let count = frame.len().div_ceil(SLOT_FRAME);
    let header = header.ok_or(Loss::Undeliverable)?;
    if count > slots.count() {
        return Err(Loss::TooLong);
    }
    let mut ids = ArrayVec::<u16, SLOTS_MAX>::new();
    queue.ids(&mut ids);
    if ids.len() < count {
        return Ok(false);
    }
    let mut buffers = ArrayVec::<Buffer, SLOTS_MAX>::new();
    for (id, at) in ids.into_iter().zip((0..frame.len()).step_by(SLOT_FRAME)) {
        let start = slots.frame(id);
        posted[usize::from(id)] = REWRITE;
        let part = at..(at + SLOT_FRAME).min(frame.len());
        // SAFETY: the part is no longer than the slot.
        unsafe { frame.copy_part(part.clone(), start) };
        let mut header_len = 0;
        if at == 0 {
            write_header(start, header);
            header_len = HEADER_LEN;
        }
        buffers.push(buffer(start, header_len, part.len(), Access::Read));
    }
    Ok(queue.post(&buffers).is_some())
}

/// Writes the header of the frame that begins at `start`, in a slot.
fn write_header(start: NonNull<u8>, header: VirtioNet) {
    // SAFETY: the header lies before the frame in its slot; its last two bytes, which count the
    // buffers of received frames, stay zero.
    unsafe { start.sub(HEADER_LEN).cast::<[u8; VIRTIO_NET_LEN]>().write(header.bytes()) };
}

/// Returns a buffer of `len` bytes at `start` with `header` bytes before it.
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
    terms: Terms,
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
        terms: Terms,
    ) -> Result<Self, String> {
        let (queue, slots) = (queue(memory, uri, offsets)?, memory.slots(offsets));
        let (filled, _memory) = (ArrayVec::new(), memory.clone());
        let mut new = Self { queue, slots, kick, call, filled, terms, _memory };
        with_layout!(&mut new.queue, queue => {
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
    fn receive(
        &mut self,
        reassembly: &mut ReassemblyBuffer,
        take: &mut Take<'_>,
    ) -> Result<usize, Failure> {
        let Self { queue, slots, filled, terms, .. } = self;
        // Compiled twice, so that headers without meaning are not read.
        let (lent, kick) = match terms.headers.offloads.checksum {
            false => with_layout!(queue, queue => {
                receive::<_, false>(queue, *slots, terms, filled, reassembly, take)?
            }),
            true => with_layout!(queue, queue => {
                receive::<_, true>(queue, *slots, terms, filled, reassembly, take)?
            }),
        };
        if kick {
            self.kick.signal();
        }
        Ok(lent)
    }

    fn want_events(&mut self, on: bool) -> bool {
        with_layout!(&mut self.queue, queue => queue.want_calls(on)) || !self.filled.is_empty()
    }

    fn fill(&self) -> Fill {
        with_layout!(&self.queue, queue => Fill::new(queue.waiting(), queue.size()))
    }
}

#[inline]
fn empty(slots: Slots, id: u16) -> Buffer {
    buffer(slots.frame(id), HEADER_LEN, SLOT_FRAME, Access::Write)
}

#[inline]
fn receive<Q: DriverQueue, const OFFLOADS: bool>(
    queue: &mut Q,
    slots: Slots,
    terms: &Terms,
    filled: &mut ArrayVec<Used, FILLED_MAX>,
    reassembly: &mut ReassemblyBuffer,
    take: &mut Take<'_>,
) -> Result<(usize, bool), Failure> {
    poll_filled(queue, filled)?;
    let mut room = reassembly.room();
    let mut space = Space::<Frame<'_>, BATCH_MAX>::new();
    let mut batch = space.list();
    // Number of buffers of each frame, if any was reassembled.
    let mut counts = ArrayVec::<u16, BATCH_MAX>::new();
    let mut next = 0;
    loop {
        let before = batch.len();
        // SAFETY: the queue holds the memory, and is locked for longer than the frames are lent.
        batch = unsafe { lend_short::<OFFLOADS>(slots, terms.headers, &filled[next..], batch) };
        let short = batch.len() - before;
        next += short;
        if !counts.is_empty() {
            counts.extend(iter::repeat_n(1, short));
        }
        let other = filled.get(next).filter(|_| batch.len() < BATCH_MAX);
        let Some(&first) = other else { break };
        if first.len == 0 {
            // Returned empty, because no frame fitted. Its place in the order is kept.
            if batch.len() > 0 {
                break;
            }
            filled.remove(0);
            queue.repost(1);
            continue;
        }
        let buffers = buffers_of(slots.frame(first.id));
        let len = first.len.wrapping_sub(HEADER_LEN as u32);
        let all = usize::from(buffers);
        let most = SLOTS_MAX.min(slots.count());
        if !(1..=most).contains(&all) || len as usize > SLOT_FRAME {
            return Err(Failure::Header { buffers, len: first.len });
        }
        if next + all > filled.len() {
            // The frame's other buffers are not returned yet.
            break;
        }
        match gather(slots, &filled[next..next + all], terms.headers, &mut room)? {
            Gather::Frame(frame) => {
                if counts.is_empty() {
                    counts.extend(iter::repeat_n(1, batch.len()));
                }
                batch.push(frame);
                counts.push(buffers);
                next += all;
            }
            Gather::Malformed if batch.len() == 0 => {
                terms.malformed.fetch_add(1, Ordering::Relaxed);
                filled.drain(..all);
                queue.repost(buffers);
            }
            // Handled once it is the first: buffers are posted again in order.
            Gather::Malformed | Gather::NoRoom => break,
        }
    }
    let lent = batch.len();
    let taken = if lent > 0 { take(batch.as_slice()).min(lent) } else { 0 };
    // Ids become free in the order in which their buffers came back, so these are the oldest ones.
    let done = if counts.is_empty() { taken as u16 } else { counts[..taken].iter().sum() };
    queue.repost(done);
    filled.drain(..usize::from(done));
    Ok((lent, queue.publish()))
}

/// Adds the buffers that the back end has returned, as many as fit. With an error, none is added;
/// the queue is given up then.
#[inline(never)]
fn poll_filled<Q: DriverQueue>(
    queue: &mut Q,
    filled: &mut ArrayVec<Used, FILLED_MAX>,
) -> Result<(), RingError> {
    let mut space = Space::<Used, FILLED_MAX>::new();
    let mut list = space.list();
    queue.poll_each(filled.remaining_capacity(), |used| list.push(used))?;
    filled.try_extend_from_slice(list.as_slice()).expect("no more than there is room for");
    Ok(())
}

/// Adds frames that lie in one slot of `filled` each, with a valid header, up to the first other
/// one or until the batch is full.
///
/// # Safety
/// The slots must stay mapped while the frames are used.
#[inline(never)]
unsafe fn lend_short<'s, 'a, const OFFLOADS: bool>(
    slots: Slots,
    headers: Headers,
    filled: &[Used],
    mut batch: List<'s, Frame<'a>>,
) -> List<'s, Frame<'a>> {
    for (at, used) in filled[..filled.len().min(BATCH_MAX - batch.len())].iter().enumerate() {
        if let Some(ahead) = filled.get(at + 8) {
            // SAFETY: the header is a part of the slot.
            frame::prefetch_to_read(unsafe { slots.frame(ahead.id).sub(HEADER_LEN) }.as_ptr());
        }
        let start = slots.frame(used.id);
        let len = used.len.wrapping_sub(HEADER_LEN as u32);
        if buffers_of(start) != 1 || !(1..=SLOT_FRAME).contains(&(len as usize)) {
            break;
        }
        // SAFETY: header and frame lie in the slot, which stays mapped by the contract.
        batch.push(unsafe {
            if OFFLOADS {
                let Some(offload) = headers.read(start.sub(HEADER_LEN), len) else { break };
                Frame::shared_with(start, len, offload)
            } else {
                Frame::shared(start, len)
            }
        });
    }
    batch
}

/// Returns the number of buffers of the frame that begins at `start`, in a slot.
#[inline(always)]
fn buffers_of(start: NonNull<u8>) -> u16 {
    // SAFETY: the last two bytes of the header lie just before the frame, at an even address.
    u16::from_le(unsafe { start.sub(2).cast::<AtomicU16>().as_ref() }.load(Ordering::Relaxed))
}

/// Contents of the buffers of a frame.
enum Gather<'m> {
    Frame(Frame<'m>),
    /// A frame with an invalid header.
    Malformed,
    /// There is no room to copy it to at present.
    NoRoom,
}

/// Copies a frame to `room` that the back end spread over the slots `parts`, or whose checksum is
/// to be completed here.
#[cold]
fn gather<'m>(
    slots: Slots,
    parts: &[Used],
    headers: Headers,
    room: &mut reassembly::Room<'m>,
) -> Result<Gather<'m>, Failure> {
    // Slots after the first are filled from the start of their header space.
    let part = |(index, used): (usize, &Used)| {
        let header = if index == 0 { HEADER_LEN } else { 0 };
        (header, (used.len as usize).saturating_sub(header))
    };
    let parts_of = || parts.iter().enumerate().map(part).zip(parts);
    let limit = if headers.offloads.checksum { OFFLOADED_LIMIT } else { FRAME_LIMIT };
    let mut len = 0;
    for ((header, part), used) in parts_of() {
        len += part;
        if len > limit || part > SLOT_FRAME + HEADER_LEN - header {
            return Err(Failure::Header { buffers: parts.len() as u16, len: used.len });
        }
    }
    if len == 0 {
        return Err(Failure::Header { buffers: parts.len() as u16, len: 0 });
    }
    let Some(to) = room.take(len) else { return Ok(Gather::NoRoom) };
    let mut at = 0;
    for ((header, part), used) in parts_of() {
        // SAFETY: the header is a part of the slot, and the part lies in the slot and fits into
        // `to`.
        unsafe {
            let from = slots.frame(used.id).sub(HEADER_LEN - header);
            frame::copy(from.as_ptr(), to[at..].as_mut_ptr(), part);
        }
        at += part;
    }
    let header = match headers.offloads.checksum {
        // SAFETY: the header lies before the frame; the back end may be writing there, and any
        // bytes are a valid value.
        true => unsafe { slots.frame(parts[0].id).sub(HEADER_LEN).cast().read() },
        false => [0; VIRTIO_NET_LEN],
    };
    // Only these copies are checked and used.
    compiler_fence(Ordering::SeqCst);
    Ok(match headers::accept(VirtioNet::read(header), to, headers.offloads) {
        Some(offload) => Gather::Frame(Frame::with_offload(to, offload)),
        None => Gather::Malformed,
    })
}
