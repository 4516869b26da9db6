//! Memory layout of a split virtqueue.
//!
//! ```text
//! descriptor table   16 bytes each: address u64 | len u32 | flags u16 | next u16
//! available ring     flags u16 | idx u16 | ring u16 * size | used_event u16     (driver writes)
//! used ring          flags u16 | idx u16 | (id u32, len u32) * size | avail_event u16   (device)
//! ```

use std::ptr::NonNull;

use crate::QueueSize;
#[cfg(not(loom))]
use crate::align::{AlignError, aligned};
use crate::chain::Descriptor;
use crate::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The driver wants no call (in the flags of the available ring).
pub(crate) const NO_INTERRUPT: u16 = 1;
/// The device wants no kick (in the flags of the used ring).
pub(crate) const NO_NOTIFY: u16 = 1;

/// A descriptor as its two words.
#[repr(C, align(16))]
pub(crate) struct DescriptorCell {
    address: AtomicU64,
    rest: AtomicU64,
}

/// An element of the used ring, aligned to 4 bytes only.
#[repr(C)]
pub(crate) struct UsedCell {
    id: AtomicU32,
    len: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<DescriptorCell>() == 16 && size_of::<UsedCell>() == 8);

/// Pointers to all parts of a split virtqueue, which are aligned and mapped.
#[derive(Clone, Copy, Debug)]
pub struct SplitLayout {
    pub(crate) size: QueueSize,
    descriptors: NonNull<DescriptorCell>,
    available_flags: NonNull<AtomicU16>,
    available_index: NonNull<AtomicU16>,
    available_ring: NonNull<AtomicU16>,
    used_event: NonNull<AtomicU16>,
    used_flags: NonNull<AtomicU16>,
    used_index: NonNull<AtomicU16>,
    used_ring: NonNull<UsedCell>,
    available_event: NonNull<AtomicU16>,
}

// SAFETY: the pointers point to atomics, which any thread may access.
unsafe impl Send for SplitLayout {}

#[cfg(not(loom))]
impl SplitLayout {
    /// Returns the size of the descriptor table in bytes.
    pub fn descriptors_len(size: QueueSize) -> usize {
        usize::from(size.get()) * 16
    }

    /// Returns the size of the available ring in bytes.
    pub fn available_len(size: QueueSize) -> usize {
        usize::from(size.get()) * 2 + 6
    }

    /// Returns the size of the used ring in bytes.
    pub fn used_len(size: QueueSize) -> usize {
        usize::from(size.get()) * 8 + 6
    }

    /// Creates the layout of a ring whose three parts begin at the given addresses.
    ///
    /// # Errors
    /// If a part is not aligned as section 2.7 requires (16, 2 and 4 bytes).
    ///
    /// # Safety
    /// Each part must be mapped, readable and writable, for the number of bytes that the functions
    /// above return, as long as any copy of the layout is used.
    pub unsafe fn new(
        size: QueueSize,
        descriptors: NonNull<u8>,
        available: NonNull<u8>,
        used: NonNull<u8>,
    ) -> Result<Self, AlignError> {
        aligned("descriptor table", descriptors, 16)?;
        aligned("available ring", available, 2)?;
        aligned("used ring", used, 4)?;
        let entries = usize::from(size.get());
        // SAFETY: all offsets are within the parts, by the contract.
        unsafe {
            Ok(Self {
                size,
                descriptors: descriptors.cast(),
                available_flags: available.cast(),
                available_index: available.add(2).cast(),
                available_ring: available.add(4).cast(),
                used_event: available.add(4 + 2 * entries).cast(),
                used_flags: used.cast(),
                used_index: used.add(2).cast(),
                used_ring: used.add(4).cast(),
                available_event: used.add(4 + 8 * entries).cast(),
            })
        }
    }
}

// SAFETY of every `as_ref` and `add` below: the pointers are valid by the contract of `new`, and
// indices into the tables come from `QueueSize::slot` or were compared with the size.
impl SplitLayout {
    #[inline(always)]
    pub(crate) fn available_flags(&self) -> &AtomicU16 {
        // SAFETY: see above.
        unsafe { self.available_flags.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn available_index(&self) -> &AtomicU16 {
        // SAFETY: see above.
        unsafe { self.available_index.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn available(&self, index: u16) -> &AtomicU16 {
        // SAFETY: see above.
        unsafe { self.available_ring.add(self.size.slot(index)).as_ref() }
    }

    #[inline(always)]
    pub(crate) fn used_event(&self) -> &AtomicU16 {
        // SAFETY: see above.
        unsafe { self.used_event.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn used_flags(&self) -> &AtomicU16 {
        // SAFETY: see above.
        unsafe { self.used_flags.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn used_index(&self) -> &AtomicU16 {
        // SAFETY: see above.
        unsafe { self.used_index.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn available_event(&self) -> &AtomicU16 {
        // SAFETY: see above.
        unsafe { self.available_event.as_ref() }
    }

    /// Returns the used element at `index`: identity and length.
    #[inline(always)]
    pub(crate) fn used(&self, index: u16) -> (u32, u32) {
        // SAFETY: see above.
        let cell = unsafe { self.used_ring.add(self.size.slot(index)).as_ref() };
        (cell.id.load(Relaxed), cell.len.load(Relaxed))
    }

    #[inline(always)]
    pub(crate) fn set_used(&self, index: u16, id: u32, len: u32) {
        // SAFETY: see above.
        let cell = unsafe { self.used_ring.add(self.size.slot(index)).as_ref() };
        // In the steady state of a ring that is used in order, the element from the last round is
        // the same. Not writing it leaves the line in the driver's cache.
        if cell.id.load(Relaxed) != id {
            cell.id.store(id, Relaxed);
        }
        if cell.len.load(Relaxed) != len {
            cell.len.store(len, Relaxed);
        }
    }

    /// Reads the descriptor `index`, which must be below the size.
    #[inline(always)]
    pub(crate) fn descriptor(&self, index: u16) -> Descriptor {
        debug_assert!(index < self.size.get());
        // SAFETY: see above.
        let cell = unsafe { self.descriptors.add(usize::from(index)).as_ref() };
        decode(cell.address.load(Relaxed), cell.rest.load(Relaxed))
    }

    #[inline(always)]
    pub(crate) fn set_descriptor(&self, index: u16, descriptor: Descriptor) {
        debug_assert!(index < self.size.get());
        // SAFETY: see above.
        let cell = unsafe { self.descriptors.add(usize::from(index)).as_ref() };
        let Descriptor { address, len, flags, tag } = descriptor;
        let rest = u64::from(len) | u64::from(flags) << 32 | u64::from(tag) << 48;
        cell.address.store(address.to_le(), Relaxed);
        cell.rest.store(rest.to_le(), Relaxed);
    }
}

/// Decodes the two words of a split descriptor.
#[inline(always)]
pub(crate) fn decode(address: u64, rest: u64) -> Descriptor {
    let (address, rest) = (u64::from_le(address), u64::from_le(rest));
    Descriptor { address, len: rest as u32, flags: (rest >> 32) as u16, tag: (rest >> 48) as u16 }
}

#[cfg(loom)]
impl SplitLayout {
    /// Creates a ring in leaked memory of its own, for the model checker.
    pub fn for_model(size: QueueSize) -> Self {
        fn leak<T>(value: T) -> NonNull<T> {
            NonNull::from(Box::leak(Box::new(value)))
        }
        fn leak_all<T>(count: u16, make: impl Fn() -> T) -> NonNull<T> {
            let all: Vec<T> = (0..count).map(|_| make()).collect();
            NonNull::from(all.leak()).cast()
        }
        let zero = || AtomicU16::new(0);
        Self {
            size,
            descriptors: leak_all(size.get(), || DescriptorCell {
                address: AtomicU64::new(0),
                rest: AtomicU64::new(0),
            }),
            available_flags: leak(zero()),
            available_index: leak(zero()),
            available_ring: leak_all(size.get(), zero),
            used_event: leak(zero()),
            used_flags: leak(zero()),
            used_index: leak(zero()),
            used_ring: leak_all(size.get(), || UsedCell {
                id: AtomicU32::new(0),
                len: AtomicU32::new(0),
            }),
            available_event: leak(zero()),
        }
    }
}
