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
    popped: u16,
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
        Ok(Self { ring, next, used: next, popped: 0, unpublished: 0, event_index, walk, progress })
    }

    /// Continues after another device, which may have been killed, from its recorded `progress`. If
    /// the driver `sends`, chains that the other device has used but not returned are returned
    /// unread.
    ///
    /// # Errors
    /// If no device can have stopped at this position.
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
        // Returned before the progress was updated. The driver may have posted them again, which
        // leaves this flag unchanged.
        while rest > 0 && device.next.is_passed(ring.flags(device.next.at)) {
            rest = rest.checked_sub(step.max(1)).ok_or(no_such(end.at))?;
            device.next = device.next.forward(step.max(1), size);
        }
        device.used = device.next;
        if !sends {
            // Chains after the first of several that are returned together cannot be revoked.
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
            device.popped = slots;
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

    /// Returns the number of descriptors that the driver claims to have made available; at most
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

    /// Returns a chain of `slots` descriptors.
    #[inline(always)]
    fn put(&mut self, id: u16, slots: u16, len: u32) {
        let place = self.pass(slots);
        write(self.ring, place, id, len);
    }

    /// Advances past a chain of `slots` descriptors; returns the place of that chain.
    #[inline(always)]
    fn pass(&mut self, slots: u16) -> Position {
        debug_assert!(slots <= self.popped, "more than was popped");
        self.popped = self.popped.saturating_sub(slots);
        self.unpublished = self.unpublished.saturating_add(slots.into());
        let behind = self.used.forward(slots, self.ring.size);
        std::mem::replace(&mut self.used, behind)
    }
}

/// Adds the buffers of an indirect table, all of which are one chain (section 2.8.7); of the
/// entries' flags only WRITE has a meaning.
fn walk_table<M: AddressSpace>(
    walk: &mut Walk,
    memory: &M,
    access: Access,
    descriptor: Descriptor,
) -> Result<(), RingError> {
    let (table, entries) = walk.table(memory, descriptor)?;
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
        walk.add(memory, access, entry)?;
    }
    Ok(())
}

/// Marks the chain `id` at `place` as used.
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
    fn set_budget(&mut self, descriptors: u32) {
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
        if self.popped == size {
            return Err(RingError::Overfull { size });
        }
        self.walk.clear();
        let (first, id, slots) = if head.flags & (NEXT | INDIRECT) == 0 {
            (self.walk.segment(memory, access, head)?, head.tag, 1)
        } else {
            let (ring, mut place) = (self.ring, self.next);
            // The driver makes a chain available by the flags of its first descriptor, written
            // last.
            let next = |_| {
                place = place.forward(1, ring.size);
                Ok(ring.descriptor(place.at))
            };
            let max = CHAIN_MAX.min(size - self.popped);
            self.walk.chain(memory, access, head, max, next, walk_table)?
        };
        self.next = self.next.forward(slots, self.ring.size);
        self.popped += slots;
        Ok(Some(Chain { id, slots, first, more: !self.rest().is_empty() }))
    }

    #[inline(always)]
    fn pop_plain<M: AddressSpace>(
        &mut self,
        memory: &M,
        access: Access,
        most: usize,
        mut take: impl FnMut(Plain) -> bool,
    ) -> Result<bool, RingError> {
        self.walk.clear();
        let mut window = memory.window(self.walk.hint);
        // A copy, which no store through a pointer can change.
        let (ring, mut next) = (self.ring, self.next);
        let mut count = 0;
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
            // entries that have not been pushed.
            if self.popped + count == ring.size.get() {
                return Err(RingError::Overfull { size: ring.size.get() });
            }
            if !take(self.walk.plain(memory, &mut window, access, head, head.tag)?) {
                break;
            }
            next = next.forward(1, ring.size);
            count += 1;
        }
        self.next = next;
        self.popped += count;
        self.walk.budget -= u32::from(count);
        Ok(odd)
    }

    #[inline(always)]
    fn push_plain(&mut self, used: impl Iterator<Item = (u16, u32)>) {
        self.progress.record(self.used.to_base(), self.next.to_base(), 1);
        // A local, written back once, as in the split device.
        let (ring, mut place) = (self.ring, self.used);
        let mut count = 0;
        for (id, len) in used {
            write(ring, place, id, len);
            place = place.forward(1, ring.size);
            count += 1;
        }
        debug_assert!(count <= self.popped, "more than was popped");
        self.used = place;
        self.popped = self.popped.saturating_sub(count);
        self.unpublished = self.unpublished.saturating_add(count.into());
    }

    fn publish_progress(&mut self, word: SharedWord) {
        self.progress = ProgressCell::at(word);
        self.commit();
    }

    #[inline(always)]
    fn commit(&mut self) {
        self.progress.record(self.used.to_base(), self.next.to_base(), 1);
    }

    fn rest(&self) -> &[Segment] {
        self.walk.rest()
    }

    #[inline(always)]
    fn unpop(&mut self, slots: u16) {
        debug_assert!(slots <= self.popped, "more than was popped");
        self.popped = self.popped.saturating_sub(slots);
        self.next = self.next.back(slots, self.ring.size);
    }

    #[inline(always)]
    fn push(&mut self, chain: &Chain, len: u32) {
        self.progress.record(self.used.to_base(), self.next.to_base(), chain.slots);
        self.put(chain.id, chain.slots, len);
    }

    fn push_together(&mut self, chains: &[(Chain, u32)]) {
        let Some(((first, len), rest)) = chains.split_first() else { return };
        let slots = chains.iter().map(|(chain, _)| chain.slots).sum();
        let end = self.used.forward(slots, self.ring.size);
        self.progress.record(self.used.to_base(), end.to_base(), slots);
        let place = self.pass(first.slots);
        rest.iter().for_each(|(chain, len)| self.put(chain.id, chain.slots, *len));
        // The driver takes chains in order, so none of them is visible to it before this one.
        write(self.ring, place, first.id, *len);
    }

    #[inline]
    fn publish(&mut self) -> bool {
        let count = std::mem::take(&mut self.unpublished);
        self.commit();
        if count == 0 {
            return false;
        }
        // See the split device's `publish`.
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
