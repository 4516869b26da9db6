//! The transmitting half of one queue of an AF_XDP port.

use std::io;
use std::sync::Arc;

use rustix::net::xdp::{XdpDesc, XdpDescOptions};

use super::ring::{Consumer, Producer, RING_LEN};
use super::socket::Socket;
use crate::Transmit;
use crate::frame::{self, Frame};

pub(super) struct AfxdpTransmit {
    socket: Arc<Socket>,
    tx: Producer<XdpDesc>,
    completion: Consumer<u64>,
    /// Chunks to copy frames into; the one used last is used next, for it is in the cache.
    free: Vec<u64>,
    frame_max: usize,
}

impl AfxdpTransmit {
    /// `chunks` are those to copy frames into; `frame_max` is in bytes.
    pub(super) fn new(
        socket: Arc<Socket>,
        tx: Producer<XdpDesc>,
        completion: Consumer<u64>,
        chunks: Vec<u64>,
        frame_max: usize,
    ) -> Self {
        Self { socket, tx, completion, free: chunks, frame_max }
    }

    /// Takes back the chunks of frames that have left.
    #[inline]
    fn take_back(&mut self) {
        let umem = self.socket.umem();
        let count = self.completion.available(1);
        self.free.extend((0..count).map(|offset| umem.chunk(self.completion.get(offset))));
        self.completion.release(count);
        // With frames that were moved here come chunks of other sockets, who lack them.
        if self.free.len() > RING_LEN as usize {
            umem.put(self.free.drain(RING_LEN as usize..));
        }
    }

    /// Puts one frame on the ring. Whether there was room.
    #[inline(always)]
    fn push(&mut self, frame: &Frame<'_>) -> bool {
        let umem = self.socket.umem();
        let none = XdpDescOptions::empty();
        let chunk_len = umem.chunk_len();
        let count = frame.len().div_ceil(chunk_len);
        if (self.tx.room(count as u32) as usize) < count {
            return false;
        }
        if let Some(addr) = umem.move_out(frame) {
            self.tx.push(XdpDesc { addr, len: frame.len() as u32, options: none });
            return true;
        }
        if self.free.len() < count {
            return false;
        }
        for at in (0..frame.len()).step_by(chunk_len) {
            let end = (at + chunk_len).min(frame.len());
            let part = frame.part(at..end);
            let addr = self.free.pop().expect("there are as many");
            let to = umem.find(addr, part.len as u32).expect("a chunk of the UMEM");
            // SAFETY: the chunk is ours, and as long as the longest part.
            unsafe { frame::copy(part.start.as_ptr(), to.as_ptr(), part.len) };
            let options = if end < frame.len() { XdpDescOptions::XDP_PKT_CONTD } else { none };
            self.tx.push(XdpDesc { addr, len: part.len as u32, options });
        }
        true
    }
}

impl Transmit for AfxdpTransmit {
    #[inline]
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        self.take_back();
        let taken = frames.iter().take_while(|frame| self.push(frame)).count();
        self.tx.submit();
        self.socket.wake_transmit(&self.tx)?;
        Ok(taken)
    }

    fn frame_max(&self) -> usize {
        self.frame_max
    }
}
