//! The receiving half of a TAP port.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use dray_wire::offload::{Offload, Offloads, VIRTIO_NET_LEN};
use rustix::io::Errno;

use super::drops::Drops;
use crate::frame::OFFLOADED_LIMIT;
use crate::frame::received::{Filled, ReceivedFrames};
use crate::socket::SLOT_LEN;
use crate::wait::sleep_on;
use crate::{FRAME_LIMIT, Receive, Take, Wait, vnet};

/// Maximum number of frames per call.
const BATCH: usize = 64;

/// Maximum length of the unsegmented frames of a call, not counting the last one: they should stay
/// in the second-level cache until they are written.
const TOGETHER: usize = 128 << 10;

/// Frames begin on a cache line.
const LINE: usize = 64;

pub(super) struct TapReceive {
    device: Arc<File>,
    /// The interface's counter, for the first of its queues.
    drops: Option<Drops>,
    /// Offloads that the kernel may leave to the reader; `None` if frames have no virtio-net
    /// header.
    offloads: Option<Offloads>,
    /// Received frames, one after the other.
    arena: Box<[u8]>,
    filled: ReceivedFrames<BATCH>,
    dropped: u64,
    wait: Wait,
}

impl TapReceive {
    pub(super) fn new(
        device: Arc<File>,
        drops: Option<Drops>,
        offloads: Option<Offloads>,
        wait: Wait,
    ) -> Self {
        let len = if offloads.is_some() { TOGETHER + room(true) } else { BATCH * SLOT_LEN };
        let arena = vec![0; len].into_boxed_slice();
        let filled = ReceivedFrames::default();
        Self { device, drops, offloads, arena, filled, dropped: 0, wait }
    }

    /// Reads into the empty arena until it is full or the queue is empty.
    fn fill(&mut self) -> io::Result<()> {
        self.filled.clear();
        let room = room(self.offloads.is_some());
        let mut start = 0;
        while !self.filled.is_full()
            && let Some(room) = self.arena.get_mut(start..start + room)
        {
            let len = match &self.offloads {
                None => rustix::io::read(&*self.device, &mut *room),
                Some(_) => rustix::io::read(&*self.device, &mut room[LINE - VIRTIO_NET_LEN..]),
            };
            let frame = match (len, &self.offloads) {
                (Ok(len), None) if len <= FRAME_LIMIT => {
                    Some(Filled { start, len, offload: Offload::None })
                }
                (Ok(_), None) => None,
                (Ok(len), Some(offloads)) => {
                    vnet::check(&mut room[LINE - VIRTIO_NET_LEN..], len, *offloads)
                        .map(|(len, offload)| Filled { start: start + LINE, len, offload })
                }
                (Err(Errno::AGAIN | Errno::INTR), _) => break,
                (Err(error), _) => return Err(error.into()),
            };
            match frame {
                Some(frame) => {
                    start = (frame.start + frame.len).next_multiple_of(LINE);
                    self.filled.push(frame);
                }
                None => self.dropped += 1,
            }
        }
        Ok(())
    }
}

/// Returns the number of bytes of the arena that a frame may need.
fn room(has_header: bool) -> usize {
    if has_header { LINE + OFFLOADED_LIMIT + 1 } else { SLOT_LEN }
}

impl Receive for TapReceive {
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize> {
        if self.filled.is_empty() {
            self.fill()?;
            if self.filled.is_empty() && self.wait == Wait::Block {
                sleep_on(&[self.device.as_fd()])?;
                self.fill()?;
            }
        }
        Ok(self.filled.lend(&self.arena, take))
    }

    fn missed(&self) -> io::Result<u64> {
        Ok(self.drops.as_ref().map_or(0, Drops::total))
    }

    fn refused(&self) -> u64 {
        self.dropped
    }

    fn devices(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.device.as_fd()]
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.device.as_fd())
    }

    fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }
}
