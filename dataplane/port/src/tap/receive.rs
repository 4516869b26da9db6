//! The receiving half of a TAP port.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use arrayvec::ArrayVec;
use rustix::io::Errno;

use super::drops::Drops;
use crate::socket::SLOT_LEN;
use crate::wait::sleep_on;
use crate::{Batch, FRAME_LIMIT, Frame, Receive, Take, Wait};

/// Maximum number of frames per call.
const BATCH: usize = 64;

pub(super) struct TapReceive {
    device: Arc<File>,
    drops: Drops,
    slots: Box<[u8]>,
    /// Slots that hold frames, and the frames' lengths.
    filled: ArrayVec<(usize, usize), BATCH>,
    /// Number of those that were taken.
    taken: usize,
    oversized: u64,
    wait: Wait,
}

impl TapReceive {
    pub(super) fn new(device: Arc<File>, drops: Drops, wait: Wait) -> Self {
        let slots = vec![0; BATCH * SLOT_LEN].into_boxed_slice();
        Self { device, drops, slots, filled: ArrayVec::new(), taken: 0, oversized: 0, wait }
    }

    /// Reads into the slots, all of which are free, until the slots are full or the queue is empty.
    fn fill(&mut self) -> io::Result<()> {
        self.taken = 0;
        self.filled.clear();
        for (slot, room) in self.slots.chunks_exact_mut(SLOT_LEN).enumerate() {
            match rustix::io::read(&*self.device, room) {
                Ok(len) if len <= FRAME_LIMIT => self.filled.push((slot, len)),
                Ok(_) => self.oversized += 1,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Receive for TapReceive {
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize> {
        if self.taken == self.filled.len() {
            self.fill()?;
            if self.filled.is_empty() && self.wait == Wait::Block {
                sleep_on(&[self.device.as_fd()])?;
                self.fill()?;
            }
        }
        let frame = |&(slot, len): &(usize, usize)| {
            Frame::from(&self.slots[slot * SLOT_LEN..slot * SLOT_LEN + len])
        };
        let mut batch = Batch::new();
        batch.extend(self.filled[self.taken..].iter().map(frame));
        if !batch.is_empty() {
            self.taken += take(&batch).min(batch.len());
        }
        Ok(batch.len())
    }

    fn dropped(&self) -> io::Result<u64> {
        Ok(self.drops.count()? + self.oversized)
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.device.as_fd())
    }

    fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }
}
