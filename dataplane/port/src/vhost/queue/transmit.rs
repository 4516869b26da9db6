//! Transmits frames to the driver: fills its buffers.

use std::ptr::NonNull;

use arrayvec::ArrayVec;
use dray_ring::{Access, CHAIN_MAX, Chain, DeviceQueue, RingError, Segment};
use dray_shm::GuestMemory;

use crate::BATCH_MAX;
use crate::ends::headers::{HEADER_MAX, Headers};
use crate::ends::limits::DESCRIPTORS_PER_CALL;
use crate::frame::list::Space;
use crate::frame::{self, Copier, Frame};
use crate::lost::{Loss, Lost};

/// Fills buffers with `frames`; returns how many there was room for. Those that the driver can
/// never have room for are among them, and added to `lost`.
#[inline]
pub(super) fn transmit<Q: DeviceQueue>(
    queue: &mut Q,
    memory: &GuestMemory,
    headers: Headers,
    copier: &mut Copier,
    frames: &[Frame<'_>],
    lost: &mut Lost,
) -> Result<(usize, bool), RingError> {
    let header_len = headers.len;
    // Demotion costs us more than it saves the receiver, but there is time for it unless we are
    // behind: a whole batch means that more frames wait.
    let demotes = frames.len() < BATCH_MAX;
    queue.set_budget(DESCRIPTORS_PER_CALL);
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
        if fits && !odd {
            break;
        }
        match scatter(queue, memory, headers, &frames[taken])? {
            Outcome::Done => {}
            Outcome::Full => break,
            Outcome::Never(why) => lost.add(taken, why),
        }
        taken += 1;
    }
    Ok((taken, queue.publish()))
}

/// Outcome of transmitting a frame that does not fit one buffer.
enum Outcome {
    Done,
    /// There is no room at present.
    Full,
    /// There can never be room, or the driver does not take over the frame's offload.
    Never(Loss),
}

/// Transmits a frame that does not fit one buffer: over all buffers of its chain and, if
/// negotiated, over more chains. Uses nothing unless all of it fits: chains that are too short for
/// this frame stay for shorter ones.
#[cold]
fn scatter<Q: DeviceQueue>(
    queue: &mut Q,
    memory: &GuestMemory,
    headers: Headers,
    frame: &Frame<'_>,
) -> Result<Outcome, RingError> {
    if frame.has_offload() && headers.of(frame).is_none() {
        return Ok(Outcome::Never(Loss::Undeliverable));
    }
    let mut room = Room::default();
    let whole = headers.len as usize + frame.len();
    while room.len < whole {
        let may_go_on = headers.mergeable && !room.is_full() && room.slots() < queue.size();
        let never = !room.chains.is_empty() && !may_go_on;
        let next = if never { None } else { queue.pop(memory, Access::Write)? };
        let Some(chain) = next else {
            queue.unpop(room.slots());
            return Ok(if never { Outcome::Never(Loss::TooLong) } else { Outcome::Full });
        };
        room.add(chain, if chain.more { queue.rest() } else { &[] }, whole);
    }
    // Of several chains, each has room for a header (Virtio 1.3, section 5.1.6.3.1).
    if room.chains.len() > 1 && room.chains[0].1 < headers.len {
        queue.unpop(room.slots());
        return Ok(Outcome::Never(Loss::TooLong));
    }
    room.write(headers, frame);
    queue.push_together(&room.chains);
    Ok(Outcome::Done)
}

/// With buffers of 256 bytes a jumbo frame takes 37 chains.
const CHAINS_MAX: usize = 64;
/// Empty buffers count too: a driver that posts nothing else gets no frame.
const SEGMENTS_MAX: usize = 2 * CHAIN_MAX as usize;

/// Chains for a frame.
#[derive(Default)]
struct Room {
    segments: ArrayVec<Segment, SEGMENTS_MAX>,
    /// Each with the number of bytes that are written into it.
    chains: ArrayVec<(Chain, u32), CHAINS_MAX>,
    /// Number of these bytes in all.
    len: usize,
}

impl Room {
    fn is_full(&self) -> bool {
        self.chains.is_full() || self.segments.is_full()
    }

    /// Returns the number of ring entries that the chains take.
    fn slots(&self) -> u16 {
        self.chains.iter().map(|(chain, _)| chain.slots).sum()
    }

    /// Adds a chain whose buffers after the first are `rest`, for `whole` bytes in all chains.
    fn add(&mut self, chain: Chain, rest: &[Segment], whole: usize) {
        let mut len = 0;
        for segment in std::iter::once(&chain.first).chain(rest) {
            if self.len + len < whole && self.segments.try_push(*segment).is_ok() {
                len += segment.len as usize;
            }
        }
        let used = len.min(whole - self.len);
        self.len += used;
        self.chains.push((chain, used as u32));
    }

    /// Writes a frame behind its header, which may itself be spread over buffers.
    fn write(&self, headers: Headers, frame: &Frame<'_>) {
        let mut room = [0; HEADER_MAX];
        let (to, buffers) = (NonNull::from(&mut room).cast(), self.chains.len() as u16);
        // SAFETY: the longest header fits. If its sender has changed the frame since, it arrives as
        // it is.
        unsafe {
            if !headers.write(to, frame, buffers) {
                headers.write_plain(to, buffers);
            }
        }
        let header = &room[..headers.len as usize];
        let (mut at, whole) = (0, header.len() + frame.len());
        for segment in &self.segments {
            let end = whole.min(at + segment.len as usize);
            let head = &header[at.min(header.len())..end.min(header.len())];
            let part = at.max(header.len()) - header.len()..end.max(header.len()) - header.len();
            // SAFETY: both parts together are no longer than the segment, which is mapped.
            unsafe {
                frame::copy(head.as_ptr(), segment.start.as_ptr(), head.len());
                frame.copy_part(part, segment.start.add(head.len()));
            }
            at = end;
        }
    }
}
