//! Transmits frames to the driver: fills its buffers.

use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use dray_ring::{Access, CHAIN_MAX, Chain, DeviceQueue, Lie, Segment};
use dray_shm::GuestMemory;

use super::DESCRIPTORS_MAX;
use crate::BATCH_MAX;
use crate::frame::{self, Copier, Frame};
use crate::headers::Headers;
use crate::list::Space;

/// Fills buffers with `frames`; returns how many there was room for.
#[inline]
pub(super) fn transmit<Q: DeviceQueue>(
    queue: &mut Q,
    memory: &GuestMemory,
    headers: Headers,
    copier: &mut Copier,
    frames: &[Frame<'_>],
    malformed: &AtomicU64,
) -> Result<(usize, bool), Lie> {
    let header_len = headers.len;
    // Demotion costs us more than it saves the receiver, but there is time for it unless we are
    // behind: a whole batch means that more frames wait.
    let demotes = frames.len() < BATCH_MAX;
    queue.allow(DESCRIPTORS_MAX);
    let mut taken = 0;
    while taken < frames.len() {
        let rest = &frames[taken..];
        let most = rest.len().min(BATCH_MAX);
        let (mut copies, mut ids) = (frame::CopySpace::new(), Space::<u16, BATCH_MAX>::new());
        let (mut copies, mut ids) = (copies.list(), ids.list());
        let mut next = rest.iter();
        let mut fits = true;
        let odd = queue.pop_plain(memory, Access::Write, most, |buffer| {
            // Never the case: `most` frames are left.
            let Some(frame) = next.next() else { return false };
            let len = header_len + frame.len() as u32;
            // SAFETY: the buffer is mapped, and long enough.
            fits = len <= buffer.len && unsafe { headers.write(buffer.start, frame, 1) };
            if fits {
                // SAFETY: as above.
                let start = unsafe { buffer.start.add(header_len as usize) };
                frame.add_copies(start, &mut copies);
                ids.push(buffer.id);
            }
            fits
        })?;
        // SAFETY: the buffers are mapped, and long enough for their frames.
        unsafe { copier.copy_each(copies.as_slice()) };
        if demotes {
            copies.as_slice().iter().for_each(|copy| frame::demote(copy.to));
        }
        let len = |frame: &Frame<'_>| header_len + frame.len() as u32;
        let used = ids.as_slice().iter().zip(rest);
        queue.push_plain(used.map(|(&id, frame)| (id, len(frame))));
        let filled = ids.len();
        taken += filled;
        if filled == most {
            continue;
        }
        if (fits && !odd) || !scatter(queue, memory, headers, &frames[taken], malformed)? {
            break;
        }
        taken += 1;
    }
    Ok((taken, queue.publish()))
}

/// Transmits a frame that does not fit one buffer: over all buffers of its chain and, if
/// negotiated, over more chains. Returns false, using nothing, if there is no room at present. A
/// frame that can never fit, or with an offload that the driver has not negotiated, is dropped and
/// counted.
#[cold]
fn scatter<Q: DeviceQueue>(
    queue: &mut Q,
    memory: &GuestMemory,
    headers: Headers,
    frame: &Frame<'_>,
    malformed: &AtomicU64,
) -> Result<bool, Lie> {
    /// With buffers of 256 bytes a jumbo frame takes 37 chains.
    const CHAINS_MAX: usize = 64;
    /// Empty buffers count too: a driver that posts nothing else gets no frame.
    const SEGMENTS_MAX: usize = 2 * CHAIN_MAX as usize;
    if frame.has_offload() && headers.of(frame).is_none() {
        malformed.fetch_add(1, Ordering::Relaxed);
        return Ok(true);
    }
    let header_len = headers.len;
    let whole = header_len as usize + frame.len();
    let mut segments: ArrayVec<Segment, SEGMENTS_MAX> = ArrayVec::new();
    let mut chains: ArrayVec<(Chain, u32), CHAINS_MAX> = ArrayVec::new();
    let mut space = 0;
    while space < whole {
        let may_go_on = headers.mergeable && !chains.is_full() && !segments.is_full();
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
        if !headers.write(to, frame, buffers) {
            headers.write_plain(to, buffers);
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
