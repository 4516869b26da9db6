//! The driver side of a packed virtqueue.

use arrayvec::ArrayVec;

use crate::chain::{Access, Buffer, Descriptor, NEXT, WRITE};
use crate::ids::Ids;
use crate::packed::PackedLayout;
use crate::packed::layout::{EVENTS_AT, EVENTS_OFF, EVENTS_ON, Event, Position};
use crate::sync::{Ordering, fence};
use crate::{DriverQueue, RingError, Used};

/// The driver side of a packed virtqueue.
#[derive(Debug)]
pub struct PackedDriver {
    ring: PackedLayout,
    /// Identities, of which as many are free as descriptors.
    ids: Ids,
    /// Identity after this one in its chain: the device only sees the first.
    next_id: Box<[u16]>,
    /// Buffer that each identity was last posted with.
    buffers: Box<[Buffer]>,
    /// Next descriptor to write.
    next: Position,
    /// Number of descriptors posted since the last [`DriverQueue::publish`].
    unpublished: u16,
    /// First of the unpublished descriptors. It is written last.
    first: Option<(Position, Descriptor)>,
    /// Next descriptor that the device will write back.
    used: Position,
    event_index: bool,
}

impl PackedDriver {
    /// Creates the driver of a ring whose memory is all zero.
    pub fn new(ring: PackedLayout, event_index: bool) -> Self {
        ring.set_driver_event(Event { at: 0, flags: EVENTS_OFF });
        let size = ring.size.get();
        Self {
            ring,
            ids: Ids::all(ring.size),
            next_id: vec![0; size.into()].into(),
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

    /// Returns the number of chains of one buffer that the device claims to have returned and that
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
        self.ids.copy_to(out);
    }

    #[inline(always)]
    fn post(&mut self, buffers: &[Buffer]) -> Option<u16> {
        let count =
            u16::try_from(buffers.len()).ok().filter(|n| (1..=self.ids.count()).contains(n))?;
        let id = self.ids.at(0);
        for offset in 1..count {
            let before = usize::from(self.ids.at(offset - 1));
            self.next_id[before] = self.ids.at(offset);
        }
        for (offset, buffer) in (0..).zip(buffers) {
            self.buffers[usize::from(self.ids.at(offset))] = *buffer;
        }
        self.ids.take_chain(count);
        self.unpublished += count;
        for (offset, buffer) in (1..).zip(buffers) {
            let next = if offset < count { NEXT } else { 0 };
            let Buffer { address, len, .. } = *buffer;
            let flags = buffer.flags() | next | self.next.available_flag();
            let descriptor = Descriptor { address, len, flags, tag: id };
            if self.first.is_none() {
                // Written by `publish`, after all descriptors that follow it.
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
        // See the split device's `publish`.
        fence(Ordering::SeqCst);
        self.next.event_wanted(self.ring.device_event(), count.into(), self.ring.size)
    }

    #[inline(always)]
    fn poll(&mut self) -> Result<Option<Used>, RingError> {
        // Only what was posted and published can be returned by the device.
        let known = self.ids.in_use() - self.unpublished;
        if known == 0 {
            return Ok(None);
        }
        let Descriptor { len, flags, tag: id, .. } = self.ring.descriptor(self.used.at);
        if !self.used.is_used(flags) {
            return Ok(None);
        }
        let next_id = &self.next_id[..];
        let mut free = self.ids.returning();
        let count = free.put_chain(id, known, |id| next_id[usize::from(id)]);
        let Some(count) = count else { return Err(RingError::NotInFlight { id: id.into() }) };
        free.done();
        self.used = self.used.forward(count, self.ring.size);
        // Without WRITE the length has no meaning (section 2.8.4).
        let len = if flags & WRITE != 0 { len } else { 0 };
        Ok(Some(Used { id, len }))
    }

    #[inline(always)]
    fn poll_each(&mut self, most: usize, mut each: impl FnMut(Used)) -> Result<(), RingError> {
        // Copies, which no store through a pointer can change.
        let (ring, mut used) = (self.ring, self.used);
        let known = self.ids.in_use() - self.unpublished;
        let mut free = self.ids.returning();
        let mut left = most.min(known.into());
        while left > 0 {
            let Descriptor { len, flags, tag: id, .. } = ring.descriptor(used.at);
            if !used.is_used(flags) {
                left = 0;
                break;
            }
            if !free.put(id) {
                break;
            }
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
        self.ids.in_use()
    }

    #[inline(never)] // Its loop needs the registers.
    fn repost(&mut self, count: u16) {
        assert!(count <= self.ids.count(), "more buffers than free descriptors");
        let (ring, mut next, mut first) = (self.ring, self.next, self.first);
        let buffers = &self.buffers[..];
        for part in self.ids.first(count) {
            for &id in part {
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
        self.ids.take(count);
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
