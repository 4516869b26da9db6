//! The driver side of a split virtqueue.

use arrayvec::ArrayVec;

use crate::chain::{Buffer, Descriptor, NEXT};
use crate::ids::Ids;
use crate::split::SplitLayout;
use crate::split::layout::{NO_INTERRUPT, NO_NOTIFY};
use crate::sync::{Ordering, fence};
use crate::{DriverQueue, RingError, Used, event_wanted};

/// The driver side of a split virtqueue.
#[derive(Debug)]
pub struct SplitDriver {
    ring: SplitLayout,
    /// Indices of the descriptors, free or posted.
    ids: Ids,
    /// Content of the descriptor table and the available ring: only entries that change are
    /// written.
    descriptors: Box<[Descriptor]>,
    available: Box<[u16]>,
    /// Next entry of the available ring to write, running.
    next: u16,
    /// Available index that the device knows.
    published: u16,
    /// Next element of the used ring to take, running.
    used: u16,
    /// The device's index when it was last read, running.
    used_seen: u16,
    event_index: bool,
}

impl SplitDriver {
    /// Creates the driver of a ring whose memory is all zero.
    pub fn new(ring: SplitLayout, event_index: bool) -> Self {
        let size = ring.size.get();
        let flags = if event_index { 0 } else { NO_INTERRUPT };
        ring.available_flags().store(flags.to_le(), Ordering::Relaxed);
        // No descriptor of this driver equals this one, so each is written at least once.
        let unset = Descriptor { tag: u16::MAX, ..Descriptor::default() };
        Self {
            ring,
            ids: Ids::all(ring.size),
            descriptors: vec![unset; size.into()].into(),
            available: vec![u16::MAX; size.into()].into(),
            next: 0,
            published: 0,
            used: 0,
            used_seen: 0,
            event_index,
        }
    }

    /// Returns the number of entries of the ring.
    pub fn size(&self) -> u16 {
        self.ring.size.get()
    }

    /// Returns the number of chains that the device claims to have returned and that were not
    /// polled; at most [`size`](Self::size).
    pub fn waiting(&self) -> u16 {
        let index = u16::from_le(self.ring.used_index().load(Ordering::Relaxed));
        index.wrapping_sub(self.used).min(self.size())
    }

    #[inline(always)]
    fn set_descriptor(&mut self, index: u16, descriptor: Descriptor) {
        let known = &mut self.descriptors[usize::from(index)];
        if *known != descriptor {
            *known = descriptor;
            self.ring.set_descriptor(index, descriptor);
        }
    }

    /// Returns true if a chain was used that has not been polled.
    #[inline(always)]
    fn refresh(&mut self) -> Result<bool, RingError> {
        let index = u16::from_le(self.ring.used_index().load(Ordering::Acquire));
        // The device cannot have used more than was published.
        let out = self.published.wrapping_sub(self.used);
        if index.wrapping_sub(self.used) > out {
            return Err(RingError::IndexJump { from: self.used, to: index, size: out });
        }
        self.used_seen = index;
        Ok(index != self.used)
    }
}

impl DriverQueue for SplitDriver {
    #[inline(always)]
    fn ids<const N: usize>(&self, out: &mut ArrayVec<u16, N>) {
        self.ids.copy_to(out);
    }

    #[inline(always)]
    fn post(&mut self, buffers: &[Buffer]) -> Option<u16> {
        let count =
            u16::try_from(buffers.len()).ok().filter(|n| (1..=self.ids.count()).contains(n))?;
        let head = self.ids.at(0);
        for (offset, buffer) in (0..).zip(buffers) {
            let index = self.ids.at(offset);
            let (next, tag) =
                if offset + 1 < count { (NEXT, self.ids.at(offset + 1)) } else { (0, 0) };
            let Buffer { address, len, .. } = *buffer;
            self.set_descriptor(
                index,
                Descriptor { address, len, flags: buffer.flags() | next, tag },
            );
        }
        self.ids.take_chain(count);
        let known = &mut self.available[self.ring.size.slot(self.next)];
        if *known != head {
            *known = head;
            self.ring.available(self.next).store(head.to_le(), Ordering::Relaxed);
        }
        self.next = self.next.wrapping_add(1);
        Some(head)
    }

    #[inline]
    fn publish(&mut self) -> bool {
        if self.next == self.published {
            return false;
        }
        let before = self.published;
        self.published = self.next;
        self.ring.available_index().store(self.next.to_le(), Ordering::Release);
        // See the device's `publish`.
        fence(Ordering::SeqCst);
        if self.event_index {
            let event = u16::from_le(self.ring.available_event().load(Ordering::Relaxed));
            event_wanted(event, self.next, before)
        } else {
            u16::from_le(self.ring.used_flags().load(Ordering::Relaxed)) & NO_NOTIFY == 0
        }
    }

    #[inline(always)]
    fn poll(&mut self) -> Result<Option<Used>, RingError> {
        if self.used == self.used_seen && !self.refresh()? {
            return Ok(None);
        }
        let (id, len) = self.ring.used(self.used);
        let (id, len) = (u32::from_le(id), u32::from_le(len));
        let Ok(head) = u16::try_from(id) else { return Err(RingError::NotInFlight { id }) };
        let descriptors = &self.descriptors[..];
        let mut free = self.ids.returning();
        let count =
            free.put_chain(head, self.ring.size.get(), |id| descriptors[usize::from(id)].tag);
        if count.is_none() {
            return Err(RingError::NotInFlight { id });
        }
        free.done();
        self.used = self.used.wrapping_add(1);
        Ok(Some(Used { id: head, len }))
    }

    #[inline(always)]
    fn poll_each(&mut self, most: usize, mut each: impl FnMut(Used)) -> Result<(), RingError> {
        if !self.refresh()? {
            return Ok(());
        }
        // Copies, as in `repost`.
        let (ring, mut used) = (self.ring, self.used);
        let mut free = self.ids.returning();
        let most = most.min(self.used_seen.wrapping_sub(used).into());
        let mut left = most;
        while left > 0 {
            let (id, len) = ring.used(used);
            let (id, len) = (u32::from_le(id), u32::from_le(len));
            let Some(id) = u16::try_from(id).ok().filter(|id| free.put(*id)) else { break };
            each(Used { id, len });
            used = used.wrapping_add(1);
            left -= 1;
        }
        free.done();
        self.used = used;
        // Anything but a valid chain of one buffer takes the general path.
        for _ in 0..left {
            let Some(used) = self.poll()? else { break };
            each(used);
        }
        Ok(())
    }

    fn in_use(&self) -> u16 {
        self.ids.in_use()
    }

    #[inline(never)] // Its loop needs the registers.
    fn repost(&mut self, count: u16) {
        assert!(count <= self.ids.count(), "more buffers than free descriptors");
        // Copies, which no store through a pointer can change.
        let (ring, mut next) = (self.ring, self.next);
        let available = &mut self.available[..];
        for part in self.ids.first(count) {
            for &id in part {
                let known = &mut available[ring.size.slot(next)];
                if *known != id {
                    *known = id;
                    ring.available(next).store(id.to_le(), Ordering::Relaxed);
                }
                next = next.wrapping_add(1);
            }
        }
        self.next = next;
        self.ids.take(count);
    }

    fn want_calls(&mut self, on: bool) -> bool {
        if self.event_index {
            let event = if on { self.used } else { self.used.wrapping_sub(1) };
            self.ring.used_event().store(event.to_le(), Ordering::Relaxed);
        } else {
            let flags = if on { 0 } else { NO_INTERRUPT };
            self.ring.available_flags().store(flags.to_le(), Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        let index = u16::from_le(self.ring.used_index().load(Ordering::Acquire));
        index != self.used
    }
}
