//! The receiving half of a socket port.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use arrayvec::ArrayVec;
use dray_wire::FRAME_MAX;
use dray_wire::headers::{self, Flow, HEADERS_LEN};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::SocketOptions;
use super::calls::{self, Messages};
use crate::{BATCH_MAX, Batch, Frame, Receive, Take, Wait, clock};

/// A slot holds the longest frame and one byte more, in whole cache lines; an odd number of lines
/// spreads the slots' first lines over all sets of the cache.
pub(crate) const SLOT_LEN: usize = {
    let lines = (FRAME_MAX + 1).div_ceil(64);
    (lines | 1) * 64
};

/// The headers that the kernel takes off and that are put back on, so that a frame from a `udp:`
/// port looks like any other.
struct Restored {
    flow: Flow,
    /// The frame length for which each slot's headers were written last.
    written: Box<[usize]>,
}

pub(crate) struct SocketReceive {
    socket: Arc<OwnedFd>,
    slots: Box<[u8]>,
    messages: Messages,
    restored: Option<Restored>,
    batch: usize,
    wait: Wait,
    /// With [`Wait::Poll`]: no system call before this tick.
    rest_until: u64,
    /// The slots that hold frames, and the frames' lengths.
    filled: ArrayVec<(usize, usize), BATCH_MAX>,
    /// How many of those were taken.
    taken: usize,
    oversized: u64,
}

impl SocketReceive {
    /// `restore`: the flow whose headers go in front of what the socket delivers.
    pub(crate) fn new(socket: Arc<OwnedFd>, options: SocketOptions, restore: Option<Flow>) -> Self {
        let batch = options.batch;
        Self {
            socket,
            slots: vec![0; batch * SLOT_LEN].into_boxed_slice(),
            messages: Messages::new(batch),
            restored: restore
                .map(|flow| Restored { flow, written: vec![0; batch].into_boxed_slice() }),
            batch,
            wait: options.wait,
            rest_until: 0,
            filled: ArrayVec::new(),
            taken: 0,
            oversized: 0,
        }
    }

    /// One `recv` or `recvmmsg`: how many messages lie in the slots, and the first one's length
    /// where there is only one slot.
    fn call(&mut self) -> io::Result<(usize, usize)> {
        let offset = if self.restored.is_some() { HEADERS_LEN } else { 0 };
        let block = self.wait == Wait::Block;
        if self.batch > 1 {
            let slots = &mut self.slots;
            let count =
                self.messages.receive(self.socket.as_fd(), slots, SLOT_LEN, offset, block)?;
            return Ok((count, 0));
        }
        let flags = if block { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        let (_, len) =
            rustix::net::recv(&self.socket, &mut self.slots[offset..], flags | RecvFlags::TRUNC)?;
        Ok((1, len))
    }
}

impl Receive for SocketReceive {
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize> {
        if self.taken == self.filled.len() {
            self.fill()?;
        }
        let frame = |&(slot, len): &(usize, usize)| {
            Frame::from(&self.slots[slot * SLOT_LEN..slot * SLOT_LEN + len])
        };
        // Filled where it is: a batch that is returned from somewhere is moved, full or not.
        let mut batch = Batch::new();
        batch.extend(self.filled[self.taken..].iter().map(frame));
        if !batch.is_empty() {
            self.taken += take(&batch).min(batch.len());
        }
        Ok(batch.len())
    }

    fn dropped(&self) -> io::Result<u64> {
        Ok(calls::dropped(self.socket.as_fd())? + self.oversized)
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }
}

impl SocketReceive {
    /// Receives into the slots, all of which are free.
    fn fill(&mut self) -> io::Result<()> {
        self.taken = 0;
        self.filled.clear();
        if let Wait::Poll { pause_us } = self.wait
            && pause_us > 0
            && clock::ticks() < self.rest_until
        {
            return Ok(());
        }
        let (count, single_len) = match self.call() {
            Ok(received) => received,
            Err(error) if is_transient(&error) => (0, 0),
            Err(error) => return Err(error),
        };
        if let Wait::Poll { pause_us } = self.wait
            && count <= self.batch / 2
            && pause_us > 0
        {
            let pause = u64::from(pause_us) * clock::ticks_per_second() / 1_000_000;
            self.rest_until = clock::ticks() + pause;
        }
        let offset = if self.restored.is_some() { HEADERS_LEN } else { 0 };
        for (index, slot) in self.slots.chunks_exact_mut(SLOT_LEN).take(count).enumerate() {
            let len = if self.batch > 1 { self.messages.len(index) } else { Some(single_len) };
            let Some(len) = len.map(|len| len + offset).filter(|len| *len <= FRAME_MAX) else {
                self.oversized += 1;
                continue;
            };
            if let Some(restored) = &mut self.restored
                && restored.written[index] != len
            {
                let headers = slot.first_chunk_mut().expect("a slot holds the headers");
                headers::write(&restored.flow, len, headers);
                restored.written[index] = len;
            }
            self.filled.push((index, len));
        }
        Ok(())
    }
}

/// Nothing there at present, or the peer's kernel said that nobody listens: neither ends the port.
pub(super) fn is_transient(error: &io::Error) -> bool {
    let Some(errno) = Errno::from_io_error(error) else { return false };
    [Errno::AGAIN, Errno::INTR, Errno::NOBUFS, Errno::CONNREFUSED].contains(&errno)
}
