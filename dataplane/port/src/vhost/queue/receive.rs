//! Receives frames from the driver: lends its buffers.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use arrayvec::ArrayVec;
use dray_ring::{Access, Chain, DeviceQueue, RingError, Segment};
use dray_shm::GuestMemory;
use dray_wire::offload::{Offload, VIRTIO_NET_LEN, VirtioNet};

use crate::ends::headers::{self, Headers};
use crate::ends::limits::DESCRIPTORS_PER_CALL;
use crate::frame::list::Space;
use crate::frame::reassembly::{self, ReassemblyBuffer};
use crate::frame::{self, FRAME_LEAST, FRAME_LIMIT, Frame, OFFLOADED_LIMIT};
use crate::{BATCH_MAX, Take};

/// Lends frames to `take`, and returns the buffers of those that were taken.
#[inline]
pub(super) fn receive<Q: DeviceQueue, const OFFLOADS: bool>(
    queue: &mut Q,
    memory: &GuestMemory,
    headers: Headers,
    reassembly: &mut ReassemblyBuffer,
    malformed: &AtomicU64,
    take: &mut Take<'_>,
) -> Result<(usize, bool), RingError> {
    queue.set_budget(DESCRIPTORS_PER_CALL);
    let (mut batch, mut ids) = (Space::<_, BATCH_MAX>::new(), Space::<u16, BATCH_MAX>::new());
    let (mut batch, mut ids) = (batch.list(), ids.list());
    let mut fits = true;
    let odd = queue.pop_plain(memory, Access::Read, BATCH_MAX, |buffer| {
        let len = buffer.len.wrapping_sub(headers.len);
        // One comparison for both limits: the length of a buffer shorter than its header wraps
        // around.
        let has_length = (FRAME_LEAST..=FRAME_LIMIT).contains(&(len as usize));
        let offload = match (has_length, OFFLOADS) {
            (false, _) => None,
            (true, false) => Some(Offload::None),
            // SAFETY: all of the buffer is mapped, as below, and it is long enough.
            (true, true) => unsafe { headers.read(buffer.start, len) },
        };
        // `receive_odd` handles a frame of another length, or with another header, once it is the
        // first.
        fits = offload.is_some();
        if let Some(offload) = offload {
            // SAFETY: the buffer is longer than its header, and all of it is mapped for as long as
            // the queue's lock is held, which is longer than the frame is lent.
            batch.push(unsafe {
                let start = buffer.start.add(headers.len as usize);
                if OFFLOADS {
                    Frame::shared_with(start, len, offload)
                } else {
                    Frame::shared(start, len)
                }
            });
            ids.push(buffer.id);
        }
        fits
    })?;
    let lent = batch.len();
    if lent > 0 {
        queue.commit();
        let taken = take(batch.as_slice()).min(lent);
        queue.push_plain(ids.as_slice()[..taken].iter().map(|&id| (id, 0)));
        queue.unpop((lent - taken) as u16);
        return Ok((lent, queue.publish()));
    }
    if fits && !odd {
        return Ok((0, false));
    }
    receive_odd(queue, memory, headers, reassembly, malformed, take)
}

/// Slow path: the first frame is multi-buffer or malformed.
#[cold]
fn receive_odd<Q: DeviceQueue>(
    queue: &mut Q,
    memory: &GuestMemory,
    headers: Headers,
    reassembly: &mut ReassemblyBuffer,
    malformed: &AtomicU64,
    take: &mut Take<'_>,
) -> Result<(usize, bool), RingError> {
    let mut batch = ArrayVec::<Frame<'_>, { ReassemblyBuffer::MAX }>::new();
    let mut chains = ArrayVec::<Chain, { ReassemblyBuffer::MAX }>::new();
    let mut room = reassembly.room();
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
    queue.commit();
    let taken = if batch.is_empty() { 0 } else { take(&batch).min(batch.len()) };
    let (done, back) = chains.split_at(taken);
    done.iter().for_each(|chain| queue.push(chain, 0));
    queue.unpop(back.iter().map(|chain| chain.slots).sum());
    Ok((batch.len(), queue.publish()))
}

/// Contents of a chain.
enum Gather<'m> {
    Frame(Frame<'m>),
    /// A chain with an invalid length or header.
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
    room: &mut reassembly::Room<'m>,
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
            true => unsafe { headers.carried(header, start, len as u32) },
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
    match headers::accept(VirtioNet::read(header), to, headers.offloads) {
        Some(offload) => Gather::Frame(Frame::with_offload(to, offload)),
        None => Gather::Malformed,
    }
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
