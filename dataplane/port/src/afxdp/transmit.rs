//! The transmitting half of one queue of an AF_XDP port.

use std::io;
use std::sync::Arc;

use rustix::net::xdp::{XdpDesc, XdpDescOptions};

use super::absence::Absence;
use super::ring::{Consumer, Producer};
use super::socket::Socket;
use crate::Transmit;
use crate::frame::Frame;
use crate::lost::{Loss, Lost};

pub(super) struct AfxdpTransmit {
    socket: Arc<Socket>,
    tx: Producer<XdpDesc>,
    completion: Consumer<u64>,
    /// Free chunks to copy frames into; the last one used is reused first, because it is in the
    /// cache.
    free: Vec<u64>,
    frame_max: usize,
    /// True if the wake-up of the kernel for the last frames has failed.
    needs_retry: bool,
    absence: Absence,
    /// Number of frames that cannot be transmitted.
    lost: Lost,
    /// True if this continues for another process and has not begun yet.
    is_resuming: bool,
}

impl AfxdpTransmit {
    /// `chunks` are the chunks to copy frames into; `frame_max` is in bytes.
    pub(super) fn new(
        socket: Arc<Socket>,
        tx: Producer<XdpDesc>,
        completion: Consumer<u64>,
        chunks: Vec<u64>,
        frame_max: usize,
    ) -> Self {
        Self {
            socket,
            tx,
            completion,
            free: chunks,
            frame_max,
            needs_retry: false,
            absence: Absence::default(),
            lost: Lost::new(),
            is_resuming: false,
        }
    }

    /// Continues for another process, from the first call of [`transmit`](Transmit::transmit).
    pub(super) fn resume(
        socket: Arc<Socket>,
        tx: Producer<XdpDesc>,
        completion: Consumer<u64>,
        frame_max: usize,
    ) -> Self {
        Self { is_resuming: true, ..Self::new(socket, tx, completion, Vec::new(), frame_max) }
    }

    /// Begins at the position at which the other process has stopped.
    #[cold]
    fn begin(&mut self) {
        let Self { tx, completion, .. } = self;
        tx.resume();
        completion.resume();
        let done = completion.available(1);
        let done = (0..done).map(|offset| completion.get(offset));
        self.free = self.socket.slot().resume_transmit(tx.next(), |at| tx.read(at).addr, done);
        self.is_resuming = false;
        // The kernel may wait for a call.
        self.needs_retry = true;
    }

    /// Reclaims the chunks of transmitted frames.
    #[inline]
    fn reclaim(&mut self) {
        let umem = self.socket.umem();
        let available = self.completion.available(1);
        let chunks = (0..available).map(|offset| umem.chunk(self.completion.get(offset)));
        let before = self.free.len();
        // The kernel has transmitted the frame, but it may still be lent to others.
        let free = chunks.take_while(|chunk| !umem.is_lent(*chunk));
        self.free.extend(free.inspect(|chunk| umem.set_free(*chunk, true)));
        self.completion.release((self.free.len() - before) as u32);
    }

    /// Puts one frame, the call's `index`th, on the ring. Returns true if there was room.
    #[inline(always)]
    fn push(&mut self, index: usize, frame: &Frame<'_>) -> bool {
        // The kernel would skip the frame, and never return its chunk.
        if frame.len() == 0 || !frame.fits(self.frame_max) {
            self.lost.add(index, Loss::Undeliverable);
            return true;
        }
        let umem = self.socket.umem();
        let none = XdpDescOptions::empty();
        let chunk_len = umem.chunk_len();
        let count = frame.len().div_ceil(chunk_len);
        if self.free.len() < count || (self.tx.room(count as u32) as usize) < count {
            return false;
        }
        if let Some(addr) = umem.exchange(frame, self.free[self.free.len() - 1]) {
            self.free.pop();
            self.tx.push(XdpDesc { addr, len: frame.len() as u32, options: none });
            self.socket.slot().set_pushed(self.tx.next());
            umem.set_free(umem.chunk(addr), false);
            return true;
        }
        for at in (0..frame.len()).step_by(chunk_len) {
            let end = (at + chunk_len).min(frame.len());
            let len = (end - at) as u32;
            let addr = self.free.pop().expect("enough free chunks");
            let to = umem.find(addr, len).expect("a chunk of the UMEM");
            // SAFETY: the chunk is ours, and has room for the longest part.
            unsafe { frame.copy_part(at..end, to) };
            let options = if end < frame.len() { XdpDescOptions::XDP_PKT_CONTD } else { none };
            self.tx.push(XdpDesc { addr, len, options });
            self.socket.slot().set_pushed(self.tx.next());
            umem.set_free(addr, false);
        }
        true
    }
}

impl Transmit for AfxdpTransmit {
    #[inline]
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        self.lost.begin();
        if self.is_resuming {
            self.begin();
        }
        self.reclaim();
        if self.needs_retry {
            if let Err(error) = self.socket.wake_transmit(&self.tx) {
                return self.absence.check(&self.socket, error).map(|()| 0);
            }
            self.absence.clear();
        }
        let frames = frames.iter().enumerate();
        let taken = frames.take_while(|(index, frame)| self.push(*index, frame)).count();
        self.tx.submit();
        // Frames on the ring count as taken even if the wake-up fails. No further frames are taken
        // before a wake-up succeeds.
        self.needs_retry = self.socket.wake_transmit(&self.tx).is_err();
        Ok(taken)
    }

    fn frame_max(&self) -> usize {
        self.frame_max
    }

    fn lost(&self) -> &Lost {
        &self.lost
    }
}
