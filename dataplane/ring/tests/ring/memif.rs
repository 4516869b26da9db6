//! A memif ring, as a malicious peer sees it.

use dray_ring::QueueSize;
use dray_ring::memif::MemifLayout;
use dray_shm::{Mapping, MemoryFile, PageSize};

/// Offsets of the parts of a ring; a descriptor has 16 bytes.
pub(crate) const FLAGS: usize = 4;
pub(crate) const HEAD: usize = 6;
pub(crate) const TAIL: usize = 64;
const DESCRIPTORS: usize = 128;

pub(crate) struct Ring {
    mapping: Mapping,
    size: u16,
}

impl Ring {
    /// Creates a ring, all zero, and its layout, which is valid as long as the ring lives.
    pub(crate) fn new(size: QueueSize) -> (Self, MemifLayout) {
        let len = MemifLayout::len(size) as u64;
        let file = MemoryFile::create("ring-test", len, PageSize::Normal).unwrap();
        let ring = Self { mapping: Mapping::new(&file, 0, len).unwrap(), size: size.get() };
        // SAFETY: the ring is in the mapping; tests keep both together.
        let layout = unsafe { MemifLayout::new(size, ring.mapping.start()) }.unwrap();
        (ring, layout)
    }

    pub(crate) fn len(&self) -> usize {
        self.mapping.len()
    }

    pub(crate) fn write<const N: usize>(&self, at: usize, value: [u8; N]) {
        assert!(at + N <= self.len(), "{at}");
        // SAFETY: within the mapping.
        unsafe { self.mapping.start().add(at).cast::<[u8; N]>().write_volatile(value) }
    }

    pub(crate) fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        assert!(at + N <= self.len(), "{at}");
        // SAFETY: within the mapping.
        unsafe { self.mapping.start().add(at).cast::<[u8; N]>().read_volatile() }
    }

    /// Returns the offset of the descriptor that a head or tail refers to.
    pub(crate) fn descriptor(&self, index: u64) -> usize {
        DESCRIPTORS + 16 * (index % u64::from(self.size)) as usize
    }
}
