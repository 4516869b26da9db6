//! The device side of a split virtqueue.

use dray_shm::SharedWord;

use crate::chain::{
    Access, AddressSpace, CHAIN_MAX, Chain, Descriptor, INDIRECT, NEXT, Segment, Walk,
};
use crate::progress::{Progress, ProgressCell};
use crate::split::SplitLayout;
use crate::split::layout::{NO_INTERRUPT, NO_NOTIFY, decode};
use crate::sync::{Ordering, fence};
use crate::{DeviceQueue, Plain, RingError, event_wanted};

/// The device side of a split virtqueue.
#[derive(Debug)]
pub struct SplitDevice {
    ring: SplitLayout,
    /// Next entry of the available ring to take, running.
    next: u16,
    /// The driver's index when it was last read, running.
    available: u16,
    /// Next element of the used ring to write, running.
    used: u16,
    /// Used index that the driver knows.
    published: u16,
    event_index: bool,
    walk: Walk,
    progress: ProgressCell,
}

impl SplitDevice {
    /// Continues at `base`, the next entry of the available ring; everything before it counts as
    /// used.
    pub fn new(ring: SplitLayout, base: u16, indirect: bool, event_index: bool) -> Self {
        let device = Self {
            ring,
            next: base,
            available: base,
            used: base,
            published: base,
            event_index,
            walk: Walk::new(indirect),
            progress: ProgressCell::default(),
        };
        let flags = if event_index { 0 } else { NO_NOTIFY };
        device.ring.used_flags().store(flags.to_le(), Ordering::Relaxed);
        device
    }

    /// Continues after another device, which may have been killed, from its recorded `progress`. If
    /// the driver `sends`, chains that the other device has used but not returned are returned
    /// unread.
    ///
    /// # Errors
    /// If the driver has revoked such chains.
    pub fn resume(
        ring: SplitLayout,
        progress: Progress,
        sends: bool,
        indirect: bool,
        event_index: bool,
    ) -> Result<Self, RingError> {
        let used = Self::used_in_ring(&ring);
        let mut device = Self::new(ring, used, indirect, event_index);
        let size = device.ring.size.get();
        let unreturned = progress.next.wrapping_sub(used);
        // Progress that is older than the used index leaves nothing to return.
        if !sends || unreturned > size {
            return Ok(device);
        }
        if unreturned > device.waiting() {
            return Err(RingError::IndexJump { from: used, to: progress.next, size });
        }
        for _ in 0..unreturned {
            let id = u16::from_le(device.ring.available(device.next).load(Ordering::Acquire));
            device.next = device.next.wrapping_add(1);
            device.push_plain(std::iter::once((in_table(id, size)?, 0)));
        }
        device.available = device.next;
        device.publish();
        Ok(device)
    }

    /// Returns the used index stored in the ring: the point at which a crashed device stopped.
    pub fn used_in_ring(ring: &SplitLayout) -> u16 {
        u16::from_le(ring.used_index().load(Ordering::Relaxed))
    }

    /// Returns the number of chains that the driver claims to have made available; at most
    /// [`size`](Self::size).
    pub fn waiting(&self) -> u16 {
        let index = u16::from_le(self.ring.available_index().load(Ordering::Relaxed));
        index.wrapping_sub(self.next).min(self.size())
    }

    /// Returns true if a chain is available; reads the driver's index again if fewer than `wanted`
    /// are known.
    #[inline(always)]
    fn refresh(&mut self, wanted: u16) -> Result<bool, RingError> {
        if self.available.wrapping_sub(self.next) >= wanted {
            return Ok(true);
        }
        let index = u16::from_le(self.ring.available_index().load(Ordering::Acquire));
        // The driver cannot post again what the device has not returned.
        let size = self.ring.size.get() - self.next.wrapping_sub(self.used);
        if index.wrapping_sub(self.next) > size {
            return Err(RingError::IndexJump { from: self.next, to: index, size });
        }
        self.available = index;
        Ok(index != self.next)
    }
}

#[inline(always)]
fn in_table(index: u16, size: u16) -> Result<u16, RingError> {
    if index < size { Ok(index) } else { Err(RingError::NoSuchDescriptor { index, size }) }
}

/// Adds the buffers of an indirect table, whose entries are linked.
fn walk_table<M: AddressSpace>(
    walk: &mut Walk,
    memory: &M,
    access: Access,
    descriptor: Descriptor,
) -> Result<(), RingError> {
    let (table, size) = walk.table(memory, descriptor)?;
    let mut index = 0;
    for _ in 0..CHAIN_MAX {
        // SAFETY: the table has `size` entries, all of them mapped, and the index is below it.
        let (low, high) = unsafe { Walk::entry(table, in_table(index, size)?) };
        let entry = decode(low, high);
        if entry.flags & INDIRECT != 0 {
            return Err(RingError::NestedIndirect);
        }
        walk.add(memory, access, entry)?;
        if entry.flags & NEXT == 0 {
            return Ok(());
        }
        index = entry.tag;
    }
    Err(RingError::ChainTooLong { max: CHAIN_MAX })
}

impl DeviceQueue for SplitDevice {
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
        if self.walk.budget == 0 || !self.refresh(1)? {
            return Ok(None);
        }
        let id = u16::from_le(self.ring.available(self.next).load(Ordering::Relaxed));
        let (ring, size) = (self.ring, self.size());
        let head = ring.descriptor(in_table(id, size)?);
        self.walk.clear();
        let first = if head.flags & (NEXT | INDIRECT) == 0 {
            self.walk.segment(memory, access, head)?
        } else {
            let next = |last: Descriptor| Ok(ring.descriptor(in_table(last.tag, size)?));
            self.walk.chain(memory, access, head, CHAIN_MAX, next, walk_table)?.0
        };
        self.next = self.next.wrapping_add(1);
        Ok(Some(Chain { id, slots: 1, first, more: !self.rest().is_empty() }))
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
        let wanted = most.min(self.walk.budget as usize);
        if !self.refresh(wanted.min(usize::from(u16::MAX)) as u16)? {
            return Ok(false);
        }
        let most = wanted.min(usize::from(self.available.wrapping_sub(self.next)));
        let mut window = memory.window(self.walk.hint);
        // A copy, which no store through a pointer can change.
        let ring = self.ring;
        let (mut next, mut odd) = (self.next, false);
        for _ in 0..most {
            let id = u16::from_le(ring.available(next).load(Ordering::Relaxed));
            let head = ring.descriptor(in_table(id, self.size())?);
            if head.flags & (NEXT | INDIRECT) != 0 {
                odd = true;
                break;
            }
            if !take(self.walk.plain(memory, &mut window, access, head, id)?) {
                break;
            }
            next = next.wrapping_add(1);
        }
        self.walk.budget -= u32::from(next.wrapping_sub(self.next));
        self.next = next;
        Ok(odd)
    }

    #[inline(always)]
    fn push_plain(&mut self, used: impl Iterator<Item = (u16, u32)>) {
        // A local, written back once: reading a field again after a store for every chain would
        // wait for all earlier stores, and those to the peer's memory are slow.
        let (ring, mut next) = (self.ring, self.used);
        for (id, len) in used {
            debug_assert!(next != self.next, "more than was popped");
            ring.set_used(next, u32::from(id).to_le(), len.to_le());
            next = next.wrapping_add(1);
        }
        self.used = next;
    }

    fn publish_progress(&mut self, word: SharedWord) {
        self.progress = ProgressCell::at(word);
        self.progress.record(self.used, self.next, 1);
    }

    #[inline(always)]
    fn commit(&mut self) {
        self.progress.record(self.used, self.next, 1);
    }

    fn rest(&self) -> &[Segment] {
        self.walk.rest()
    }

    #[inline(always)]
    fn unpop(&mut self, slots: u16) {
        debug_assert!(slots <= self.next.wrapping_sub(self.used), "more than was popped");
        self.next = self.next.wrapping_sub(slots);
    }

    #[inline(always)]
    fn push(&mut self, chain: &Chain, len: u32) {
        self.push_plain(std::iter::once((chain.id, len)));
    }

    fn push_together(&mut self, chains: &[(Chain, u32)]) {
        // No chain is visible to the driver before the index is published.
        chains.iter().for_each(|(chain, len)| self.push(chain, *len));
    }

    #[inline]
    fn publish(&mut self) -> bool {
        if self.used == self.published {
            self.progress.record(self.used, self.next, 1);
            return false;
        }
        let before = self.published;
        self.published = self.used;
        self.ring.used_index().store(self.used.to_le(), Ordering::Release);
        // The request for an event must be read after the index is visible, or both sides would
        // sleep: the driver stores its request, then reads the index.
        fence(Ordering::SeqCst);
        self.progress.record(self.used, self.next, 1);
        if self.event_index {
            let event = u16::from_le(self.ring.used_event().load(Ordering::Relaxed));
            event_wanted(event, self.used, before)
        } else {
            u16::from_le(self.ring.available_flags().load(Ordering::Relaxed)) & NO_INTERRUPT == 0
        }
    }

    fn want_kicks(&mut self, on: bool) -> bool {
        if self.event_index {
            // The event index cannot express "never"; the index that was just passed is the best
            // approximation.
            let event = if on { self.next } else { self.next.wrapping_sub(1) };
            self.ring.available_event().store(event.to_le(), Ordering::Relaxed);
        } else {
            let flags = if on { 0 } else { NO_NOTIFY };
            self.ring.used_flags().store(flags.to_le(), Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        // A protocol violation counts as work: the next pop reports it.
        self.refresh(1).unwrap_or(true)
    }

    fn base(&self) -> u16 {
        self.next
    }
}
