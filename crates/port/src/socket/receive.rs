//! The receiving half of a socket port.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use dray_wire::FRAME_MAX;
use dray_wire::headers::{self, Flow, HEADERS_LEN};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::calls::{self, Messages};
use super::{SocketOptions, Wait};
use crate::{Batch, Receive, clock};

/// A slot holds the longest frame and one byte more, in whole cache lines; an odd number of lines
/// spreads the slots' first lines over all sets of the cache.
const SLOT_LEN: usize = {
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
    fn receive<'a>(&'a mut self, batch: &mut Batch<'a>) -> io::Result<()> {
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
            batch.push(&slot[..len]);
        }
        Ok(())
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

/// Nothing there at present, or the peer's kernel said that nobody listens: neither ends the port.
pub(super) fn is_transient(error: &io::Error) -> bool {
    let Some(errno) = Errno::from_io_error(error) else { return false };
    [Errno::AGAIN, Errno::INTR, Errno::NOBUFS, Errno::CONNREFUSED].contains(&errno)
}
