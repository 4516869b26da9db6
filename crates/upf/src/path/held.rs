//! Packets that are ready and that the port out had no room for.
//!
//! They are copied here, and no more packets are taken until they are gone: so what is too much waits
//! where it came from, whose sender can see that, instead of being lost here.

use arrayvec::ArrayVec;
use dray_port::{FRAME_LIMIT, Frame};

use super::lane::CHUNK;

/// Room for as many packets as are transmitted together.
pub(super) struct Held {
    bytes: Box<[u8]>,
    lens: ArrayVec<usize, CHUNK>,
    /// The first of these have been transmitted.
    sent: usize,
}

impl Held {
    pub(super) fn new() -> Self {
        // Never touched, it takes no memory.
        Self { bytes: vec![0; CHUNK * FRAME_LIMIT].into(), lens: ArrayVec::new(), sent: 0 }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// Keeps copies of `frames`, where there are none yet.
    #[cold]
    pub(super) fn keep(&mut self, frames: &[Frame<'_>]) {
        for (frame, room) in frames.iter().zip(self.bytes.chunks_exact_mut(FRAME_LIMIT)) {
            self.lens.push(frame.copy_into(room));
        }
    }

    /// Those that wait are handed to `transmit`, who returns how many it took; how many bytes those had.
    pub(super) fn release(
        &mut self,
        transmit: impl FnOnce(&[Frame<'_>]) -> usize,
    ) -> (usize, usize) {
        let waiting = self.lens.iter().zip(self.bytes.chunks_exact(FRAME_LIMIT)).skip(self.sent);
        let frames: ArrayVec<Frame<'_>, CHUNK> =
            waiting.map(|(len, bytes)| Frame::from(&bytes[..*len])).collect();
        let taken = transmit(&frames);
        drop(frames);
        let bytes = self.lens[self.sent..][..taken].iter().sum();
        self.sent += taken;
        if self.sent == self.lens.len() {
            self.forget();
        }
        (taken, bytes)
    }

    /// Lets go of all; how many those were.
    pub(super) fn forget(&mut self) -> usize {
        let count = self.lens.len() - self.sent;
        self.lens.clear();
        self.sent = 0;
        count
    }
}
