//! The transmitting half of one ring pair.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use dray_wire::ethernet::ETHERNET_LEN;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::calls::Direction;
use super::layout::{BUFFER_CHANGED, MORE_FRAGMENTS};
use super::registration::Registration;
use super::ring::{Entry, Ring};
use super::uri::Kind;
use crate::frame::Frame;
use crate::lost::{Loss, Lost};
use crate::{PATIENCE, Transmit};

pub(super) struct NetmapTransmit {
    ring: Ring,
    registration: Arc<Registration>,
    kind: Kind,
    frame_max: usize,
    /// True if a call may wait for the kernel or the peer.
    waits: bool,
    /// True if the buffers of received frames may be put on the ring.
    swaps: bool,
    lost: Lost,
    /// Number of frames of the present call that are done with.
    done: usize,
}

impl NetmapTransmit {
    /// `frame_max` is in bytes.
    pub(super) fn new(
        registration: Arc<Registration>,
        ring: Ring,
        kind: Kind,
        frame_max: usize,
    ) -> Self {
        Self {
            ring,
            registration,
            kind,
            frame_max,
            waits: true,
            swaps: true,
            lost: Lost::new(),
            done: 0,
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.registration.sync(Direction::Transmit)?;
        self.ring.check()
    }

    /// Puts as many of `frames` into slots as there is room for; returns how many.
    #[inline]
    pub(super) fn push_all(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        let available = self.ring.available()?;
        let (mut taken, mut used) = (0, 0);
        for frame in frames {
            let Some(slots) = self.push(frame, used, available) else { break };
            used += slots;
            taken += 1;
            self.done += 1;
        }
        if used > 0 {
            self.ring.release(used);
        }
        Ok(taken)
    }

    /// Puts one frame into the slots from `first` after the head on, of `available` slots. Returns
    /// how many it took, or `None` if there is no room.
    #[inline(always)]
    fn push(&mut self, frame: &Frame<'_>, first: u32, available: u32) -> Option<u32> {
        let len = frame.len();
        if len < ETHERNET_LEN || !frame.fits(self.frame_max) {
            self.lost.add(self.done, Loss::Undeliverable);
            return Some(0);
        }
        if first == available {
            return None;
        }
        let region = self.ring.region();
        let Entry { place: own, .. } = self.ring.read(first);
        if region.is_lent(own.buffer) {
            // The frame that it had when it was sent is still lent.
            return None;
        }
        if self.swaps
            && let Some(buffer) = region.exchange(frame, own)
        {
            self.ring.replace(first, buffer);
            self.ring.write(first, len, BUFFER_CHANGED);
            return Some(1);
        }
        let room = region.buffer_len().saturating_sub(own.offset as usize);
        if len <= room
            && let Some(to) = region.find(own, len)
        {
            // SAFETY: the buffer belongs to our slot, and has room for the frame.
            unsafe { frame.copy_to(to) };
            self.ring.write(first, len, 0);
            return Some(1);
        }
        self.push_parts(frame, first, available)
    }

    /// Like [`push`](Self::push), for a frame that needs several buffers.
    #[cold]
    fn push_parts(&mut self, frame: &Frame<'_>, first: u32, available: u32) -> Option<u32> {
        let region = self.ring.region();
        let len = frame.len();
        let mut at = 0;
        let mut used = 0;
        while at < len {
            let index = first + used;
            if index >= available {
                let is_free = available + 1 >= self.ring.len();
                // A frame that is longer than the empty ring never finds room.
                if !is_free || first > 0 {
                    return None;
                }
                self.lost.add(self.done, Loss::TooLong);
                return Some(0);
            }
            let own = self.ring.read(index).place;
            if region.is_lent(own.buffer) {
                return None;
            }
            let part = (len - at).min(region.buffer_len().saturating_sub(own.offset as usize));
            let chains = matches!(self.kind, Kind::Vale | Kind::Pipe) || part == len;
            let to = region.find(own, part).filter(|_| chains && part > 0);
            let Some(to) = to else {
                // The slot is unusable, or the port has no frames of several buffers.
                self.lost.add(self.done, Loss::TooLong);
                return Some(0);
            };
            // SAFETY: the buffer belongs to our slot, and has room for this part.
            unsafe { frame.copy_part(at..at + part, to) };
            at += part;
            let flags = if at < len { MORE_FRAGMENTS } else { 0 };
            self.ring.write(index, part, flags);
            used += 1;
        }
        Some(used)
    }

    /// Waits until the ring has room, for at most [`PATIENCE`].
    #[cold]
    fn wait(&self) -> io::Result<()> {
        let patience = Timespec { tv_sec: 0, tv_nsec: PATIENCE.subsec_nanos().into() };
        let fd = self.registration.as_fd();
        match poll(&mut [PollFd::new(&fd, PollFlags::OUT)], Some(&patience)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Transmit for NetmapTransmit {
    #[inline]
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        self.lost.begin();
        self.done = 0;
        let mut taken = self.push_all(frames)?;
        self.sync()?;
        let mut waited = !self.waits;
        while taken < frames.len() {
            let more = self.push_all(&frames[taken..])?;
            taken += more;
            if more > 0 {
                self.sync()?;
            } else if waited {
                break;
            } else {
                waited = true;
                self.wait()?;
                self.ring.check()?;
            }
        }
        Ok(taken)
    }

    fn frame_max(&self) -> usize {
        self.frame_max
    }

    fn never_wait(&mut self) {
        self.waits = false;
        // The other end of a pipe gets the buffer itself, and may have others write to it while the
        // frame is still lent to further ports.
        self.swaps = self.kind != Kind::Pipe;
    }

    fn pending(&mut self) -> usize {
        // VALE and the host take frames at once; those in a pipe reach its other end even if this
        // one is closed.
        if self.kind != Kind::Interface || self.sync().is_err() {
            return 0;
        }
        self.ring.available().map_or(0, |free| (self.ring.len() - 1 - free) as usize)
    }

    fn lost(&self) -> &Lost {
        &self.lost
    }
}
