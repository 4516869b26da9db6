//! Memory layout of a packed virtqueue.
//!
//! ```text
//! descriptor ring          16 bytes each: address u64 | len u32 | id u16 | flags u16
//! driver event suppression offset and wrap u16 | flags u16      (driver writes)
//! device event suppression offset and wrap u16 | flags u16      (device writes)
//! ```

use std::ptr::NonNull;

use crate::QueueSize;
#[cfg(not(loom))]
use crate::align::{AlignError, aligned};
use crate::chain::Descriptor;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Set when made available in a round whose wrap counter is 1.
pub(crate) const AVAILABLE: u16 = 1 << 7;
/// Set when used in a round whose wrap counter is 1.
pub(crate) const USED: u16 = 1 << 15;

/// Event suppression: all events, no events, or an event at a given descriptor.
pub(crate) const EVENTS_ON: u16 = 0;
pub(crate) const EVENTS_OFF: u16 = 1;
pub(crate) const EVENTS_AT: u16 = 2;

/// A descriptor as its two words. The second one has the flags: it is written last, in one store.
#[repr(C, align(16))]
pub(crate) struct DescriptorCell {
    address: AtomicU64,
    rest: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<DescriptorCell>() == 16);

/// Pointers to all parts of a packed virtqueue, which are aligned and mapped.
#[derive(Clone, Copy, Debug)]
pub struct PackedLayout {
    pub(crate) size: QueueSize,
    descriptors: NonNull<DescriptorCell>,
    driver_event: NonNull<AtomicU32>,
    device_event: NonNull<AtomicU32>,
}

// SAFETY: the pointers point to atomics, which any thread may access.
unsafe impl Send for PackedLayout {}

#[cfg(not(loom))]
impl PackedLayout {
    /// Returns the size of the descriptor ring in bytes.
    pub fn descriptors_len(size: QueueSize) -> usize {
        usize::from(size.get()) * 16
    }

    /// Size of each of the two event suppression structures, in bytes.
    pub const EVENT_LEN: usize = 4;

    /// Creates the layout of a ring whose three parts begin at the given addresses.
    ///
    /// # Errors
    /// If a part is not aligned as section 2.8 requires (16, 4 and 4 bytes).
    ///
    /// # Safety
    /// Each part must be mapped, readable and writable, for the number of bytes given above, as
    /// long as any copy of the layout is used.
    pub unsafe fn new(
        size: QueueSize,
        descriptors: NonNull<u8>,
        driver_event: NonNull<u8>,
        device_event: NonNull<u8>,
    ) -> Result<Self, AlignError> {
        aligned("descriptor ring", descriptors, 16)?;
        aligned("driver event suppression", driver_event, 4)?;
        aligned("device event suppression", device_event, 4)?;
        Ok(Self {
            size,
            descriptors: descriptors.cast(),
            driver_event: driver_event.cast(),
            device_event: device_event.cast(),
        })
    }
}

/// An event suppression structure, read and written in one access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Descriptor at which an event is wanted, its wrap counter in bit 15.
    pub(crate) at: u16,
    pub(crate) flags: u16,
}

impl Event {
    fn load(cell: &AtomicU32) -> Self {
        let value = u32::from_le(cell.load(Ordering::Relaxed));
        Self { at: value as u16, flags: (value >> 16) as u16 & 3 }
    }

    fn store(self, cell: &AtomicU32) {
        let value = u32::from(self.at) | u32::from(self.flags) << 16;
        cell.store(value.to_le(), Ordering::Relaxed);
    }
}

// SAFETY of every `as_ref` and `add` below: the pointers are valid by the contract of `new`, and
// positions are below the size.
impl PackedLayout {
    #[inline(always)]
    fn cell(&self, at: u16) -> &DescriptorCell {
        debug_assert!(at < self.size.get());
        // SAFETY: see above.
        unsafe { self.descriptors.add(usize::from(at)).as_ref() }
    }

    /// Reads the descriptor at `at`, flags first with acquire ordering: stores before the flags are
    /// visible afterwards.
    #[inline(always)]
    pub(crate) fn descriptor(&self, at: u16) -> Descriptor {
        let cell = self.cell(at);
        let rest = cell.rest.load(Ordering::Acquire);
        decode(cell.address.load(Ordering::Relaxed), rest)
    }

    /// Reads the flags of the descriptor at `at`, with acquire ordering: stores before the flags
    /// are visible afterwards.
    #[inline(always)]
    pub(crate) fn flags(&self, at: u16) -> u16 {
        (u64::from_le(self.cell(at).rest.load(Ordering::Acquire)) >> 48) as u16
    }

    /// Writes the descriptor at `at`, its flags last.
    #[inline(always)]
    pub(crate) fn set_descriptor(&self, at: u16, descriptor: Descriptor) {
        let cell = self.cell(at);
        cell.address.store(descriptor.address.to_le(), Ordering::Relaxed);
        self.set_rest(at, descriptor);
    }

    /// Writes the descriptor at `at` except for its address.
    #[inline(always)]
    pub(crate) fn set_rest(&self, at: u16, descriptor: Descriptor) {
        let Descriptor { len, flags, tag, .. } = descriptor;
        let rest = u64::from(len) | u64::from(tag) << 32 | u64::from(flags) << 48;
        self.cell(at).rest.store(rest.to_le(), Ordering::Release);
    }

    pub(crate) fn driver_event(&self) -> Event {
        // SAFETY: see above.
        Event::load(unsafe { self.driver_event.as_ref() })
    }

    pub(crate) fn set_driver_event(&self, event: Event) {
        // SAFETY: see above.
        event.store(unsafe { self.driver_event.as_ref() });
    }

    pub(crate) fn device_event(&self) -> Event {
        // SAFETY: see above.
        Event::load(unsafe { self.device_event.as_ref() })
    }

    pub(crate) fn set_device_event(&self, event: Event) {
        // SAFETY: see above.
        event.store(unsafe { self.device_event.as_ref() });
    }
}

/// Decodes the two words of a packed descriptor.
#[inline(always)]
pub(crate) fn decode(address: u64, rest: u64) -> Descriptor {
    let (address, rest) = (u64::from_le(address), u64::from_le(rest));
    Descriptor { address, len: rest as u32, tag: (rest >> 32) as u16, flags: (rest >> 48) as u16 }
}

/// A position in a packed ring: a descriptor index, and the wrap counter of the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) at: u16,
    pub(crate) wrap: bool,
}

impl Position {
    pub(crate) const START: Self = Self { at: 0, wrap: true };

    /// Decodes a vring base, with the wrap counter in bit 15.
    pub(crate) fn from_base(base: u16) -> Self {
        Self { at: base & 0x7fff, wrap: base & 0x8000 != 0 }
    }

    pub(crate) fn to_base(self) -> u16 {
        self.at | u16::from(self.wrap) << 15
    }

    /// Returns the place `count` descriptors further on; `count` is at most `size`.
    #[inline(always)]
    pub(crate) fn forward(self, count: u16, size: QueueSize) -> Self {
        let size = size.get();
        // Both are at most 32768, so the sum takes up to 17 bits.
        let at = u32::from(self.at) + u32::from(count);
        if at >= size.into() {
            Self { at: (at - u32::from(size)) as u16, wrap: !self.wrap }
        } else {
            Self { at: at as u16, wrap: self.wrap }
        }
    }

    /// Returns the place `count` descriptors back; `count` is at most `size`.
    #[inline(always)]
    pub(crate) fn back(self, count: u16, size: QueueSize) -> Self {
        if count > self.at {
            Self { at: self.at + (size.get() - count), wrap: !self.wrap }
        } else {
            Self { at: self.at - count, wrap: self.wrap }
        }
    }

    /// Returns true if a descriptor with these flags has been made available in this place's round.
    #[inline(always)]
    pub(crate) fn is_available(self, flags: u16) -> bool {
        (flags & AVAILABLE != 0) == self.wrap && (flags & USED != 0) != self.wrap
    }

    /// Returns true if a descriptor with these flags has been used in this place's round, and
    /// perhaps made available again since.
    pub(crate) fn is_passed(self, flags: u16) -> bool {
        (flags & USED != 0) == self.wrap
    }

    /// Returns the number of descriptors from here to `end`; `None` if that is more than the ring
    /// has.
    pub(crate) fn distance(self, end: Self, size: QueueSize) -> Option<u16> {
        let size = size.get();
        let distance = match (self.wrap == end.wrap, end.at < size) {
            (_, false) => None,
            (true, true) => end.at.checked_sub(self.at),
            (false, true) => Some(end.at + (size - self.at)),
        };
        distance.filter(|distance| *distance <= size)
    }

    /// Returns true if a descriptor with these flags has been used in this place's round.
    #[inline(always)]
    pub(crate) fn is_used(self, flags: u16) -> bool {
        (flags & AVAILABLE != 0) == self.wrap && (flags & USED != 0) == self.wrap
    }

    /// Returns the flag that makes a descriptor available here.
    #[inline(always)]
    pub(crate) fn available_flag(self) -> u16 {
        if self.wrap { AVAILABLE } else { USED }
    }

    /// Returns the flags that mark a descriptor as used here.
    #[inline(always)]
    pub(crate) fn used_flags(self) -> u16 {
        if self.wrap { AVAILABLE | USED } else { 0 }
    }

    /// Returns true if an event was requested at one of the `count` descriptors before this place.
    #[inline(always)]
    pub(crate) fn event_wanted(self, event: Event, count: u32, size: QueueSize) -> bool {
        match event.flags {
            EVENTS_OFF => false,
            EVENTS_AT => {
                // Positions on a line of two rounds, because a wrap counter only distinguishes two
                // rounds.
                let size = u32::from(size.get());
                let line = |place: Self| u32::from(place.at) + if place.wrap { 0 } else { size };
                let distance = line(self).wrapping_sub(line(Self::from_base(event.at)));
                distance.wrapping_sub(1) & (2 * size - 1) < count
            }
            _ => true,
        }
    }
}

#[cfg(loom)]
impl PackedLayout {
    /// Creates a ring in leaked memory of its own, for the model checker.
    pub fn for_model(size: QueueSize) -> Self {
        let cells: Vec<DescriptorCell> = (0..size.get())
            .map(|_| DescriptorCell { address: AtomicU64::new(0), rest: AtomicU64::new(0) })
            .collect();
        let event = || NonNull::from(Box::leak(Box::new(AtomicU32::new(0))));
        Self {
            size,
            descriptors: NonNull::from(cells.leak()).cast(),
            driver_event: event(),
            device_event: event(),
        }
    }
}
