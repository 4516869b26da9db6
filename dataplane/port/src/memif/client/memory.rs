//! Layout of rings and buffers in a memif port's shared memory, which is one region.
//!
//! ```text
//! one ring after the other, those that transmit first:
//!   ring      header and descriptors, on pages of their own
//!   buffers   2048 bytes for each entry of the ring, 2112 from one to the next
//! ```
//!
//! A buffer takes an odd number of cache lines, so that the first lines of many buffers spread over
//! all sets of the caches.

use std::io;
use std::ops::Deref;
use std::ptr::NonNull;

use dray_ring::QueueSize;
use dray_ring::memif::{ClientRing, MemifLayout};
use dray_shm::PageSize;

use crate::ends::peer_memory::Region;

/// Number of frame bytes that one buffer holds.
pub(super) const BUFFER: usize = 2048;
/// Distance from one buffer to the next.
const BUFFER_STEP: usize = BUFFER + 64;
const _: () = assert!(BUFFER_STEP % 128 == 64);

const PAGE: usize = 4096;

/// Memory of all rings, shared with one server.
#[derive(Debug)]
pub(super) struct SharedMemory {
    region: Region,
    size: QueueSize,
}

impl SharedMemory {
    /// Creates the memory for `queues` pairs of rings of `size` entries.
    pub(super) fn new(size: QueueSize, queues: u16) -> io::Result<Self> {
        let len = 2 * usize::from(queues) * ring_step(size);
        Ok(Self { region: Region::create("dray-memif", len, PageSize::Normal)?, size })
    }

    /// Returns the offset of ring `index` from the start of the memory, in bytes.
    pub(super) fn ring_offset(&self, index: usize) -> usize {
        let offset = index * ring_step(self.size);
        assert!(offset < self.len(), "ring {index}");
        offset
    }

    /// Returns ring `index`, made empty, and its buffers.
    ///
    /// # Safety
    /// No queue of ours may be using the ring.
    pub(super) unsafe fn ring(&self, index: usize) -> (ClientRing, Buffers) {
        let offset = self.ring_offset(index);
        // SAFETY: the ring lies in the region, which the ring's owner keeps mapped.
        let layout = unsafe { MemifLayout::new(self.size, self.at(offset)) };
        let buffers = Buffers {
            memory: self.at(0),
            first: offset + buffers_at(self.size),
            count: self.size.get(),
        };
        (ClientRing::new(layout.expect("rings begin on pages")), buffers)
    }
}

impl Deref for SharedMemory {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.region
    }
}

fn buffers_at(size: QueueSize) -> usize {
    MemifLayout::len(size).next_multiple_of(PAGE)
}

/// Returns the distance from one ring to the next.
fn ring_step(size: QueueSize) -> usize {
    (buffers_at(size) + usize::from(size.get()) * BUFFER_STEP).next_multiple_of(PAGE)
}

/// Buffers of one ring. They stay mapped as long as the [`SharedMemory`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffers {
    memory: NonNull<u8>,
    /// Offset of the first buffer in the memory.
    first: usize,
    count: u16,
}

// SAFETY: a `Buffers` is only an address; its user ensures that the memory is mapped, on any
// thread.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Returns the offset of an entry's buffer in the memory.
    ///
    /// # Panics
    /// If there is no such entry.
    #[inline(always)]
    pub(super) fn offset(&self, entry: u16) -> u32 {
        assert!(entry < self.count, "entry {entry}");
        // The largest memory, of 32 rings with 16384 buffers, has 1.2 GB.
        (self.first + usize::from(entry) * BUFFER_STEP) as u32
    }

    /// Returns the first byte of an entry's buffer.
    ///
    /// # Panics
    /// If there is no such entry.
    #[inline(always)]
    pub(super) fn start(&self, entry: u16) -> NonNull<u8> {
        // SAFETY: all buffers lie in the region.
        unsafe { self.memory.add(self.offset(entry) as usize) }
    }
}
