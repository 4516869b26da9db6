//! The receiving half of one ring pair.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use arrayvec::ArrayVec;

use super::calls::Direction;
use super::layout::{FRAGMENTS_MAX, MORE_FRAGMENTS};
use super::registration::Registration;
use super::ring::Ring;
use crate::frame::reassembly::ReassemblyBuffer;
use crate::frame::{self, FRAME_LIMIT, Frame};
use crate::wait::{PollPause, sleep_on};
use crate::{BATCH_MAX, Batch, Receive, Take, Wait};

pub(super) struct NetmapReceive {
    // Dropped before the registration, so that the ring's slots are in order when it ends.
    ring: Ring,
    registration: Arc<Registration>,
    /// Number of slots released since the last sync.
    released: u32,
    wait: Wait,
    pause: PollPause,
    reassembly: ReassemblyBuffer,
    /// Number of frames that were longer than [`FRAME_LIMIT`], or not in a buffer.
    unusable: u64,
}

/// A frame and the buffer that it lies in, if it was not reassembled from several.
#[derive(Clone, Copy)]
struct Lent {
    buffer: Option<u32>,
    slots: u32,
}

/// The next slots.
enum Found<'a> {
    Frame(Frame<'a>, Lent),
    /// A frame that cannot be lent.
    Unusable(u32),
    /// The beginning of a frame, or a frame for which there is no reassembly buffer at present.
    Later,
}

impl NetmapReceive {
    pub(super) fn new(registration: Arc<Registration>, ring: Ring, wait: Wait) -> Self {
        let (pause, reassembly) = (PollPause::default(), ReassemblyBuffer::new());
        Self { ring, registration, released: 0, wait, pause, reassembly, unusable: 0 }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.released = 0;
        self.registration.sync(Direction::Receive)?;
        self.ring.check()
    }

    /// Asks the kernel for frames, and waits for them as configured; returns the number of slots
    /// with frames.
    #[cold]
    fn wait(&mut self) -> io::Result<u32> {
        if self.pause.is_active(self.wait) {
            return Ok(0);
        }
        self.sync()?;
        if self.ring.available()? == 0 && self.wait == Wait::Block {
            // This syncs as well.
            sleep_on(&[self.registration.as_fd()])?;
        }
        let available = self.ring.available()?;
        if available < BATCH_MAX as u32 / 2 {
            self.pause.start(self.wait);
        }
        Ok(available)
    }

    /// Lends the frames in `available` slots to `take`. Returns how many frames it lent; the slots
    /// of those that were taken are released.
    #[inline]
    pub(super) fn lend(&mut self, available: u32, take: &mut Take<'_>) -> usize {
        let mut batch = Batch::new();
        let mut lent = ArrayVec::<Lent, BATCH_MAX>::new();
        let mut rooms = self.reassembly.rooms();
        let mut next = 0;
        let mut unusable = 0;
        while next < available && !batch.is_full() {
            match find(&self.ring, next, available, &mut rooms) {
                Found::Frame(frame, this) => {
                    batch.push(frame);
                    lent.push(this);
                    next += this.slots;
                }
                Found::Unusable(slots) => {
                    if batch.is_empty() {
                        unusable = slots;
                    }
                    break;
                }
                Found::Later => break,
            }
        }
        let taken = if batch.is_empty() { 0 } else { take(&batch).min(batch.len()) };
        let count = batch.len();
        drop(batch);
        drop(rooms);
        let mut done = unusable;
        self.unusable += u64::from(unusable > 0);
        for Lent { buffer, slots } in &lent[..taken] {
            self.take_back(done, *buffer);
            done += slots;
        }
        if done > 0 {
            self.ring.release(done);
            self.released += done;
        }
        count
    }

    /// Puts the buffer that was exchanged for `buffer` into the slot `index` after the head.
    #[inline(always)]
    fn take_back(&self, index: u32, buffer: Option<u32>) {
        if let Some(buffer) = buffer {
            let now = self.ring.region().take_back(buffer);
            if now != buffer {
                self.ring.replace(index, now);
            }
        }
    }
}

impl Receive for NetmapReceive {
    #[inline]
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize> {
        if self.released >= self.ring.len() / 2 {
            // The sender waits for slots.
            self.sync()?;
        }
        let mut available = self.ring.available()?;
        if available == 0 {
            available = self.wait()?;
            if available == 0 {
                return Ok(0);
            }
        }
        let (lent, before) = (self.lend(available, take), available);
        if lent == 0 && self.ring.available()? == before {
            // The rest of a frame has not arrived.
            self.sync()?;
        }
        Ok(lent)
    }

    fn refused(&self) -> u64 {
        self.unusable
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.registration.as_fd())
    }

    fn arm(&mut self, on: bool) -> bool {
        // An error is reported by the call of `receive` that follows.
        on && self.ring.available().map_or(true, |available| available > 0)
    }

    fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }
}

impl Drop for NetmapReceive {
    fn drop(&mut self) {
        // Buffers whose frames were put on another ring: netmap frees the buffers in this ring's
        // slots, so each slot must get the buffer that it was exchanged for.
        for index in 0..self.ring.available().unwrap_or(0) {
            let buffer = self.ring.read(index).place.buffer;
            self.take_back(index, Some(buffer));
        }
    }
}

/// Finds the frame in the slot `first` after the head and those that follow, of `available` slots.
#[inline(always)]
fn find<'a>(
    ring: &'a Ring,
    first: u32,
    available: u32,
    rooms: &mut impl Iterator<Item = &'a mut [u8]>,
) -> Found<'a> {
    let entry = ring.read(first);
    if entry.flags & MORE_FRAGMENTS == 0 {
        let len = usize::from(entry.len);
        return match ring.region().find(entry.place, len) {
            Some(start) if len <= FRAME_LIMIT => {
                // SAFETY: the buffer is ours until the slot is released, and stays mapped for
                // longer.
                let frame = unsafe { Frame::shared(start, entry.len.into()) };
                Found::Frame(frame, Lent { buffer: Some(entry.place.buffer), slots: 1 })
            }
            _ => Found::Unusable(1),
        };
    }
    gather(ring, first, available, rooms)
}

/// Reassembles a frame from its parts.
#[cold]
fn gather<'a>(
    ring: &'a Ring,
    first: u32,
    available: u32,
    rooms: &mut impl Iterator<Item = &'a mut [u8]>,
) -> Found<'a> {
    let limit = available.min(first + FRAGMENTS_MAX as u32);
    let Some(last) = (first..limit).find(|index| ring.read(*index).flags & MORE_FRAGMENTS == 0)
    else {
        let is_endless = limit < available || available + 1 >= ring.len();
        return if is_endless { Found::Unusable(limit - first) } else { Found::Later };
    };
    let slots = last + 1 - first;
    let Some(to) = rooms.next() else { return Found::Later };
    let mut len = 0;
    for index in first..=last {
        let entry = ring.read(index);
        let part = usize::from(entry.len);
        let from = ring.region().find(entry.place, part);
        let (Some(from), Some(to)) = (from, to.get_mut(len..len + part)) else {
            return Found::Unusable(slots);
        };
        // SAFETY: both have `part` bytes; the buffer is ours until the slot is released.
        unsafe { frame::copy(from.as_ptr(), to.as_mut_ptr(), part) };
        len += part;
    }
    Found::Frame(Frame::from(&to[..len]), Lent { buffer: None, slots })
}
