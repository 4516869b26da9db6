//! One virtqueue of a vhost port, ready to move frames.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use dray_ring::packed::PackedDevice;
use dray_ring::split::SplitDevice;
use dray_ring::{Access, CHAIN_MAX, Chain, DeviceQueue, Lie, Segment};
use dray_shm::GuestMemory;

use crate::event::Event;
use crate::frame::{self, FRAME_LIMIT, Frame};
use crate::slot::Failure;
use crate::{BATCH_MAX, Batch, Take};

/// Shorter than its Ethernet header, a frame is none.
const FRAME_LEAST: usize = 14;

/// Everything that moving frames takes. Immutable but for the queue's own position.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) queue: Queue,
    pub(super) memory: Arc<GuestMemory>,
    /// Signalled when the peer wants to know of used buffers.
    pub(super) call: Option<Event>,
    /// Length of the virtio-net header in front of each frame.
    pub(super) header_len: u32,
    /// Whether a frame may be spread over several chains.
    pub(super) mergeable: bool,
    /// Counts frames too short or too long to be frames, and those that never fit the peer's
    /// buffers.
    pub(super) malformed: Arc<AtomicU64>,
}

/// Either layout.
#[derive(Debug)]
pub(super) enum Queue {
    Split(SplitDevice),
    Packed(PackedDevice),
}

impl Running {
    /// Lends what the peer transmitted to `take`; how many frames those were.
    #[inline]
    pub(super) fn receive(
        &mut self,
        gathered: &mut Gathered,
        take: &mut Take<'_>,
    ) -> Result<usize, Failure> {
        let (memory, header_len, malformed) = (&*self.memory, self.header_len, &*self.malformed);
        let moved = match &mut self.queue {
            Queue::Split(queue) => receive(queue, memory, header_len, gathered, malformed, take),
            Queue::Packed(queue) => receive(queue, memory, header_len, gathered, malformed, take),
        };
        self.finish(moved)
    }

    /// Copies `frames` into what the peer made available; how many were taken.
    #[inline]
    pub(super) fn transmit(&mut self, frames: &[Frame<'_>]) -> Result<usize, Failure> {
        let malformed = &*self.malformed;
        let room = Room { header_len: self.header_len, mergeable: self.mergeable };
        let memory = &*self.memory;
        let moved = match &mut self.queue {
            Queue::Split(queue) => transmit(queue, memory, room, frames, malformed),
            Queue::Packed(queue) => transmit(queue, memory, room, frames, malformed),
        };
        self.finish(moved)
    }

    /// After a batch: how many frames it moved. Zeroes are in the place of memory that is gone, so
    /// what was found there is no lie, and nothing that came from there is passed on as done.
    #[inline]
    fn finish(&self, moved: Result<(usize, bool), Lie>) -> Result<usize, Failure> {
        if self.memory.is_lost() {
            return Err(Failure::MemoryLost);
        }
        let (frames, call) = moved?;
        if call {
            self.call_now();
        }
        Ok(frames)
    }

    /// Tells the peer to look, where it wants to be told at all.
    pub(super) fn call_now(&self) {
        if let Some(call) = &self.call {
            call.signal();
        }
    }

    pub(super) fn want_kicks(&mut self, on: bool) -> bool {
        match &mut self.queue {
            Queue::Split(queue) => queue.want_kicks(on),
            Queue::Packed(queue) => queue.want_kicks(on),
        }
    }

    pub(super) fn base(&self) -> u16 {
        match &self.queue {
            Queue::Split(queue) => queue.base(),
            Queue::Packed(queue) => queue.base(),
        }
    }
}

/// Room for frames that a peer spread over several buffers: those are put together here, at the
/// cost of a second copy. A frame of up to one buffer, as almost all are, never comes here.
pub(super) struct Gathered {
    bytes: Box<[u8]>,
}

impl Gathered {
    /// Frames in one batch; the next ones wait for the next batch.
    const FRAMES: usize = 32;

    pub(super) fn new() -> Self {
        // Never touched, it takes no memory.
        Self { bytes: vec![0; Self::FRAMES * FRAME_LIMIT].into() }
    }
}

/// What became of one chain that a peer transmitted.
enum Found<'m> {
    Frame(Frame<'m>),
    /// Too short or too long.
    Malformed,
    /// There is no room to put it together in this batch.
    Later,
}

#[inline]
fn receive<Q: DeviceQueue>(
    queue: &mut Q,
    memory: &GuestMemory,
    header_len: u32,
    gathered: &mut Gathered,
    malformed: &AtomicU64,
    take: &mut Take<'_>,
) -> Result<(usize, bool), Lie> {
    let mut room = gathered.bytes.chunks_exact_mut(FRAME_LIMIT);
    let mut chains = ArrayVec::<Chain, BATCH_MAX>::new();
    let mut batch = Batch::new();
    // No more than this, even where frames are malformed: a driver that posts those as fast as they
    // are given back would keep the worker from all other ports.
    for _ in 0..BATCH_MAX {
        let Some(chain) = queue.pop(memory, Access::Read)? else { break };
        let found = if chain.more {
            gather(&chain, queue.rest(), header_len, &mut room)
        } else {
            plain(chain.first, header_len)
        };
        match found {
            Found::Frame(frame) => {
                batch.push(frame);
                chains.push(chain);
            }
            // First in its batch, it goes straight back; else it ends the batch.
            Found::Malformed if batch.is_empty() => {
                malformed.fetch_add(1, Ordering::Relaxed);
                queue.push(&chain, 0);
            }
            Found::Malformed | Found::Later => {
                queue.unpop(chain.slots);
                break;
            }
        }
    }
    let lent = batch.len();
    if lent > 0 {
        let taken = take(&batch).min(lent);
        for chain in &chains[..taken] {
            queue.push(chain, 0);
        }
        queue.unpop(chains[taken..].iter().map(|chain| chain.slots).sum());
    }
    Ok((lent, queue.publish()))
}

/// A frame in one buffer, behind its header.
#[inline]
fn plain<'m>(buffer: Segment, header_len: u32) -> Found<'m> {
    let len = buffer.len.wrapping_sub(header_len);
    // One test for both ends; a buffer shorter than its header wraps around to a huge length.
    if (FRAME_LEAST..=FRAME_LIMIT).contains(&(len as usize)) {
        // SAFETY: the buffer is longer than its header, and all of it is mapped for as long as the
        // queue's lock is held, which is longer than the frame is lent.
        Found::Frame(unsafe { Frame::shared(buffer.start.add(header_len as usize), len) })
    } else {
        Found::Malformed
    }
}

/// A frame in several buffers; often only its header is in one of its own.
#[cold]
fn gather<'m>(
    chain: &Chain,
    rest: &[Segment],
    header_len: u32,
    room: &mut std::slice::ChunksExactMut<'m, u8>,
) -> Found<'m> {
    if chain.first.len == header_len && rest.len() == 1 {
        return plain(rest[0], 0);
    }
    let total: u64 =
        u64::from(chain.first.len) + rest.iter().map(|s| u64::from(s.len)).sum::<u64>();
    let len = usize::try_from(total.saturating_sub(header_len.into())).unwrap_or(usize::MAX);
    if !(FRAME_LEAST..=FRAME_LIMIT).contains(&len) {
        return Found::Malformed;
    }
    let Some(to) = room.next() else { return Found::Later };
    let (mut skip, mut at) = (header_len as usize, 0);
    for segment in std::iter::once(&chain.first).chain(rest) {
        let skipped = skip.min(segment.len as usize);
        skip -= skipped;
        let part = segment.len as usize - skipped;
        // SAFETY: the part is mapped, and `to` is longer than all parts together.
        unsafe {
            frame::copy(segment.start.as_ptr().add(skipped), to[at..].as_mut_ptr(), part);
        }
        at += part;
    }
    Found::Frame(Frame::from(&to[..len]))
}

/// How a peer's buffers are to be filled.
#[derive(Clone, Copy)]
struct Room {
    header_len: u32,
    mergeable: bool,
}

#[inline]
fn transmit<Q: DeviceQueue>(
    queue: &mut Q,
    memory: &GuestMemory,
    room: Room,
    frames: &[Frame<'_>],
    malformed: &AtomicU64,
) -> Result<(usize, bool), Lie> {
    let mut taken = 0;
    for frame in frames {
        let Some(chain) = queue.pop(memory, Access::Write)? else { break };
        let len = room.header_len + frame.len() as u32;
        if !chain.more && len <= chain.first.len {
            // SAFETY: the buffer is mapped and at least `len` bytes long.
            unsafe {
                write_header(chain.first.start, room.header_len, 1);
                frame.copy_to(chain.first.start.add(room.header_len as usize));
            }
            queue.push(&chain, len);
        } else if !scatter(queue, memory, room, frame, &chain, malformed)? {
            break;
        }
        taken += 1;
    }
    Ok((taken, queue.publish()))
}

/// The virtio-net header (Virtio 1.3, section 5.1.6) of a frame without any offload.
///
/// # Safety
/// `header_len` bytes, 10 or 12, must be mapped at `to`.
#[inline]
unsafe fn write_header(to: NonNull<u8>, header_len: u32, buffers: u16) {
    // SAFETY: by the contract.
    unsafe {
        to.cast::<[u8; 8]>().write([0; 8]);
        let [low, high] = buffers.to_le_bytes();
        if header_len == 12 {
            to.add(8).cast::<[u8; 4]>().write([0, 0, low, high]);
        } else {
            to.add(8).cast::<[u8; 2]>().write([0; 2]);
        }
    }
}

/// A frame that does not fit one buffer: over all buffers of its chain and, where that was
/// negotiated, over more chains. Whether there was room; where there was none nothing was used. A
/// frame that never fits is dropped and counted.
#[cold]
fn scatter<Q: DeviceQueue>(
    queue: &mut Q,
    memory: &GuestMemory,
    room: Room,
    frame: &Frame<'_>,
    first: &Chain,
    malformed: &AtomicU64,
) -> Result<bool, Lie> {
    /// With buffers of 256 bytes a jumbo frame takes 37.
    const CHAINS_MAX: usize = 64;
    const SEGMENTS_MAX: usize = 2 * CHAIN_MAX as usize;
    let whole = room.header_len as usize + frame.len();
    let mut segments: ArrayVec<Segment, SEGMENTS_MAX> = ArrayVec::new();
    let mut chains: ArrayVec<(Chain, u32), CHAINS_MAX> = ArrayVec::new();
    let mut space = 0;
    let mut chain = *first;
    loop {
        let mut len = 0;
        let rest = if chain.more { queue.rest() } else { &[] };
        for segment in std::iter::once(&chain.first).chain(rest) {
            if space + len < whole && segments.try_push(*segment).is_ok() {
                len += segment.len as usize;
            }
        }
        let used = (whole - space).min(len);
        space += used;
        chains.push((chain, used as u32));
        if space == whole {
            break;
        }
        let next = match room.mergeable && !chains.is_full() {
            true => queue.pop(memory, Access::Write)?,
            false => None,
        };
        let Some(next) = next else {
            if room.mergeable && !chains.is_full() {
                queue.unpop(chains.iter().map(|(chain, _)| chain.slots).sum());
                return Ok(false);
            }
            // This peer never has room for it. The chains go back empty.
            malformed.fetch_add(1, Ordering::Relaxed);
            chains.iter().for_each(|(chain, _)| queue.push(chain, 0));
            return Ok(true);
        };
        chain = next;
    }
    if segments[0].len < room.header_len {
        // A header cut in two is legal but nobody does it.
        malformed.fetch_add(1, Ordering::Relaxed);
        chains.iter().for_each(|(chain, _)| queue.push(chain, 0));
        return Ok(true);
    }
    // SAFETY: the first buffer has room for the header.
    unsafe { write_header(segments[0].start, room.header_len, chains.len() as u16) };
    segments[0].len -= room.header_len;
    // SAFETY: the first buffer is at least as long as the header.
    segments[0].start = unsafe { segments[0].start.add(room.header_len as usize) };
    let mut at = 0;
    for segment in &segments {
        let part = frame.part(at..(at + segment.len as usize).min(frame.len()));
        // SAFETY: the part is mapped for as long as the frame is lent, and no longer than the
        // segment.
        unsafe { frame::copy(part.start.as_ptr(), segment.start.as_ptr(), part.len) };
        at += part.len;
    }
    chains.iter().for_each(|(chain, used)| queue.push(chain, *used));
    Ok(true)
}
