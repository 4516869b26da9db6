//! Chains of descriptors, and walking them.

use std::ptr::NonNull;

use dray_shm::{GuestMemory, Window};

use crate::RingError;

/// Maximum number of buffers that a device accepts in one chain. A frame of 64 KiB in pages needs
/// 17, and its header one; drivers stay far below the limit.
pub const CHAIN_MAX: u16 = 256;

/// The buffer continues in the descriptor `next`.
pub(crate) const NEXT: u16 = 1;
/// The device writes the buffer; without this flag the device reads it.
pub(crate) const WRITE: u16 = 2;
/// The buffer holds a table of descriptors.
pub(crate) const INDIRECT: u16 = 4;
/// Size of a descriptor in both layouts, in bytes.
pub(crate) const DESCRIPTOR_LEN: u32 = 16;

/// Access of a device to the buffers of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The device reads the buffers: a queue on which the driver transmits.
    Read,
    /// The device writes the buffers: a queue on which the driver receives.
    Write,
}

impl Access {
    /// Checks a descriptor's flags.
    #[inline(always)]
    pub(crate) fn check(self, flags: u16) -> Result<(), RingError> {
        match (self, flags & WRITE != 0) {
            (Self::Read, false) | (Self::Write, true) => Ok(()),
            (Self::Read, true) => Err(RingError::WrongDirection { expected: "readable" }),
            (Self::Write, false) => Err(RingError::WrongDirection { expected: "writable" }),
        }
    }
}

/// A buffer as a driver posts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Address in the driver's address space.
    pub address: u64,
    /// Length in bytes.
    pub len: u32,
    /// Access that the device has.
    pub access: Access,
}

impl Buffer {
    pub(crate) fn flags(&self) -> u16 {
        match self.access {
            Access::Read => 0,
            Access::Write => WRITE,
        }
    }
}

/// A buffer that a device reads or writes: `len` bytes, checked to be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Pointer to the first byte.
    pub start: NonNull<u8>,
    /// Length in bytes.
    pub len: u32,
}

// SAFETY: a segment is only an address; code that dereferences it must ensure that the memory is
// mapped, on any thread.
unsafe impl Send for Segment {}

/// A chain that a device popped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Identity of the chain, chosen by the driver.
    pub id: u16,
    /// Number of ring entries that the chain takes.
    pub slots: u16,
    /// First buffer.
    pub first: Segment,
    /// True if there are more buffers, in [`DeviceQueue::rest`](crate::DeviceQueue::rest).
    pub more: bool,
}

/// A chain of a single buffer, as nearly all are, that a device popped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// Pointer to the buffer's first byte.
    pub start: NonNull<u8>,
    /// Length of the buffer in bytes.
    pub len: u32,
    /// Identity of the chain, chosen by the driver.
    pub id: u16,
}

// SAFETY: as for `Segment`.
unsafe impl Send for Plain {}

/// Memory addressed by a driver's addresses.
pub trait AddressSpace {
    /// Returns a pointer to `len` bytes at the driver's `address`, if all of them are mapped.
    /// `hint` carries a search hint from one call to the next.
    fn translate(&self, address: u64, len: u64, hint: &mut usize) -> Option<NonNull<u8>>;

    /// Returns the part of the memory that `hint` refers to, which is searched first.
    #[inline(always)]
    fn window(&self, hint: usize) -> Window {
        let _ = hint;
        Window::EMPTY
    }
}

impl AddressSpace for GuestMemory {
    #[inline(always)]
    fn translate(&self, address: u64, len: u64, hint: &mut usize) -> Option<NonNull<u8>> {
        Self::translate(self, address, len, hint)
    }

    #[inline(always)]
    fn window(&self, hint: usize) -> Window {
        Self::window(self, hint)
    }
}

/// A descriptor, read once from the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) address: u64,
    pub(crate) len: u32,
    pub(crate) flags: u16,
    /// Split: index of the next descriptor. Packed: identity of the buffer.
    pub(crate) tag: u16,
}

/// A word at any address. It is read in one access, unlike an array of bytes.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Unaligned(u64);

/// State that a device needs to check descriptors, kept from one chain to the next.
#[derive(Debug)]
pub(crate) struct Walk {
    /// Buffers of the chain that was walked last; empty if that was a single buffer.
    segments: Vec<Segment>,
    pub(crate) hint: usize,
    pub(crate) indirect_allowed: bool,
    /// Number of descriptors that may still be read. A chain that has been started is read to its
    /// end.
    pub(crate) budget: u32,
}

impl Walk {
    pub(crate) fn new(indirect_allowed: bool) -> Self {
        // Never grows: a chain is cut off at CHAIN_MAX.
        Self {
            segments: Vec::with_capacity(CHAIN_MAX.into()),
            hint: 0,
            indirect_allowed,
            budget: u32::MAX,
        }
    }

    /// Clears the buffers of the last chain.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.segments.clear();
    }

    /// Returns the buffers after the first one of the chain that was walked last.
    pub(crate) fn rest(&self) -> &[Segment] {
        self.segments.get(1..).unwrap_or_default()
    }

    #[inline(always)]
    pub(crate) fn segment<M: AddressSpace>(
        &mut self,
        memory: &M,
        access: Access,
        descriptor: Descriptor,
    ) -> Result<Segment, RingError> {
        self.budget = self.budget.saturating_sub(1);
        access.check(descriptor.flags)?;
        let Descriptor { address, len, .. } = descriptor;
        match memory.translate(address, len.into(), &mut self.hint) {
            Some(start) => Ok(Segment { start, len }),
            None => Err(RingError::OutsideMemory { address, len: len.into() }),
        }
    }

    /// Like [`segment`](Self::segment), through a window that moves to where the last buffer was
    /// found.
    #[inline(always)]
    pub(crate) fn plain<M: AddressSpace>(
        &mut self,
        memory: &M,
        window: &mut Window,
        access: Access,
        descriptor: Descriptor,
        id: u16,
    ) -> Result<Plain, RingError> {
        access.check(descriptor.flags)?;
        let Descriptor { address, len, .. } = descriptor;
        if let Some(start) = window.find(address, len.into()) {
            return Ok(Plain { start, len, id });
        }
        let Segment { start, len } = self.segment(memory, access, descriptor)?;
        // The caller counts the whole batch.
        self.budget += 1;
        *window = memory.window(self.hint);
        Ok(Plain { start, len, id })
    }

    /// Walks the chain of at most `max` descriptors that begins with `head`. `next` reads the
    /// descriptor after one in the ring, and `table` adds the buffers of an indirect table. Returns
    /// the first buffer, the tag of the last descriptor, and the number of descriptors in the ring.
    #[cold]
    pub(crate) fn chain<M: AddressSpace>(
        &mut self,
        memory: &M,
        access: Access,
        head: Descriptor,
        max: u16,
        mut next: impl FnMut(Descriptor) -> Result<Descriptor, RingError>,
        table: impl FnOnce(&mut Self, &M, Access, Descriptor) -> Result<(), RingError>,
    ) -> Result<(Segment, u16, u16), RingError> {
        let mut descriptor = head;
        for slots in 1..=max {
            if descriptor.flags & INDIRECT != 0 {
                table(self, memory, access, descriptor)?;
            } else {
                self.add(memory, access, descriptor)?;
                if descriptor.flags & NEXT != 0 {
                    descriptor = next(descriptor)?;
                    continue;
                }
            }
            let first = *self.segments.first().ok_or(RingError::ChainTooLong { max })?;
            return Ok((first, descriptor.tag, slots));
        }
        Err(RingError::ChainTooLong { max })
    }

    /// Adds the buffer of a descriptor to the chain being walked.
    pub(crate) fn add<M: AddressSpace>(
        &mut self,
        memory: &M,
        access: Access,
        descriptor: Descriptor,
    ) -> Result<(), RingError> {
        let segment = self.segment(memory, access, descriptor)?;
        if self.segments.len() == usize::from(CHAIN_MAX) {
            return Err(RingError::ChainTooLong { max: CHAIN_MAX });
        }
        self.segments.push(segment);
        Ok(())
    }

    /// Returns the table that an indirect descriptor points to: its address, and its number of
    /// entries.
    pub(crate) fn table<M: AddressSpace>(
        &mut self,
        memory: &M,
        descriptor: Descriptor,
    ) -> Result<(NonNull<u8>, u16), RingError> {
        self.budget = self.budget.saturating_sub(1);
        let Descriptor { address, len, flags, .. } = descriptor;
        if !self.indirect_allowed {
            return Err(RingError::IndirectNotNegotiated);
        }
        if flags & NEXT != 0 {
            return Err(RingError::IndirectWithNext);
        }
        if len == 0 || len % DESCRIPTOR_LEN != 0 {
            return Err(RingError::IndirectLength { len });
        }
        let entries = u16::try_from(len / DESCRIPTOR_LEN).unwrap_or(u16::MAX);
        match memory.translate(address, len.into(), &mut self.hint) {
            Some(start) => Ok((start, entries)),
            None => Err(RingError::OutsideMemory { address, len: len.into() }),
        }
    }

    /// Reads entry `index` of an indirect table, which a peer may have put at any address; returns
    /// the two words of a descriptor.
    ///
    /// # Safety
    /// `table` must point to more than `index` mapped entries.
    pub(crate) unsafe fn entry(table: NonNull<u8>, index: u16) -> (u64, u64) {
        let start = table.as_ptr().wrapping_add(usize::from(index) * DESCRIPTOR_LEN as usize);
        // SAFETY: by the contract. The peer may be writing there, so each word is read once
        // (volatile) and only our copy is checked.
        let words = unsafe { start.cast::<[Unaligned; 2]>().read_volatile() };
        words.map(|word| word.0).into()
    }
}
