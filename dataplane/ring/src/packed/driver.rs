//! The driver side of a packed virtqueue.

use arrayvec::ArrayVec;

use crate::chain::{Access, Buffer, Descriptor, NEXT, WRITE};
use crate::free::FreeIds;
use crate::packed::PackedLayout;
use crate::packed::layout::{EVENTS_AT, EVENTS_OFF, EVENTS_ON, Event, Position};
use crate::sync::{Ordering, fence};
use crate::{DriverQueue, Lie, Used};

/// The driver side of a packed virtqueue.
#[derive(Debug)]
pub struct PackedDriver {
    ring: PackedLayout,
    /// Free identities, as many as free descriptors.
    free: FreeIds,
    /// Identity after this one in its chain: the device only sees the first.
    next_id: Box<[u16]>,
    /// Number of descriptors of the chain with this identity; 0 if it is not posted.
    out: Box<[u16]>,
    /// Buffer that each identity was last posted with.
    buffers: Box<[Buffer]>,
    /// Next descriptor to write.
    next: Position,
    /// Number of descriptors posted since the last [`DriverQueue::publish`].
    unpublished: u16,
    /// First of the unpublished descriptors, which is written last.
    first: Option<(Position, Descriptor)>,
    /// Next descriptor that the device will write back.
    used: Position,
    event_index: bool,
}

impl PackedDriver {
    /// Creates the driver of a fresh ring whose memory is all zero.
    pub fn new(ring: PackedLayout, event_index: bool) -> Self {
        ring.set_driver_event(Event { at: 0, flags: EVENTS_OFF });
        let size = ring.size.get();
        Self {
            ring,
            free: FreeIds::all(ring.size),
            next_id: vec![0; size.into()].into(),
            out: vec![0; size.into()].into(),
            buffers: vec![Buffer { address: 0, len: 0, access: Access::Read }; size.into()].into(),
            next: Position::START,
            unpublished: 0,
            first: None,
            used: Position::START,
            event_index,
        }
    }

    /// Returns the number of descriptors of the ring.
    pub fn size(&self) -> u16 {
        self.ring.size.get()
    }

    /// Returns the number of chains of one buffer that the device has returned, as it says, and that
    /// were not polled; at most [`size`](Self::size). Reads as many descriptors.
    pub fn waiting(&self) -> u16 {
        let mut place = self.used;
        let is_used = |_: &u16| {
            let at = place;
            place = place.forward(1, self.ring.size);
            at.is_used(self.ring.descriptor(at.at).flags)
        };
        (0..self.in_use()).take_while(is_used).count() as u16
    }
}

impl DriverQueue for PackedDriver {
    #[inline(always)]
    fn ids<const N: usize>(&self, out: &mut ArrayVec<u16, N>) {
        self.free.copy_to(out);
    }

    #[inline(always)]
    fn post(&mut self, buffers: &[Buffer]) -> Option<u16> {
        let count =
            u16::try_from(buffers.len()).ok().filter(|n| (1..=self.free.count()).contains(n))?;
        let id = self.free.at(0);
        for offset in 1..count {
            let before = usize::from(self.free.at(offset - 1));
            self.next_id[before] = self.free.at(offset);
        }
        for (offset, buffer) in (0..).zip(buffers) {
            self.buffers[usize::from(self.free.at(offset))] = *buffer;
        }
        self.free.take(count);
        self.unpublished += count;
        self.out[usize::from(id)] = count;
        for (offset, buffer) in (1..).zip(buffers) {
            let next = if offset < count { NEXT } else { 0 };
            let Buffer { address, len, .. } = *buffer;
            let flags = buffer.flags() | next | self.next.available_flag();
            let descriptor = Descriptor { address, len, flags, tag: id };
            if self.first.is_none() {
                // Held back until everything after it is written.
                self.first = Some((self.next, descriptor));
            } else {
                self.ring.set_descriptor(self.next.at, descriptor);
            }
            self.next = self.next.forward(1, self.ring.size);
        }
        Some(id)
    }

    #[inline]
    fn publish(&mut self) -> bool {
        let Some((place, descriptor)) = self.first.take() else { return false };
        self.ring.set_descriptor(place.at, descriptor);
        let count = std::mem::take(&mut self.unpublished);
        // As in the split driver's `publish`.
        fence(Ordering::SeqCst);
        self.next.event_wanted(self.ring.device_event(), count.into(), self.ring.size)
    }

    #[inline(always)]
    fn poll(&mut self) -> Result<Option<Used>, Lie> {
        // Only what was posted and published can be returned by the device.
        let known = self.ring.size.get() - self.free.count() - self.unpublished;
        if known == 0 {
            return Ok(None);
        }
        let Descriptor { len, flags, tag: id, .. } = self.ring.descriptor(self.used.at);
        if !self.used.is_used(flags) {
            return Ok(None);
        }
        let count = self.out.get_mut(usize::from(id)).map(std::mem::take);
        let Some(count) = count.filter(|count| (1..=known).contains(count)) else {
            return Err(Lie::NotOut { id: id.into() });
        };
        self.used = self.used.forward(count, self.ring.size);
        let mut freed = id;
        for _ in 0..count {
            self.free.put(freed);
            freed = self.next_id[usize::from(freed)];
        }
        // Without WRITE the length has no meaning (section 2.8.4).
        let len = if flags & WRITE != 0 { len } else { 0 };
        Ok(Some(Used { id, len }))
    }

    #[inline(always)]
    fn poll_each(&mut self, most: usize, mut each: impl FnMut(Used)) -> Result<(), Lie> {
        // Locals, so that the compiler knows that no store changes them.
        let (ring, mut used) = (self.ring, self.used);
        let known = ring.size.get() - self.free.count() - self.unpublished;
        let (mut free, out) = (self.free.returning(), &mut self.out[..]);
        let mut left = most.min(known.into());
        while left > 0 {
            let Descriptor { len, flags, tag: id, .. } = ring.descriptor(used.at);
            if !used.is_used(flags) {
                left = 0;
                break;
            }
            let count = out.get_mut(usize::from(id)).filter(|count| **count == 1);
            let Some(count) = count else { break };
            *count = 0;
            free.put(id);
            each(Used { id, len: if flags & WRITE != 0 { len } else { 0 } });
            used = used.forward(1, ring.size);
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
        self.ring.size.get() - self.free.count()
    }

    #[inline(always)]
    fn repost(&mut self, count: u16) {
        assert!(count <= self.free.count(), "more buffers than free descriptors");
        let (ring, mut next, mut first) = (self.ring, self.next, self.first);
        let (out, buffers) = (&mut self.out[..], &self.buffers[..]);
        for part in self.free.first(count) {
            for &id in part {
                out[usize::from(id)] = 1;
                let buffer = buffers[usize::from(id)];
                let Buffer { address, len, .. } = buffer;
                let flags = buffer.flags() | next.available_flag();
                let descriptor = Descriptor { address, len, flags, tag: id };
                if first.is_none() {
                    first = Some((next, descriptor));
                } else {
                    ring.set_descriptor(next.at, descriptor);
                }
                next = next.forward(1, ring.size);
            }
        }
        (self.next, self.first) = (next, first);
        self.free.take(count);
        self.unpublished += count;
    }

    fn want_calls(&mut self, on: bool) -> bool {
        let event = match (on, self.event_index) {
            (false, _) => Event { at: 0, flags: EVENTS_OFF },
            (true, false) => Event { at: 0, flags: EVENTS_ON },
            (true, true) => Event { at: self.used.to_base(), flags: EVENTS_AT },
        };
        self.ring.set_driver_event(event);
        fence(Ordering::SeqCst);
        self.used.is_used(self.ring.flags(self.used.at))
    }
}
