//! A virtqueue of a vhost port, ready to move frames.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use arrayvec::ArrayVec;
use dray_ring::packed::PackedDevice;
use dray_ring::split::SplitDevice;
use dray_ring::{Access, CHAIN_MAX, Chain, DeviceQueue, Lie, Plain, Segment};
use dray_shm::GuestMemory;
use dray_wire::offload::{
    self, Accept, HEADERS_MAX, Layout, Offload, Offloads, VIRTIO_NET_LEN, VirtioNet,
};

use crate::either::{Either, either};
use crate::event::PeerEvent;
use crate::frame::{self, FRAME_LIMIT, Frame, OFFLOADED_LIMIT};
use crate::gathered::{self, Gathered};
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
    /// What was negotiated: what the peer may leave to us, or we may leave to it.
    pub(super) offloads: Offloads,
    /// Counts received frames that are too short or too long or have an invalid header, and frames
    /// that can never fit the peer's buffers.
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
        let (memory, malformed) = (&*self.memory, &*self.malformed);
        let headers = Headers { len: self.header_len, offloads: self.offloads };
        // Compiled twice, so that headers without meaning are not read.
        let moved = match self.offloads.checksum {
            false => either!(&mut self.queue, queue => {
                receive::<_, false>(queue, memory, headers, gathered, malformed, take)
            }),
            true => either!(&mut self.queue, queue => {
                receive::<_, true>(queue, memory, headers, gathered, malformed, take)
            }),
        };
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
        let headers = Headers { len: self.header_len, offloads: self.offloads };
        let room = Room { headers, mergeable: self.mergeable };
        let memory = &*self.memory;
        let moved = either!(&mut self.queue, queue => {
            transmit(queue, memory, room, frames, malformed)
        });
        self.finish(moved)
    }

    fn offloads(&self) -> Offloads {
        self.offloads
    }
}

/// The virtio-net headers of a queue.
#[derive(Clone, Copy)]
struct Headers {
    /// Length in bytes, 10 or 12.
    len: u32,
    offloads: Offloads,
}

impl Headers {
    /// Returns what is left to do on a frame with this header, which begins with `head` and has
    /// `len` bytes. `None` if it must be copied first, because its checksum is completed here, or
    /// if the header is invalid.
    fn carried(self, header: [u8; VIRTIO_NET_LEN], head: &[u8], len: usize) -> Option<Offload> {
        match VirtioNet::read(header).check(head, len, self.offloads) {
            Ok(Accept::Carry(offload)) => Some(offload),
            Ok(Accept::Complete { .. }) | Err(_) => None,
        }
    }

    /// Returns what is left to do on the frame of `len` bytes in the buffer at `start`, behind its
    /// header; otherwise as [`carried`](Self::carried).
    ///
    /// # Safety
    /// Header and frame must be mapped.
    #[inline]
    unsafe fn read(self, start: NonNull<u8>, len: u32) -> Option<Offload> {
        // SAFETY: by the contract; the peer may be writing there, and any bytes are a valid value.
        let first = unsafe { start.cast::<u16>().read_unaligned() };
        // Flags and kind of segmentation, in the order of bytes in memory.
        if first & u16::from_ne_bytes([1, 0xff]) == 0 {
            return Some(Offload::None);
        }
        // SAFETY: by the contract.
        unsafe { self.read_all(start, len) }
    }

    /// Like [`read`](Self::read), if the header asks for something.
    ///
    /// # Safety
    /// As for `read`.
    unsafe fn read_all(self, start: NonNull<u8>, len: u32) -> Option<Offload> {
        // SAFETY: by the contract, as in `read`.
        let (header, frame) = unsafe {
            let header = start.cast::<[u8; VIRTIO_NET_LEN]>().read_unaligned();
            (header, Frame::shared_with(start.add(self.len as usize), len, Offload::Checksum))
        };
        let mut head = [0; HEADERS_MAX];
        let count = frame.copy_from(0, &mut head);
        self.carried(header, &head[..count], len as usize)
    }

    /// Returns the header of a frame; `None` if the peer does not take over what is left to do on
    /// it.
    fn of(self, frame: &Frame<'_>) -> Option<VirtioNet> {
        let mut head = [0; HEADERS_MAX];
        let count = frame.copy_from(0, &mut head);
        let layout = Layout::of(&head[..count], frame.len())?;
        let offload = frame.offload();
        let takes = self.offloads.handle(offload, &layout);
        takes.then(|| VirtioNet::of(offload, &layout, frame.len()))?
    }
}

#[inline]
fn receive<Q: DeviceQueue, const OFFLOADS: bool>(
    queue: &mut Q,
    memory: &GuestMemory,
    headers: Headers,
    gathered: &mut Gathered,
    malformed: &AtomicU64,
    take: &mut Take<'_>,
) -> Result<(usize, bool), Lie> {
    queue.allow(DESCRIPTORS_MAX);
    let mut plain = ArrayVec::<Plain, BATCH_MAX>::new();
    let mut odd = queue.pop_plain(memory, Access::Read, BATCH_MAX, &mut plain)?;
    let mut batch = Batch::new();
    for buffer in &plain {
        let len = buffer.len.wrapping_sub(headers.len);
        // One comparison for both limits: the length of a buffer shorter than its header wraps
        // around.
        let fits = (FRAME_LEAST..=FRAME_LIMIT).contains(&(len as usize));
        let offload = match OFFLOADS && fits {
            // SAFETY: all of the buffer is mapped, as below, and it is long enough.
            true => unsafe { headers.read(buffer.start, len) },
            false => Some(Offload::None),
        };
        let Some(offload) = offload.filter(|_| fits) else {
            // Handled by `receive_odd`, once it is the first.
            queue.unpop((plain.len() - batch.len()) as u16);
            odd = true;
            break;
        };
        // SAFETY: the buffer is longer than its header, and all of it is mapped for as long as the
        // queue's lock is held, which is longer than the frame is lent.
        batch.push(unsafe {
            let start = buffer.start.add(headers.len as usize);
            if OFFLOADS {
                Frame::shared_with(start, len, offload)
            } else {
                Frame::shared(start, len)
            }
        });
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
    receive_odd(queue, memory, headers, gathered, malformed, take)
}

/// Slow path: the first frame is multi-buffer or malformed.
#[cold]
fn receive_odd<Q: DeviceQueue>(
    queue: &mut Q,
    memory: &GuestMemory,
    headers: Headers,
    gathered: &mut Gathered,
    malformed: &AtomicU64,
    take: &mut Take<'_>,
) -> Result<(usize, bool), Lie> {
    let mut batch = ArrayVec::<Frame<'_>, { Gathered::MAX }>::new();
    let mut chains = ArrayVec::<Chain, { Gathered::MAX }>::new();
    let mut room = gathered.room();
    while !batch.is_full() {
        let Some(chain) = queue.pop(memory, Access::Read)? else { break };
        match gather(&chain, queue.rest(), headers, &mut room) {
            Gather::Frame(frame) => {
                batch.push(frame);
                chains.push(chain);
            }
            Gather::Malformed if chains.is_empty() => {
                malformed.fetch_add(1, Ordering::Relaxed);
                queue.push(&chain, 0);
            }
            Gather::Malformed | Gather::NoRoom => {
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

/// Contents of a chain.
enum Gather<'m> {
    Frame(Frame<'m>),
    /// Its length or its header is invalid.
    Malformed,
    /// There is no room to copy it to at present.
    NoRoom,
}

/// Returns the frame in one or several buffers, without its header. A frame that is spread over
/// several buffers, or whose checksum is to be completed here, is copied to `room`.
fn gather<'m>(
    chain: &Chain,
    rest: &[Segment],
    headers: Headers,
    room: &mut gathered::Room<'m>,
) -> Gather<'m> {
    let segments = || std::iter::once(&chain.first).chain(rest);
    let whole: u64 = segments().map(|segment| u64::from(segment.len)).sum();
    let len = whole.checked_sub(headers.len.into()).and_then(|len| usize::try_from(len).ok());
    let reads_headers = headers.offloads.checksum;
    let limit = if reads_headers { OFFLOADED_LIMIT } else { FRAME_LIMIT };
    let Some(len) = len.filter(|len| (FRAME_LEAST..=limit).contains(len)) else {
        return Gather::Malformed;
    };
    let mut header = [0; VIRTIO_NET_LEN];
    if reads_headers {
        // SAFETY: the chain is mapped for as long as the queue's lock is held, and longer than its
        // header.
        unsafe { copy_part(segments(), 0, &mut header) };
    }
    if let Some(start) = contiguous(segments(), headers.len as usize, len) {
        let offload = match reads_headers {
            // SAFETY: as above, for as long as the frame is lent.
            true => unsafe { headed(headers, header, start, len) },
            false => Some(Offload::None),
        };
        if let Some(offload) = offload
            && (len <= FRAME_LIMIT || offload != Offload::None)
        {
            // SAFETY: as above; the length was just compared with the limit.
            return Gather::Frame(unsafe { Frame::shared_with(start, len as u32, offload) });
        }
    }
    let Some(to) = room.take(len) else { return Gather::NoRoom };
    // SAFETY: as above, and `to` has room for all that follows the header.
    unsafe { copy_part(segments(), headers.len as usize, to) };
    let offload = match VirtioNet::read(header).check(to, len, headers.offloads) {
        Ok(Accept::Carry(offload)) => offload,
        Ok(Accept::Complete { start, at }) => {
            offload::complete(to, start, at);
            Offload::None
        }
        Err(_) => return Gather::Malformed,
    };
    if offload == Offload::None && len > FRAME_LIMIT {
        return Gather::Malformed;
    }
    Gather::Frame(Frame::with_offload(to, offload))
}

/// Like [`Headers::carried`], for the frame of `len` bytes at `start`.
///
/// # Safety
/// The frame must be mapped.
unsafe fn headed(
    headers: Headers,
    header: [u8; VIRTIO_NET_LEN],
    start: NonNull<u8>,
    len: usize,
) -> Option<Offload> {
    // SAFETY: by the contract.
    let frame = unsafe { Frame::shared_with(start, len as u32, Offload::Checksum) };
    let mut head = [0; HEADERS_MAX];
    let count = frame.copy_from(0, &mut head);
    headers.carried(header, &head[..count], len)
}

/// Returns the address of the last `len` bytes of `segments`, `skip` bytes after their start, if
/// they are in one of them.
fn contiguous<'s>(
    segments: impl Iterator<Item = &'s Segment>,
    mut skip: usize,
    len: usize,
) -> Option<NonNull<u8>> {
    for segment in segments {
        let skipped = skip.min(segment.len as usize);
        skip -= skipped;
        if segment.len as usize - skipped == len {
            // SAFETY: the result is in the segment.
            return Some(unsafe { segment.start.add(skipped) });
        }
    }
    None
}

/// Copies bytes of `segments` to `to`, from `skip` bytes after their start on, until it is full.
///
/// # Safety
/// The segments must be mapped.
unsafe fn copy_part<'s>(
    segments: impl Iterator<Item = &'s Segment>,
    mut skip: usize,
    to: &mut [u8],
) {
    let mut at = 0;
    for segment in segments {
        let skipped = skip.min(segment.len as usize);
        skip -= skipped;
        let len = (segment.len as usize - skipped).min(to.len() - at);
        let to = &mut to[at..at + len];
        // SAFETY: by the contract; `to` has exactly this length.
        unsafe { frame::copy(segment.start.add(skipped).as_ptr(), to.as_mut_ptr(), len) };
        at += len;
    }
    // Only this copy is checked and used.
    compiler_fence(Ordering::SeqCst);
}

/// How to fill a peer's buffers.
#[derive(Clone, Copy)]
struct Room {
    headers: Headers,
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
    /// Number of buffers looked at after a frame that did not fit one.
    const LOOK: usize = 8;
    let header_len = room.headers.len;
    // Demotion costs us more than it saves the receiver, but there is time for it unless we are
    // behind: a whole batch means that more frames wait.
    let demotes = frames.len() < BATCH_MAX;
    queue.allow(DESCRIPTORS_MAX);
    let mut taken = 0;
    // After a frame that did not fit one buffer, the next ones will not fit either.
    let mut look = BATCH_MAX;
    while taken < frames.len() {
        let rest = &frames[taken..];
        let most = rest.len().min(look);
        let mut buffers = ArrayVec::<Plain, BATCH_MAX>::new();
        let mut odd = queue.pop_plain(memory, Access::Write, most, &mut buffers)?;
        let mut copies = frame::Copies::new();
        let mut filled = 0;
        for (frame, buffer) in rest.iter().zip(&buffers) {
            let len = header_len + frame.len() as u32;
            let is_odd = len > buffer.len
                // SAFETY: the buffer is mapped, and long enough.
                || frame.has_offload() && !unsafe {
                    write_offload(buffer.start, room.headers, frame, 1)
                };
            if is_odd {
                odd = true;
                break;
            }
            // SAFETY: the buffer is mapped, and long enough for the header.
            let start = unsafe {
                if !frame.has_offload() {
                    write_header(buffer.start, header_len, 1);
                }
                buffer.start.add(header_len as usize)
            };
            frame.add_copies(start, &mut copies);
            filled += 1;
        }
        // SAFETY: the buffers are mapped, and long enough for their frames.
        unsafe { frame::copy_each(&copies) };
        if demotes {
            copies.iter().for_each(|copy| frame::demote(copy.to));
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
        look = LOOK;
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

/// Writes the virtio-net header of a frame with an offload. Returns false if the driver does not
/// take it over, or if the frame's headers do not fit it.
///
/// # Safety
/// As for [`write_header`].
#[cold]
unsafe fn write_offload(
    to: NonNull<u8>,
    headers: Headers,
    frame: &Frame<'_>,
    buffers: u16,
) -> bool {
    let Some(header) = headers.of(frame) else { return false };
    // SAFETY: by the contract.
    unsafe {
        to.cast::<[u8; VIRTIO_NET_LEN]>().write_unaligned(header.bytes());
        if headers.len == 12 {
            to.add(VIRTIO_NET_LEN).cast::<u16>().write_unaligned(buffers.to_le());
        }
    }
    true
}

/// Transmits a frame that does not fit one buffer: over all buffers of its chain and, if
/// negotiated, over more chains. Returns false, using nothing, if there is no room at present. A
/// frame that can never fit, or with an offload that the driver has not negotiated, is dropped and
/// counted.
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
    if frame.has_offload() && room.headers.of(frame).is_none() {
        malformed.fetch_add(1, Ordering::Relaxed);
        return Ok(true);
    }
    let header_len = room.headers.len;
    let whole = header_len as usize + frame.len();
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
    if segments[0].len < header_len {
        // A header split over two buffers is legal, but no driver does it.
        return Ok(give_back_empty(queue, &chains, malformed));
    }
    // SAFETY: the first buffer has room for the header.
    unsafe {
        let (to, buffers) = (segments[0].start, chains.len() as u16);
        // If its sender has changed the frame since, it arrives as it is.
        if !frame.has_offload() || !write_offload(to, room.headers, frame, buffers) {
            write_header(to, header_len, buffers);
        }
    }
    segments[0].len -= header_len;
    // SAFETY: the first buffer is at least as long as the header.
    segments[0].start = unsafe { segments[0].start.add(header_len as usize) };
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

    const PLAIN: Headers = Headers { len: 12, offloads: Offloads::NONE };

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
                let room = Room { headers: PLAIN, mergeable };
                let mut queue = Full::new(buffers, len);
                let (taken, _) = transmit(&mut queue, &memory, room, &frames, &malformed).unwrap();
                assert!(queue.read <= MOST, "{buffers} of {len}: {} descriptors", queue.read);
                assert!(taken > 0, "{buffers} of {len}: no frame was transmitted");

                let mut queue = Full::new(buffers, len);
                let mut gathered = Gathered::new();
                let take: &mut Take<'_> = &mut |frames| frames.len();
                receive::<_, false>(&mut queue, &memory, PLAIN, &mut gathered, &malformed, take)
                    .unwrap();
                assert!(queue.read <= MOST, "{buffers} of {len}: {} descriptors", queue.read);
            }
        }
    }

    #[test]
    fn batch_of_long_frames_fits_usual_buffers() {
        let (memory, malformed) = (GuestMemory::default(), AtomicU64::new(0));
        let long = vec![7; 9018];
        let frames: Vec<Frame<'_>> = (0..BATCH_MAX).map(|_| Frame::from(&long[..])).collect();
        let room = Room { headers: PLAIN, mergeable: true };
        for len in [1526, 2048, 4096, 9030] {
            let mut queue = Full::new(1, len);
            let (taken, _) = transmit(&mut queue, &memory, room, &frames, &malformed).unwrap();
            assert_eq!(taken, BATCH_MAX, "{len}");
        }
        assert_eq!(malformed.into_inner(), 0);
    }

    /// A driver with chains of buffers of its own.
    #[derive(Default)]
    struct Chains {
        ready: Vec<Vec<Vec<u8>>>,
        next: usize,
        rest: Vec<Segment>,
        /// Lengths with which the chains were returned.
        returned: Vec<u32>,
    }

    impl Chains {
        fn of(chains: impl IntoIterator<Item = Vec<Vec<u8>>>) -> Self {
            Self { ready: chains.into_iter().collect(), ..Self::default() }
        }
    }

    impl DeviceQueue for Chains {
        fn allow(&mut self, _: u32) {}

        fn pop<M: dray_ring::AddressSpace>(
            &mut self,
            _: &M,
            _: Access,
        ) -> Result<Option<Chain>, Lie> {
            let Some(buffers) = self.ready.get_mut(self.next) else { return Ok(None) };
            self.next += 1;
            let segment = |buffer: &mut Vec<u8>| Segment {
                start: NonNull::new(buffer.as_mut_ptr()).unwrap(),
                len: buffer.len() as u32,
            };
            let mut segments = buffers.iter_mut().map(segment);
            let first = segments.next().unwrap();
            self.rest = segments.collect();
            Ok(Some(Chain { id: 0, slots: 1, first, more: !self.rest.is_empty() }))
        }

        fn pop_plain<M: dray_ring::AddressSpace, const N: usize>(
            &mut self,
            memory: &M,
            access: Access,
            most: usize,
            out: &mut ArrayVec<Plain, N>,
        ) -> Result<bool, Lie> {
            while out.len() < most && self.next < self.ready.len() {
                if self.ready[self.next].len() > 1 {
                    return Ok(true);
                }
                let Segment { start, len } = self.pop(memory, access)?.unwrap().first;
                out.push(Plain { start, len, id: 0 });
            }
            Ok(false)
        }

        fn push_plain(&mut self, used: impl Iterator<Item = (u16, u32)>) {
            self.returned.extend(used.map(|(_, len)| len));
        }

        fn rest(&self) -> &[Segment] {
            &self.rest
        }

        fn unpop(&mut self, slots: u16) {
            self.next -= usize::from(slots);
        }

        fn push(&mut self, _: &Chain, len: u32) {
            self.returned.push(len);
        }

        fn push_together(&mut self, chains: &[(Chain, u32)]) {
            self.returned.extend(chains.iter().map(|(_, len)| *len));
        }

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

    /// Everything was negotiated.
    const ALL: Headers = Headers { len: 12, offloads: Offloads::ALL };

    /// A TCP packet over IPv4 with this payload, and its virtio-net header for segments of 1448
    /// bytes.
    fn packet(payload: usize) -> (VirtioNet, Vec<u8>) {
        let mut bytes = vec![2; 12];
        bytes.extend([0x08, 0x00, 0x45, 0]);
        bytes.extend(((40 + payload) as u16).to_be_bytes());
        bytes.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend([0, 80, 0, 81, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        bytes.extend((0..payload).map(|at| (at / 7) as u8));
        let (gso_type, gso_size) = if payload > 1448 { (1, 1448) } else { (0, 0) };
        let (flags, hdr_len, csum_start, csum_offset) = (1, 54, 34, 16);
        (VirtioNet { flags, gso_type, hdr_len, gso_size, csum_start, csum_offset }, bytes)
    }

    /// A chain of buffers of `len` bytes with header and frame, the header in a buffer of its own
    /// if `apart`.
    fn chain((header, frame): &(VirtioNet, Vec<u8>), len: usize, apart: bool) -> Vec<Vec<u8>> {
        let header = [&header.bytes()[..], &[0, 0]].concat();
        if apart {
            let frame = frame.chunks(len).map(<[u8]>::to_vec);
            return std::iter::once(header).chain(frame).collect();
        }
        [header, frame.clone()].concat().chunks(len).map(<[u8]>::to_vec).collect()
    }

    /// Receives everything; returns the frames and the number of malformed ones.
    fn received(queue: &mut Chains, headers: Headers) -> (Vec<(Vec<u8>, Offload)>, u64) {
        let (memory, malformed) = (GuestMemory::default(), AtomicU64::new(0));
        let (mut gathered, mut frames) = (Gathered::new(), Vec::new());
        let take: &mut Take<'_> = &mut |batch| {
            frames.extend(batch.iter().map(|frame| {
                let mut bytes = vec![0; frame.len()];
                frame.copy_into(&mut bytes);
                (bytes, frame.offload())
            }));
            batch.len()
        };
        for _ in 0..2 * queue.ready.len() {
            receive::<_, true>(queue, &memory, headers, &mut gathered, &malformed, take).unwrap();
        }
        assert_eq!(queue.returned.len(), queue.ready.len());
        (frames, malformed.into_inner())
    }

    #[test]
    fn packets_of_64_kib_are_lent_whole() {
        let long = packet(65_000);
        let tcp = Offload::Tcp(std::num::NonZeroU16::new(1448).unwrap());
        for (len, apart) in
            [(100_000, false), (100_000, true), (4096, false), (4096, true), (999, false)]
        {
            // More than there is room for at once, and short ones between them.
            let short = packet(100);
            let chains = (0..20).map(|number| match number % 3 {
                0 => chain(&short, len, apart),
                _ => chain(&long, len, apart),
            });
            let (frames, malformed) = received(&mut Chains::of(chains), ALL);
            assert_eq!((frames.len(), malformed), (20, 0), "{len}");
            for (number, frame) in frames.into_iter().enumerate() {
                let (sent, offload) =
                    if number % 3 == 0 { (&short, Offload::Checksum) } else { (&long, tcp) };
                assert_eq!(frame, (sent.1.clone(), offload), "{len}");
            }
        }
    }

    #[test]
    fn hostile_headers_are_counted_and_dropped() {
        let (good, bytes) = packet(5000);
        let without_tcp = Headers { offloads: Offloads { tcp4: false, ..Offloads::ALL }, ..ALL };
        for (header, headers) in [
            (VirtioNet { gso_size: 0, ..good }, ALL),
            (VirtioNet { hdr_len: u16::MAX, ..good }, ALL),
            (VirtioNet { csum_start: 6000, ..good }, ALL),
            (VirtioNet { csum_start: u16::MAX, csum_offset: u16::MAX, ..good }, ALL),
            (VirtioNet { gso_type: 4, ..good }, ALL),
            (VirtioNet { gso_type: 5, ..good }, ALL),
            (VirtioNet { gso_type: 3, ..good }, ALL),
            (VirtioNet { flags: 0, ..good }, ALL),
            (good, without_tcp),
        ] {
            for (len, apart) in [(100_000, false), (100_000, true), (1000, true), (11, false)] {
                let plain = (VirtioNet::default(), vec![7; 60]);
                let hostile = chain(&(header, bytes.clone()), len, apart);
                let chains = [chain(&plain, len, apart), hostile, chain(&plain, len, apart)];
                let (frames, malformed) = received(&mut Chains::of(chains), headers);
                let expected = vec![(vec![7; 60], Offload::None); 2];
                assert_eq!((frames, malformed), (expected, 1), "{header:?} {len}");
            }
        }
        // A long frame is not allowed without segmentation.
        let long = (VirtioNet::default(), vec![7; FRAME_LIMIT + 1]);
        for (len, apart) in [(100_000, false), (100_000, true), (1000, true)] {
            let (frames, malformed) = received(&mut Chains::of([chain(&long, len, apart)]), ALL);
            assert_eq!((frames, malformed), (vec![], 1), "{len}");
        }
    }

    #[test]
    fn checksum_of_other_protocol_is_completed() {
        let header = VirtioNet { flags: 1, csum_start: 20, csum_offset: 4, ..VirtioNet::default() };
        for (len, apart) in [(1000, false), (1000, true), (30, false)] {
            let sent = (header, (0..100).collect::<Vec<u8>>());
            let (frames, malformed) = received(&mut Chains::of([chain(&sent, len, apart)]), ALL);
            let mut expected = sent.1;
            offload::complete(&mut expected, 20, 24);
            assert_eq!((frames, malformed), (vec![(expected, Offload::None)], 0), "{len}");
        }
    }

    #[test]
    fn packets_of_64_kib_are_spread_over_buffers() {
        let memory = GuestMemory::default();
        let (header, bytes) = packet(65_000);
        let tcp = Offload::Tcp(std::num::NonZeroU16::new(1448).unwrap());
        let frame = Frame::with_offload(&bytes, tcp);
        let send = |queue: &mut Chains, headers, mergeable| {
            let malformed = AtomicU64::new(0);
            let room = Room { headers, mergeable };
            let (taken, _) = transmit(queue, &memory, room, &[frame], &malformed).unwrap();
            (taken, malformed.into_inner())
        };
        let read = |queue: &Chains| {
            let used = queue.returned.iter().sum::<u32>() as usize;
            let mut all = queue.ready[..queue.next].concat().concat();
            all.truncate(used);
            let (head, frame) = all.split_at(12);
            let buffers = u16::from_le_bytes([head[10], head[11]]);
            (VirtioNet::read(*head.first_chunk().unwrap()), usize::from(buffers), frame.to_vec())
        };
        // One large buffer, one chain of several, and several chains.
        let mut one = Chains::of([vec![vec![0; 70_000]]]);
        assert_eq!(send(&mut one, ALL, false), (1, 0));
        assert_eq!(read(&one), (header, 1, bytes.clone()));
        let mut several = Chains::of([vec![vec![0; 4096]; 17]]);
        assert_eq!(send(&mut several, ALL, false), (1, 0));
        assert_eq!(read(&several), (header, 1, bytes.clone()));
        let mut merged = Chains::of(vec![vec![vec![0; 1536]]; 50]);
        assert_eq!(send(&mut merged, ALL, true), (1, 0));
        assert_eq!(read(&merged), (header, (12 + bytes.len()).div_ceil(1536), bytes.clone()));
        // Without room it waits; with buffers that never suffice it is dropped.
        let mut few = Chains::of(vec![vec![vec![0; 1536]]; 20]);
        assert_eq!(send(&mut few, ALL, true), (0, 0));
        assert_eq!((few.next, few.returned.len()), (0, 0));
        assert_eq!(send(&mut Chains::of([vec![vec![0; 1536]]]), ALL, false), (1, 1));
        // Not negotiated.
        let mut all = Chains::of([vec![vec![0; 70_000]]]);
        let without_tcp = Headers { offloads: Offloads { tcp4: false, ..Offloads::ALL }, ..ALL };
        assert_eq!(send(&mut all, without_tcp, true), (1, 1));
        assert_eq!(send(&mut all, PLAIN, true), (1, 1));
        assert_eq!((all.next, all.returned.len()), (0, 0));
    }
}
