//! A netmap ring: slots that the program and the kernel pass to each other, in order.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::layout::{BUFFER_CHANGED, RingHeader, SLOTS_AT, Slot};
use super::region::{Place, Region, invalid};

/// A mapped ring, used by one half of a port.
///
/// The program owns the slots from `head` to before the kernel's `tail`; what lies in them is
/// received, or free to transmit from. The next [`sync`](super::calls::sync) gives those before
/// `head` to the kernel. One slot always belongs to the kernel.
pub(super) struct Ring {
    region: Arc<Region>,
    header: NonNull<RingHeader>,
    slots: NonNull<Slot>,
    len: u32,
    offset_mask: u64,
    /// First slot of the program.
    head: u32,
}

// SAFETY: a ring is memory that the kernel shares with the owner of this value; all access to it is
// atomic.
unsafe impl Send for Ring {}

/// A copy of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) place: Place,
    pub(super) len: u16,
    pub(super) flags: u16,
}

impl Ring {
    /// Returns transmit ring `index` of the port whose interface lies at `interface_at` in
    /// `region`, or its receive ring if `receives`. Host rings follow those of the interface.
    pub(super) fn open(
        region: &Arc<Region>,
        interface_at: usize,
        index: usize,
        receives: bool,
    ) -> io::Result<Self> {
        let (header, room) = region.ring_header(interface_at, index, receives)?;
        Self::new(region.clone(), header, room)
    }

    /// `header` lies in `region`, `room` bytes before its end.
    fn new(region: Arc<Region>, header: NonNull<RingHeader>, room: usize) -> io::Result<Self> {
        // SAFETY: it lies in the region, and all access to it is atomic.
        let fields = unsafe { header.as_ref() };
        let len = fields.slots.load(Ordering::Relaxed);
        let head = fields.head.load(Ordering::Relaxed);
        let needed = (len as usize).checked_mul(size_of::<Slot>());
        let fits = needed.is_some_and(|needed| needed <= room.saturating_sub(SLOTS_AT));
        if len < 2 || head >= len || !fits {
            return Err(invalid("a ring with more slots than fit"));
        }
        let offset_mask = fields.offset_mask.load(Ordering::Relaxed);
        // SAFETY: there is room for as many slots behind the header.
        let slots = unsafe { header.cast::<u8>().add(SLOTS_AT) }.cast();
        Ok(Self { region, header, slots, len, offset_mask, head })
    }

    pub(super) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Returns the number of slots.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    #[inline(always)]
    fn header(&self) -> &RingHeader {
        // SAFETY: the region is mapped as long as this value lives, and all access to the header is
        // atomic.
        unsafe { self.header.as_ref() }
    }

    /// Returns the slot `index` after the head.
    #[inline(always)]
    fn slot(&self, index: u32) -> &Slot {
        debug_assert!(index < self.len);
        let at = self.head + index;
        let at = if at < self.len { at } else { at - self.len };
        // SAFETY: the number is less than that of the ring's slots, since `head` and `index` are;
        // all access to slots is atomic.
        unsafe { self.slots.add((at % self.len) as usize).as_ref() }
    }

    /// Returns how many slots belong to the program.
    #[inline]
    pub(super) fn available(&self) -> io::Result<u32> {
        let tail = self.header().tail.load(Ordering::Acquire);
        if tail >= self.len {
            return Err(self.overwritten());
        }
        Ok(if tail >= self.head { tail - self.head } else { tail + self.len - self.head })
    }

    #[cold]
    fn overwritten(&self) -> io::Error {
        io::Error::other(format!(
            "another process has overwritten the indices of a ring of {} slots",
            self.len
        ))
    }

    /// Returns a copy of the slot `index` after the head.
    #[inline(always)]
    pub(super) fn read(&self, index: u32) -> Entry {
        let slot = self.slot(index);
        let offset = slot.pointer.load(Ordering::Relaxed) & self.offset_mask;
        Entry {
            place: Place {
                buffer: slot.buffer.load(Ordering::Relaxed),
                // An offset beyond the buffer is found later.
                offset: u32::try_from(offset).unwrap_or(u32::MAX),
            },
            len: slot.len.load(Ordering::Relaxed),
            flags: slot.flags.load(Ordering::Relaxed),
        }
    }

    /// Writes the slot `index` after the head: a frame, or a part of one, of `len` bytes. It begins
    /// at the slot's offset.
    #[inline(always)]
    pub(super) fn write(&self, index: u32, len: usize, flags: u16) {
        let slot = self.slot(index);
        slot.len.store(len as u16, Ordering::Relaxed);
        slot.flags.store(flags, Ordering::Relaxed);
    }

    /// Puts another buffer into the slot `index` after the head.
    #[inline(always)]
    pub(super) fn replace(&self, index: u32, buffer: u32) {
        let slot = self.slot(index);
        slot.buffer.store(buffer, Ordering::Relaxed);
        slot.flags.store(BUFFER_CHANGED, Ordering::Relaxed);
    }

    /// Releases the next `count` slots: the kernel takes them at the next sync.
    #[inline]
    pub(super) fn release(&mut self, count: u32) {
        debug_assert!(count < self.len);
        let head = self.head + count;
        self.head = if head < self.len { head } else { head - self.len };
        self.header().head.store(self.head, Ordering::Release);
        self.header().current.store(self.head, Ordering::Release);
    }

    /// Fails if the kernel has reset the ring, which it does if the indices it finds are invalid.
    pub(super) fn check(&self) -> io::Result<()> {
        let head = self.header().head.load(Ordering::Relaxed);
        if head == self.head { Ok(()) } else { Err(self.overwritten()) }
    }
}
