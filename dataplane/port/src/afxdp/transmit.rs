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
    /// True if the kernel could not be notified of the frames taken last.
    stuck: bool,
    absence: Absence,
    /// Number of frames that cannot be transmitted.
    lost: Lost,
    /// True until it has begun to continue for another process.
    is_new: bool,
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
            stuck: false,
            absence: Absence::default(),
            lost: Lost::new(),
            is_new: false,
        }
    }

    /// Continues where another process stops, when the first frames are transmitted.
    pub(super) fn resume(
        socket: Arc<Socket>,
        tx: Producer<XdpDesc>,
        completion: Consumer<u64>,
        frame_max: usize,
    ) -> Self {
        Self { is_new: true, ..Self::new(socket, tx, completion, Vec::new(), frame_max) }
    }

    /// Begins where the other process has stopped.
    #[cold]
    fn begin(&mut self) {
        let Self { tx, completion, .. } = self;
        tx.resume();
        completion.resume();
        let done = completion.available(1);
        let done = (0..done).map(|offset| completion.get(offset));
        self.free = self.socket.slot().resume_transmit(tx.next(), |at| tx.read(at).addr, done);
        self.is_new = false;
        // The kernel may wait for a call.
        self.stuck = true;
    }

    /// Reclaims the chunks of transmitted frames.
    #[inline]
    fn take_back(&mut self) {
        let umem = self.socket.umem();
        let available = self.completion.available(1);
        let chunks = (0..available).map(|offset| umem.chunk(self.completion.get(offset)));
        let before = self.free.len();
        // The kernel is done with the chunk, but other borrowers of its frame may not be.
        let free = chunks.take_while(|chunk| !umem.is_lent(*chunk));
        self.free.extend(free.inspect(|chunk| umem.set_free(*chunk, true)));
        self.completion.release((self.free.len() - before) as u32);
    }

    /// Puts one frame, the call's `index`th, on the ring. Returns true if there was room.
    #[inline(always)]
    fn push(&mut self, index: usize, frame: &Frame<'_>) -> bool {
        // The kernel would skip it, and never return its chunk.
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
            self.socket.slot().pushed(self.tx.next());
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
            self.socket.slot().pushed(self.tx.next());
            umem.set_free(addr, false);
        }
        true
    }
}

impl Transmit for AfxdpTransmit {
    #[inline]
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        self.lost.begin();
        if self.is_new {
            self.begin();
        }
        self.take_back();
        if self.stuck {
            if let Err(error) = self.socket.wake_transmit(&self.tx) {
                return self.absence.judge(&self.socket, error).map(|()| 0);
            }
            self.absence.over();
        }
        let frames = frames.iter().enumerate();
        let taken = frames.take_while(|(index, frame)| self.push(*index, frame)).count();
        self.tx.submit();
        // Frames on the ring are taken even if the wake-up fails; no more are taken until one
        // succeeds.
        self.stuck = self.socket.wake_transmit(&self.tx).is_err();
        Ok(taken)
    }

    fn frame_max(&self) -> usize {
        self.frame_max
    }

    fn lost(&self) -> &Lost {
        &self.lost
    }
}
