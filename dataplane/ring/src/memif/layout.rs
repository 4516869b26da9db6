//! Memory layout of a memif ring.
//!
//! ```text
//!   0   cookie u32 | flags u16 | head u16       (client)
//!  64   tail u16                                (server)
//! 128   descriptors of 16 bytes: flags u16 | region u16 | length u32 | offset u32 | metadata u32
//! ```
//!
//! Everything is in the machine's own byte order.

use std::ptr::NonNull;

use crate::QueueSize;
#[cfg(not(loom))]
use crate::align::{AlignError, aligned};
use crate::sync::{AtomicU16, AtomicU32, Ordering::Relaxed};

/// First field of a ring.
const COOKIE: u32 = 0x3e3_1f20;
/// The descriptor is not the last one of its frame.
const NEXT: u16 = 1;

/// The header of a ring.
#[repr(C, align(64))]
pub(super) struct Header {
    cookie: AtomicU32,
    /// The receiving side wants no interrupts (bit 0).
    pub(super) flags: AtomicU16,
    pub(super) head: AtomicU16,
    _line: [u8; 56],
    pub(super) tail: AtomicU16,
}

/// A descriptor.
#[repr(C, align(16))]
struct Cell {
    flags: AtomicU16,
    region: AtomicU16,
    len: AtomicU32,
    offset: AtomicU32,
    metadata: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Header>() == 128 && size_of::<Cell>() == 16);

/// Pointers to the parts of a memif ring, which are aligned and mapped.
#[derive(Clone, Copy, Debug)]
pub struct MemifLayout {
    pub(super) size: QueueSize,
    header: NonNull<Header>,
    descriptors: NonNull<Cell>,
}

// SAFETY: the pointers point to atomics, which any thread may access.
unsafe impl Send for MemifLayout {}

#[cfg(not(loom))]
impl MemifLayout {
    /// Returns the size of a ring in bytes.
    pub fn len(size: QueueSize) -> usize {
        size_of::<Header>() + usize::from(size.get()) * size_of::<Cell>()
    }

    /// Creates the layout of the ring that begins at `start`.
    ///
    /// # Errors
    /// If `start` is not aligned to a cache line.
    ///
    /// # Safety
    /// [`len`](Self::len) bytes must be mapped there, readable and writable, as long as any copy of
    /// the layout is used.
    pub unsafe fn new(size: QueueSize, start: NonNull<u8>) -> Result<Self, AlignError> {
        aligned("memif ring", start, align_of::<Header>())?;
        let header = start.cast::<Header>();
        // SAFETY: the descriptors follow, by the contract.
        Ok(Self { size, header, descriptors: unsafe { header.add(1) }.cast() })
    }
}

impl MemifLayout {
    /// Resets the ring to an empty one whose receiving side wants interrupts.
    pub(super) fn clear(&self) {
        let header = self.header();
        header.cookie.store(COOKIE, Relaxed);
        for index in [&header.flags, &header.head, &header.tail] {
            index.store(0, Relaxed);
        }
    }

    #[inline(always)]
    pub(super) fn header(&self) -> &Header {
        // SAFETY: valid by the contract of `new`.
        unsafe { self.header.as_ref() }
    }

    #[inline(always)]
    fn cell(&self, index: u16) -> &Cell {
        // SAFETY: valid by the contract of `new`; `slot` is below the size.
        unsafe { self.descriptors.add(self.size.slot(index)).as_ref() }
    }

    /// Returns what the ring begins with, if that is not memif's cookie.
    pub(super) fn wrong_cookie(&self) -> Option<u32> {
        let found = self.header().cookie.load(Relaxed);
        (found != COOKIE).then_some(found)
    }

    /// Returns region, offset, length, and true if the frame continues in the next entry.
    #[inline(always)]
    pub(super) fn posted(&self, index: u16) -> (u16, u32, u32, bool) {
        let cell = self.cell(index);
        let (region, offset) = (cell.region.load(Relaxed), cell.offset.load(Relaxed));
        (region, offset, cell.len.load(Relaxed), cell.flags.load(Relaxed) & NEXT != 0)
    }

    /// Writes length and flags of an entry, whose buffer stays as it is.
    #[inline(always)]
    pub(super) fn fill(&self, index: u16, len: u32, more: bool) {
        let cell = self.cell(index);
        cell.flags.store(if more { NEXT } else { 0 }, Relaxed);
        cell.len.store(len, Relaxed);
    }

    /// Returns the length, and true if the frame continues in the next entry.
    #[inline(always)]
    pub(super) fn descriptor(&self, index: u16) -> (u32, bool) {
        let cell = self.cell(index);
        (cell.len.load(Relaxed), cell.flags.load(Relaxed) & NEXT != 0)
    }

    /// Writes an entry, only where it changes: a line that is not written stays in the server's
    /// cache.
    #[inline(always)]
    pub(super) fn set_descriptor(&self, index: u16, offset: u32, len: u32, more: bool) {
        let set16 = |field: &AtomicU16, value| {
            if field.load(Relaxed) != value {
                field.store(value, Relaxed);
            }
        };
        let set32 = |field: &AtomicU32, value| {
            if field.load(Relaxed) != value {
                field.store(value, Relaxed);
            }
        };
        let cell = self.cell(index);
        set16(&cell.flags, if more { NEXT } else { 0 });
        set16(&cell.region, 0);
        set32(&cell.len, len);
        set32(&cell.offset, offset);
        set32(&cell.metadata, 0);
    }
}

#[cfg(loom)]
impl MemifLayout {
    /// Creates a ring in leaked memory of its own, for the model checker.
    pub fn for_model(size: QueueSize) -> Self {
        let index = || AtomicU16::new(0);
        let header = Header {
            cookie: AtomicU32::new(0),
            flags: index(),
            head: index(),
            _line: [0; 56],
            tail: index(),
        };
        let word = || AtomicU32::new(0);
        let cell = |_| Cell {
            flags: index(),
            region: index(),
            len: word(),
            offset: word(),
            metadata: word(),
        };
        let cells: Vec<Cell> = (0..size.get()).map(cell).collect();
        let header = NonNull::from(Box::leak(Box::new(header)));
        Self { size, header, descriptors: NonNull::from(cells.leak()).cast() }
    }
}
