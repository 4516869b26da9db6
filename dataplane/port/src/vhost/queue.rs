//! A virtqueue of a vhost port, ready to move frames.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use dray_ring::packed::PackedDevice;
use dray_ring::split::SplitDevice;
use dray_ring::{Access, CHAIN_MAX, Chain, DeviceQueue, Lie, Plain, Segment};
use dray_shm::GuestMemory;

use crate::either::{Either, either};
use crate::event::PeerEvent;
use crate::frame::{self, FRAME_LIMIT, Frame};
use crate::gathered::Gathered;
use crate::pairs::{ReceiveQueue, TransmitQueue};
use crate::slot::Failure;
use crate::{BATCH_MAX, Batch, Take};

/// Maximum number of descriptors read per call, up to the end of a chain: while a data thread reads
/// them it serves no other port. A whole batch of the longest frames in buffers of 500 bytes needs
/// as many.
const DESCRIPTORS_MAX: u32 = 8192;

/// Minimum length of a frame: its Ethernet header.
const FRAME_LEAST: usize = 14;

/// Everything needed to move frames. Immutable except for the queue's own position.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) queue: Queue,
    pub(super) memory: Arc<GuestMemory>,
    /// Signalled when the peer wants to be notified of used buffers.
    pub(super) call: Option<PeerEvent>,
    /// Length of the virtio-net header before each frame.
    pub(super) header_len: u32,
    /// True if a frame may be spread over several chains.
    pub(super) mergeable: bool,
    /// Counts received frames that are too short or too long, and frames that can never fit the
    /// peer's buffers.
    pub(super) malformed: Arc<AtomicU64>,
}

pub(super) type Queue = Either<SplitDevice, PackedDevice>;

impl Running {
    /// Completes a batch; returns how many frames it moved. Lost memory reads as zeroes, so values
    /// read from it are not treated as a protocol violation, and a batch that may have used it is
    /// not reported as moved.
    #[inline]
    fn finish(&self, moved: Result<(usize, bool), Lie>) -> Result<usize, Failure> {
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
        either!(&self.queue, queue => queue.base())
    }
}

impl ReceiveQueue for Running {
    #[inline]
    fn receive(&mut self, gathered: &mut Gathered, take: &mut Take<'_>) -> Result<usize, Failure> {
        let (memory, header_len, malformed) = (&*self.memory, self.header_len, &*self.malformed);
        let moved = either!(&mut self.queue, queue => {
            receive(queue, memory, header_len, gathered, malformed, take)
        });
        self.finish(moved)
    }

    fn want_events(&mut self, on: bool) -> bool {
        either!(&mut self.queue, queue => queue.want_kicks(on))
    }
}

impl TransmitQueue for Running {
    #[inline]
    fn transmit(&mut self, frames: &[Frame<'_>]) -> Result<usize, Failure> {
        let malformed = &*self.malformed;
        let room = Room { header_len: self.header_len, mergeable: self.mergeable };
        let memory = &*self.memory;
        let moved = either!(&mut self.queue, queue => {
            transmit(queue, memory, room, frames, malformed)
        });
        self.finish(moved)
    }
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
    queue.allow(DESCRIPTORS_MAX);
    let mut plain = ArrayVec::<Plain, BATCH_MAX>::new();
    let mut odd = queue.pop_plain(memory, Access::Read, BATCH_MAX, &mut plain)?;
    let mut batch = Batch::new();
    for buffer in &plain {
        let len = buffer.len.wrapping_sub(header_len);
        // One comparison for both limits: the length of a buffer shorter than its header wraps
        // around.
        if !(FRAME_LEAST..=FRAME_LIMIT).contains(&(len as usize)) {
            // Handled by `receive_odd`, once it is the first.
            queue.unpop((plain.len() - batch.len()) as u16);
            odd = true;
            break;
        }
        // SAFETY: the buffer is longer than its header, and all of it is mapped for as long as the
        // queue's lock is held, which is longer than the frame is lent.
        batch.push(unsafe { Frame::shared(buffer.start.add(header_len as usize), len) });
    }
    let lent = batch.len();
    if lent > 0 {
        let taken = take(&batch).min(lent);
        queue.push_plain(plain[..taken].iter().map(|buffer| (buffer.id, 0)));
        queue.unpop((lent - taken) as u16);
        return Ok((lent, queue.publish()));
    }
    if !odd {
        return Ok((0, false));
    }
    receive_odd(queue, memory, header_len, gathered, malformed, take)
}

/// Slow path: the first frame is multi-buffer or malformed.
#[cold]
fn receive_odd<Q: DeviceQueue>(
    queue: &mut Q,
    memory: &GuestMemory,
    header_len: u32,
    gathered: &mut Gathered,
    malformed: &AtomicU64,
    take: &mut Take<'_>,
) -> Result<(usize, bool), Lie> {
    let mut batch = ArrayVec::<Frame<'_>, { Gathered::MAX }>::new();
    let mut chains = ArrayVec::<Chain, { Gathered::MAX }>::new();
    for room in gathered.rooms() {
        let Some(chain) = queue.pop(memory, Access::Read)? else { break };
        match gather(&chain, queue.rest(), header_len, room) {
            Some(frame) => {
                batch.push(frame);
                chains.push(chain);
            }
            None if chains.is_empty() => {
                malformed.fetch_add(1, Ordering::Relaxed);
                queue.push(&chain, 0);
            }
            None => {
                // Handled once it is the first: chains are returned in order.
                queue.unpop(chain.slots);
                break;
            }
        }
    }
    let taken = if batch.is_empty() { 0 } else { take(&batch).min(batch.len()) };
    let (done, back) = chains.split_at(taken);
    done.iter().for_each(|chain| queue.push(chain, 0));
    queue.unpop(back.iter().map(|chain| chain.slots).sum());
    Ok((batch.len(), queue.publish()))
}

/// Returns the frame in one or several buffers, without its header, or `None` if its length is
/// invalid. `to` has room for the longest frame.
fn gather<'m>(
    chain: &Chain,
    rest: &[Segment],
    header_len: u32,
    to: &'m mut [u8],
) -> Option<Frame<'m>> {
    let segments = || std::iter::once(&chain.first).chain(rest);
    let whole: u64 = segments().map(|segment| u64::from(segment.len)).sum();
    let len = usize::try_from(whole.checked_sub(header_len.into())?).ok()?;
    if !(FRAME_LEAST..=FRAME_LIMIT).contains(&len) {
        return None;
    }
    let mut skip = header_len as usize;
    let mut at = 0;
    for segment in segments() {
        let skipped = skip.min(segment.len as usize);
        skip -= skipped;
        let part = segment.len as usize - skipped;
        // SAFETY: the part is mapped for as long as the queue's lock is held, and `to` has room for
        // the longest frame, so for all parts together.
        unsafe {
            let start = segment.start.add(skipped);
            if part == len {
                // Only the header is in another buffer.
                return Some(Frame::shared(start, part as u32));
            }
            frame::copy(start.as_ptr(), to[at..].as_mut_ptr(), part);
        }
        at += part;
    }
    Some(Frame::from(&to[..len]))
}

/// How to fill a peer's buffers.
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
    /// Number of frames that are prefetched. Each takes a cache line from its sender and one from
    /// its receiver, and a core can have some 16 in flight; with long frames, more would not stay
    /// in the cache until they are used.
    const AHEAD: usize = 8;
    let header_len = room.header_len;
    let prefetch = |(frame, buffer): (&Frame<'_>, &Plain)| {
        frame.prefetch();
        frame::prefetch_to_read(buffer.start.as_ptr());
        // Only a hint, so the address may be invalid.
        frame::prefetch_to_write(buffer.start.as_ptr().wrapping_add(header_len as usize));
    };
    // Demotion costs us more than it saves the receiver, but there is time for it unless we are
    // behind: a whole batch means that more frames wait.
    let demotes = frames.len() < BATCH_MAX;
    queue.allow(DESCRIPTORS_MAX);
    let mut taken = 0;
    // After a frame that did not fit one buffer, the next one will not fit either.
    let mut look = BATCH_MAX;
    while taken < frames.len() {
        let rest = &frames[taken..];
        let most = rest.len().min(look);
        let mut buffers = ArrayVec::<Plain, BATCH_MAX>::new();
        let mut odd = queue.pop_plain(memory, Access::Write, most, &mut buffers)?;
        let mut later = rest.iter().zip(&buffers);
        later.by_ref().take(AHEAD).for_each(prefetch);
        let mut filled = 0;
        for (frame, buffer) in rest.iter().zip(&buffers) {
            later.next().into_iter().for_each(prefetch);
            let len = header_len + frame.len() as u32;
            if len > buffer.len {
                odd = true;
                break;
            }
            // SAFETY: the buffer is mapped, and long enough for the header and the frame.
            let start = unsafe {
                write_header(buffer.start, header_len, 1);
                let start = buffer.start.add(header_len as usize);
                frame.copy_to(start);
                start
            };
            if demotes {
                frame::demote(start.as_ptr());
            }
            filled += 1;
        }
        let len = |frame: &Frame<'_>| header_len + frame.len() as u32;
        let used = buffers.iter().zip(rest).take(filled);
        queue.push_plain(used.map(|(buffer, frame)| (buffer.id, len(frame))));
        queue.unpop((buffers.len() - filled) as u16);
        taken += filled;
        if filled == most {
            look = BATCH_MAX;
            continue;
        }
        if !odd || !scatter(queue, memory, room, &frames[taken], malformed)? {
            break;
        }
        taken += 1;
        look = AHEAD;
    }
    Ok((taken, queue.publish()))
}

/// Writes the virtio-net header (Virtio 1.3, section 5.1.6) of a frame without any offload.
///
/// # Safety
/// `header_len` bytes, 10 or 12, must be mapped at `to`.
#[inline]
unsafe fn write_header(to: NonNull<u8>, header_len: u32, buffers: u16) {
    let (zeroes, count) = (to.cast::<u64>(), (u32::from(buffers) << 16).to_le());
    // SAFETY: by the contract.
    unsafe {
        if header_len == 12 {
            let rest = to.add(8).cast::<u32>();
            // Most headers are equal, and drivers keep them on a cache line of their own: a line
            // that is not written stays in the driver's cache.
            if zeroes.read_unaligned() != 0 || rest.read_unaligned() != count {
                zeroes.write_unaligned(0);
                rest.write_unaligned(count);
            }
        } else {
            zeroes.write_unaligned(0);
            to.add(8).cast::<u16>().write_unaligned(0);
        }
    }
}

/// Transmits a frame that does not fit one buffer: over all buffers of its chain and, if
/// negotiated, over more chains. Returns false, using nothing, if there is no room at present. A
/// frame that can never fit is dropped and counted.
#[cold]
fn scatter<Q: DeviceQueue>(
    queue: &mut Q,
    memory: &GuestMemory,
    room: Room,
    frame: &Frame<'_>,
    malformed: &AtomicU64,
) -> Result<bool, Lie> {
    /// With buffers of 256 bytes a jumbo frame takes 37 chains.
    const CHAINS_MAX: usize = 64;
    /// Empty buffers count too: a driver that posts nothing else gets no frame.
    const SEGMENTS_MAX: usize = 2 * CHAIN_MAX as usize;
    let whole = room.header_len as usize + frame.len();
    let mut segments: ArrayVec<Segment, SEGMENTS_MAX> = ArrayVec::new();
    let mut chains: ArrayVec<(Chain, u32), CHAINS_MAX> = ArrayVec::new();
    let mut space = 0;
    while space < whole {
        let may_go_on = room.mergeable && !chains.is_full() && !segments.is_full();
        if !chains.is_empty() && !may_go_on {
            return Ok(give_back_empty(queue, &chains, malformed));
        }
        let Some(chain) = queue.pop(memory, Access::Write)? else {
            queue.unpop(chains.iter().map(|(chain, _)| chain.slots).sum());
            return Ok(false);
        };
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
    }
    if segments[0].len < room.header_len {
        // A header split over two buffers is legal, but no driver does it.
        return Ok(give_back_empty(queue, &chains, malformed));
    }
    // SAFETY: the first buffer has room for the header.
    unsafe { write_header(segments[0].start, room.header_len, chains.len() as u16) };
    segments[0].len -= room.header_len;
    // SAFETY: the first buffer is at least as long as the header.
    segments[0].start = unsafe { segments[0].start.add(room.header_len as usize) };
    let mut at = 0;
    for segment in &segments {
        let part = at..(at + segment.len as usize).min(frame.len());
        at = part.end;
        // SAFETY: the part is no longer than the segment.
        unsafe { frame.copy_part(part, segment.start) };
    }
    queue.push_together(&chains);
    Ok(true)
}

/// Drops a frame for which the driver can never have room. The chains are returned empty.
fn give_back_empty<Q: DeviceQueue>(
    queue: &mut Q,
    chains: &[(Chain, u32)],
    malformed: &AtomicU64,
) -> bool {
    malformed.fetch_add(1, Ordering::Relaxed);
    chains.iter().for_each(|(chain, _)| queue.push(chain, 0));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A driver whose ring is full of chains of `buffers` buffers of `len` bytes.
    struct Full {
        buffers: usize,
        len: u32,
        budget: u32,
        /// Number of descriptors read, in all.
        read: u32,
        rest: Vec<Segment>,
        memory: Vec<u8>,
    }

    impl Full {
        fn new(buffers: usize, len: u32) -> Self {
            let memory = vec![0; len as usize + 1];
            Self { buffers, len, budget: u32::MAX, read: 0, rest: Vec::new(), memory }
        }

        fn segment(&mut self) -> Segment {
            Segment { start: NonNull::from(&mut self.memory[0]), len: self.len }
        }

        fn count(&mut self, descriptors: usize) {
            self.read += descriptors as u32;
            self.budget = self.budget.saturating_sub(descriptors as u32);
        }
    }

    impl DeviceQueue for Full {
        fn allow(&mut self, descriptors: u32) {
            self.budget = descriptors;
        }

        fn pop<M: dray_ring::AddressSpace>(
            &mut self,
            _: &M,
            _: Access,
        ) -> Result<Option<Chain>, Lie> {
            if self.budget == 0 {
                return Ok(None);
            }
            self.count(self.buffers + 1);
            self.rest = vec![self.segment(); self.buffers - 1];
            Ok(Some(Chain { id: 0, slots: 1, first: self.segment(), more: self.buffers > 1 }))
        }

        fn pop_plain<M: dray_ring::AddressSpace, const N: usize>(
            &mut self,
            _: &M,
            _: Access,
            most: usize,
            out: &mut ArrayVec<Plain, N>,
        ) -> Result<bool, Lie> {
            if self.buffers > 1 {
                return Ok(true);
            }
            let most = most.min(self.budget as usize);
            self.count(most);
            let Segment { start, len } = self.segment();
            out.extend(std::iter::repeat_n(Plain { start, len, id: 0 }, most));
            Ok(false)
        }

        fn push_plain(&mut self, _: impl Iterator<Item = (u16, u32)>) {}
        fn rest(&self) -> &[Segment] {
            &self.rest
        }
        fn unpop(&mut self, _: u16) {}
        fn push(&mut self, _: &Chain, _: u32) {}
        fn push_together(&mut self, _: &[(Chain, u32)]) {}
        fn publish(&mut self) -> bool {
            false
        }
        fn want_kicks(&mut self, _: bool) -> bool {
            false
        }
        fn base(&self) -> u16 {
            0
        }
    }

    /// Up to the end of a chain and of its table.
    const MOST: u32 = DESCRIPTORS_MAX + CHAIN_MAX as u32 + 1;

    #[test]
    fn descriptors_read_per_call_are_bounded() {
        let (memory, malformed) = (GuestMemory::default(), AtomicU64::new(0));
        let long = vec![7; 9018];
        let frames: Vec<Frame<'_>> = (0..BATCH_MAX).map(|_| Frame::from(&long[..])).collect();
        for mergeable in [false, true] {
            for (buffers, len) in [(256, 0), (256, 1), (2, 0), (1, 0), (1, 11), (1, 256), (1, 2048)]
            {
                let room = Room { header_len: 12, mergeable };
                let mut queue = Full::new(buffers, len);
                let (taken, _) = transmit(&mut queue, &memory, room, &frames, &malformed).unwrap();
                assert!(queue.read <= MOST, "{buffers} of {len}: {} descriptors", queue.read);
                assert!(taken > 0, "{buffers} of {len}: no frame was transmitted");

                let mut queue = Full::new(buffers, len);
                let mut gathered = Gathered::new();
                let take: &mut Take<'_> = &mut |frames| frames.len();
                receive(&mut queue, &memory, 12, &mut gathered, &malformed, take).unwrap();
                assert!(queue.read <= MOST, "{buffers} of {len}: {} descriptors", queue.read);
            }
        }
    }

    #[test]
    fn batch_of_long_frames_fits_usual_buffers() {
        let (memory, malformed) = (GuestMemory::default(), AtomicU64::new(0));
        let long = vec![7; 9018];
        let frames: Vec<Frame<'_>> = (0..BATCH_MAX).map(|_| Frame::from(&long[..])).collect();
        let room = Room { header_len: 12, mergeable: true };
        for len in [1526, 2048, 4096, 9030] {
            let mut queue = Full::new(1, len);
            let (taken, _) = transmit(&mut queue, &memory, room, &frames, &malformed).unwrap();
            assert_eq!(taken, BATCH_MAX, "{len}");
        }
        assert_eq!(malformed.into_inner(), 0);
    }
}
