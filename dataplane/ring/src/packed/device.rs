//! The device side of a packed virtqueue.

use dray_shm::SharedWord;

use crate::chain::{
    Access, AddressSpace, CHAIN_MAX, Chain, Descriptor, INDIRECT, NEXT, Segment, WRITE, Walk,
};
use crate::packed::PackedLayout;
use crate::packed::layout::{EVENTS_AT, EVENTS_OFF, EVENTS_ON, Event, Position, decode};
use crate::progress::{Progress, ProgressCell};
use crate::sync::{Ordering, fence};
use crate::{DeviceQueue, Plain, RingError};

/// The device side of a packed virtqueue.
#[derive(Debug)]
pub struct PackedDevice {
    ring: PackedLayout,
    /// Next descriptor to take.
    next: Position,
    /// Next descriptor to write back.
    used: Position,
    /// Number of descriptors popped and not yet pushed.
    out: u16,
    /// Number of descriptors pushed since the last [`DeviceQueue::publish`]. The driver sees them
    /// at once and may post them again, so this number is not bounded by the ring's size.
    unpublished: u32,
    event_index: bool,
    walk: Walk,
    progress: ProgressCell,
}

impl PackedDevice {
    /// Continues at `base`, a descriptor with its wrap counter in bit 15; everything before it
    /// counts as used.
    ///
    /// # Errors
    /// If `base` is not a descriptor of the ring.
    pub fn new(
        ring: PackedLayout,
        base: u16,
        indirect: bool,
        event_index: bool,
    ) -> Result<Self, RingError> {
        let (next, size) = (Position::from_base(base), ring.size.get());
        if next.at >= size {
            return Err(RingError::NoSuchDescriptor { index: next.at, size });
        }
        ring.set_device_event(Event { at: 0, flags: EVENTS_OFF });
        let (walk, progress) = (Walk::new(indirect), ProgressCell::default());
        Ok(Self { ring, next, used: next, out: 0, unpublished: 0, event_index, walk, progress })
    }

    /// Goes on after a device that may have been killed: `progress` is what it has noted. If the driver
    /// `sends`, the chains that the other device has used and not returned are returned unread.
    ///
    /// # Errors
    /// If that is not where a device can have stopped.
    pub fn resume(
        ring: PackedLayout,
        progress: Progress,
        sends: bool,
        indirect: bool,
        event_index: bool,
    ) -> Result<Self, RingError> {
        let Progress { used, next, step } = progress;
        let size = ring.size;
        let mut device = Self::new(ring, used, indirect, event_index)?;
        let end = Position::from_base(next);
        let no_such = |index| RingError::NoSuchDescriptor { index, size: size.get() };
        let mut rest = device.next.distance(end, size).ok_or(no_such(end.at))?;
        // Shown to the driver before the note was renewed. The driver may have posted them again, which
        // leaves this flag as it is.
        while rest > 0 && device.next.is_passed(ring.flags(device.next.at)) {
            rest = rest.checked_sub(step.max(1)).ok_or(no_such(end.at))?;
            device.next = device.next.forward(step.max(1), size);
        }
        device.used = device.next;
        if !sends {
            // Chains behind the first of several that are shown together cannot be taken back.
            let mut place = device.next;
            for _ in 0..rest {
                if place.is_passed(ring.flags(place.at)) {
                    return Err(RingError::NotTogether { index: place.at });
                }
                place = place.forward(1, size);
            }
            return Ok(device);
        }
        while rest > 0 {
            let (id, slots) = device.skip(rest)?;
            rest -= slots;
            device.next = device.next.forward(slots, size);
            device.out = slots;
            device.put(id, slots, 0);
        }
        device.publish();
        Ok(device)
    }

    /// Returns the identity of the next chain, and its number of descriptors: at most `most`.
    fn skip(&self, most: u16) -> Result<(u16, u16), RingError> {
        let mut place = self.next;
        for slots in 1..=most {
            let Descriptor { flags, tag, .. } = self.ring.descriptor(place.at);
            if slots == 1 && !place.is_available(flags) {
                break;
            }
            if flags & INDIRECT != 0 || flags & NEXT == 0 {
                return Ok((tag, slots));
            }
            place = place.forward(1, self.ring.size);
        }
        let size = self.ring.size.get();
        Err(RingError::IndexJump { from: self.next.at, to: place.at, size })
    }

    /// Returns the number of descriptors that are available, as the driver says, at most
    /// [`size`](Self::size). Reads as many.
    pub fn waiting(&self) -> u16 {
        let mut place = self.next;
        let is_available = |_: &u16| {
            let at = place;
            place = place.forward(1, self.ring.size);
            at.is_available(self.ring.descriptor(at.at).flags)
        };
        (0..self.size()).take_while(is_available).count() as u16
    }

    /// Walks the chain whose first descriptor is `head`; returns its first buffer, its identity and
    /// the number of descriptors that it takes.
    #[cold]
    fn walk<M: AddressSpace>(
        &mut self,
        memory: &M,
        access: Access,
        head: Descriptor,
    ) -> Result<(Segment, u16, u16), RingError> {
        let max = CHAIN_MAX.min(self.ring.size.get() - self.out);
        let too_long = RingError::ChainTooLong { max };
        let (mut first, mut place, mut descriptor) = (None, self.next, head);
        for slots in 1..=max {
            if descriptor.flags & INDIRECT != 0 {
                self.walk_table(memory, access, descriptor, &mut first)?;
                return Ok((first.ok_or(too_long)?, descriptor.tag, slots));
            }
            let segment = self.walk.segment(memory, access, descriptor)?;
            self.walk.keep(&mut first, segment)?;
            if descriptor.flags & NEXT == 0 {
                return Ok((first.ok_or(too_long)?, descriptor.tag, slots));
            }
            place = place.forward(1, self.ring.size);
            // The driver makes a chain available through the flags of its first descriptor, written
            // last.
            descriptor = self.ring.descriptor(place.at);
        }
        Err(too_long)
    }

    /// The whole table is one chain (section 2.8.7); of its entries' flags only WRITE has a
    /// meaning.
    fn walk_table<M: AddressSpace>(
        &mut self,
        memory: &M,
        access: Access,
        descriptor: Descriptor,
        first: &mut Option<Segment>,
    ) -> Result<(), RingError> {
        let (table, entries) = self.walk.table(memory, descriptor)?;
        if entries > CHAIN_MAX {
            return Err(RingError::ChainTooLong { max: CHAIN_MAX });
        }
        for index in 0..entries {
            // SAFETY: the table has `entries` entries, all of them mapped.
            let (low, high) = unsafe { Walk::entry(table, index) };
            let mut entry = decode(low, high);
            if access == Access::Read {
                // DPDK's driver, up to 22.11 at least, sets WRITE on the header of a frame that it
                // transmits. The device does not write there anyway.
                entry.flags &= !WRITE;
            }
            if entry.flags & INDIRECT != 0 {
                return Err(RingError::NestedIndirect);
            }
            let segment = self.walk.segment(memory, access, entry)?;
            self.walk.keep(first, segment)?;
        }
        Ok(())
    }
}

impl PackedDevice {
    /// Returns a chain of `slots` descriptors.
    #[inline(always)]
    fn put(&mut self, id: u16, slots: u16, len: u32) {
        let place = self.pass(slots);
        write(self.ring, place, id, len);
    }

    /// Advances past a chain of `slots` descriptors; returns the place of that chain.
    #[inline(always)]
    fn pass(&mut self, slots: u16) -> Position {
        debug_assert!(slots <= self.out, "more than was popped");
        self.out = self.out.saturating_sub(slots);
        self.unpublished = self.unpublished.saturating_add(slots.into());
        let behind = self.used.forward(slots, self.ring.size);
        std::mem::replace(&mut self.used, behind)
    }
}

/// Shows the driver that the chain `id` at `place` has been used.
#[inline(always)]
fn write(ring: PackedLayout, place: Position, id: u16, len: u32) {
    let written = if len > 0 { WRITE } else { 0 };
    let flags = place.used_flags() | written;
    ring.set_rest(place.at, Descriptor { address: 0, len, flags, tag: id });
}

impl DeviceQueue for PackedDevice {
    fn size(&self) -> u16 {
        self.ring.size.get()
    }

    #[inline(always)]
    fn allow(&mut self, descriptors: u32) {
        self.walk.budget = descriptors;
    }

    #[inline(always)]
    fn pop<M: AddressSpace>(
        &mut self,
        memory: &M,
        access: Access,
    ) -> Result<Option<Chain>, RingError> {
        if self.walk.budget == 0 {
            return Ok(None);
        }
        let head = self.ring.descriptor(self.next.at);
        if !self.next.is_available(head.flags) {
            return Ok(None);
        }
        let size = self.ring.size.get();
        if self.out == size {
            return Err(RingError::Overfull { size });
        }
        self.walk.rest.clear();
        let (first, id, slots) = if head.flags & (NEXT | INDIRECT) == 0 {
            (self.walk.segment(memory, access, head)?, head.tag, 1)
        } else {
            self.walk(memory, access, head)?
        };
        let more = head.flags & (NEXT | INDIRECT) != 0 && !self.walk.rest.is_empty();
        self.next = self.next.forward(slots, self.ring.size);
        self.out += slots;
        Ok(Some(Chain { id, slots, first, more }))
    }

    #[inline(always)]
    fn pop_plain<M: AddressSpace>(
        &mut self,
        memory: &M,
        access: Access,
        most: usize,
        mut take: impl FnMut(Plain) -> bool,
    ) -> Result<bool, RingError> {
        self.walk.rest.clear();
        let mut window = memory.window(self.walk.hint);
        // A copy, so that the compiler knows that the location of the ring does not change.
        let (ring, mut next) = (self.ring, self.next);
        let mut popped = 0;
        let mut odd = false;
        let wanted = most.min(self.walk.budget as usize);
        for _ in 0..wanted {
            let head = ring.descriptor(next.at);
            if !next.is_available(head.flags) {
                break;
            }
            if head.flags & (NEXT | INDIRECT) != 0 {
                odd = true;
                break;
            }
            // The ring holds no more than its size: a driver that posts more has overwritten
            // entries that are still popped.
            if self.out + popped == ring.size.get() {
                return Err(RingError::Overfull { size: ring.size.get() });
            }
            if !take(self.walk.plain(memory, &mut window, access, head, head.tag)?) {
                break;
            }
            next = next.forward(1, ring.size);
            popped += 1;
        }
        self.next = next;
        self.out += popped;
        self.walk.budget -= u32::from(popped);
        Ok(odd)
    }

    #[inline(always)]
    fn push_plain(&mut self, used: impl Iterator<Item = (u16, u32)>) {
        self.progress.note(self.used.to_base(), self.next.to_base(), 1);
        // A local, as in the split device.
        let (ring, mut place) = (self.ring, self.used);
        let mut count = 0;
        for (id, len) in used {
            write(ring, place, id, len);
            place = place.forward(1, ring.size);
            count += 1;
        }
        debug_assert!(count <= self.out, "more than was popped");
        self.used = place;
        self.out = self.out.saturating_sub(count);
        self.unpublished = self.unpublished.saturating_add(count.into());
    }

    fn publish_progress(&mut self, word: SharedWord) {
        self.progress = ProgressCell::at(word);
        self.commit();
    }

    #[inline(always)]
    fn commit(&mut self) {
        self.progress.note(self.used.to_base(), self.next.to_base(), 1);
    }

    fn rest(&self) -> &[Segment] {
        &self.walk.rest
    }

    #[inline(always)]
    fn unpop(&mut self, slots: u16) {
        debug_assert!(slots <= self.out, "more than was popped");
        self.out = self.out.saturating_sub(slots);
        self.next = self.next.back(slots, self.ring.size);
    }

    #[inline(always)]
    fn push(&mut self, chain: &Chain, len: u32) {
        self.progress.note(self.used.to_base(), self.next.to_base(), chain.slots);
        self.put(chain.id, chain.slots, len);
    }

    fn push_together(&mut self, chains: &[(Chain, u32)]) {
        let Some(((first, len), rest)) = chains.split_first() else { return };
        let slots = chains.iter().map(|(chain, _)| chain.slots).sum();
        let end = self.used.forward(slots, self.ring.size);
        self.progress.note(self.used.to_base(), end.to_base(), slots);
        let place = self.pass(first.slots);
        rest.iter().for_each(|(chain, len)| self.put(chain.id, chain.slots, *len));
        // The driver takes chains in order, so it sees none of them before this one.
        write(self.ring, place, first.id, *len);
    }

    #[inline]
    fn publish(&mut self) -> bool {
        let count = std::mem::take(&mut self.unpublished);
        self.commit();
        if count == 0 {
            return false;
        }
        // As in the split device's `publish`.
        fence(Ordering::SeqCst);
        self.used.event_wanted(self.ring.driver_event(), count, self.ring.size)
    }

    fn want_kicks(&mut self, on: bool) -> bool {
        let event = match (on, self.event_index) {
            (false, _) => Event { at: 0, flags: EVENTS_OFF },
            (true, false) => Event { at: 0, flags: EVENTS_ON },
            (true, true) => Event { at: self.next.to_base(), flags: EVENTS_AT },
        };
        self.ring.set_device_event(event);
        fence(Ordering::SeqCst);
        self.next.is_available(self.ring.flags(self.next.at))
    }

    fn base(&self) -> u16 {
        self.next.to_base()
    }
}
