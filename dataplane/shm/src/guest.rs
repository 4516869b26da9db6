//! A peer's memory as the peer sees it: regions of addresses in the peer's own address space.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{Mapping, MemoryFile};

/// One region of a peer's address space, backed by a part of a file.
#[derive(Debug)]
pub struct Region {
    /// The peer's address of the first byte ("guest physical" in vhost-user).
    pub guest: u64,
    /// Length in bytes.
    pub len: u64,
    /// File that backs the region.
    pub file: MemoryFile,
    /// Offset of the region in the file.
    pub offset: u64,
}

/// A table of regions is invalid.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages document the variants")]
pub enum RegionError {
    #[error("memory region {index}: {len} bytes at {guest:#x} exceed the address space")]
    BeyondTheEnd { index: usize, guest: u64, len: u64 },
    #[error("memory region {index} at {guest:#x} overlaps another one")]
    Overlap { index: usize, guest: u64 },
    #[error("memory region {index}: {error}")]
    Map { index: usize, error: io::Error },
}

/// All regions of a peer, mapped. Immutable: when regions are added or removed, a new table
/// replaces the old one.
#[derive(Debug, Default)]
pub struct GuestMemory {
    /// In ascending order, without overlap.
    regions: Vec<MappedRegion>,
}

#[derive(Debug)]
struct MappedRegion {
    guest: u64,
    mapping: Arc<Mapping>,
}

impl MappedRegion {
    #[inline(always)]
    fn window(&self) -> Window {
        let Self { guest, mapping } = self;
        Window { guest: *guest, len: mapping.len() as u64, start: mapping.start() }
    }
}

/// One region of a peer's memory, small enough to be kept in registers through a batch. Its
/// pointers stay mapped as long as the [`GuestMemory`] it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    guest: u64,
    len: u64,
    start: NonNull<u8>,
}

impl Window {
    /// A region without any bytes.
    pub const EMPTY: Self = Self { guest: 0, len: 0, start: NonNull::dangling() };

    /// Returns our pointer to `len` bytes at the peer's `address`, if all of them are in the
    /// region.
    #[inline(always)]
    pub fn find(&self, address: u64, len: u64) -> Option<NonNull<u8>> {
        // An address below the region wraps around to an offset beyond it.
        let offset = address.wrapping_sub(self.guest);
        if offset > self.len || len > self.len - offset {
            return None;
        }
        // SAFETY: `offset` is at most the region's length, which is that of its mapping.
        Some(unsafe { self.start.add(offset as usize) })
    }
}

impl GuestMemory {
    /// Maps the regions of a peer's table.
    pub fn new(regions: impl IntoIterator<Item = Region>) -> Result<Self, RegionError> {
        let map = |(index, region): (usize, Region)| {
            let mapping = Mapping::new(&region.file, region.offset, region.len);
            let mapping = mapping.map_err(|error| RegionError::Map { index, error })?;
            Ok((region.guest, Arc::new(mapping)))
        };
        let mapped = regions.into_iter().enumerate().map(map);
        Self::of_mapped(mapped.collect::<Result<Vec<_>, RegionError>>()?)
    }

    /// Creates a table of regions that are already mapped, possibly in another table too: the
    /// peer's address of each, and its mapping.
    pub fn of_mapped(
        regions: impl IntoIterator<Item = (u64, Arc<Mapping>)>,
    ) -> Result<Self, RegionError> {
        let mut table: Vec<MappedRegion> = Vec::new();
        for (index, (guest, mapping)) in regions.into_iter().enumerate() {
            let len = mapping.len() as u64;
            let Some(end) = guest.checked_add(len) else {
                return Err(RegionError::BeyondTheEnd { index, guest, len });
            };
            let at = table.partition_point(|other| other.guest < guest);
            let before = at.checked_sub(1).map(|at| &table[at]);
            let meets_before = before.is_some_and(|b| b.guest + b.mapping.len() as u64 > guest);
            let meets_after = table.get(at).is_some_and(|after| after.guest < end);
            if meets_before || meets_after {
                return Err(RegionError::Overlap { index, guest });
            }
            table.insert(at, MappedRegion { guest, mapping });
        }
        Ok(Self { regions: table })
    }

    /// Returns our pointer to `len` bytes at the peer's `address`, if all of them are in one
    /// region. `hint` is the region that was found last, because most addresses of a ring are in
    /// the same one.
    ///
    /// The bytes stay mapped as long as this table lives.
    #[inline(always)]
    pub fn translate(&self, address: u64, len: u64, hint: &mut usize) -> Option<NonNull<u8>> {
        if let Some(pointer) = self.regions.get(*hint).and_then(|r| r.window().find(address, len)) {
            return Some(pointer);
        }
        let at = self.regions.partition_point(|region| region.guest <= address).checked_sub(1)?;
        let pointer = self.regions[at].window().find(address, len)?;
        *hint = at;
        Some(pointer)
    }

    /// Returns the region `hint` of [`translate`](Self::translate) by itself; an empty one if there
    /// is no such region.
    #[inline]
    pub fn window(&self, hint: usize) -> Window {
        self.regions.get(hint).map_or(Window::EMPTY, MappedRegion::window)
    }

    /// Returns true if the peer took away memory that it had shared.
    pub fn is_lost(&self) -> bool {
        self.regions.iter().any(|region| region.mapping.is_lost())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PageSize;
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    fn region(guest: u64, len: u64) -> Region {
        let file = MemoryFile::create("test", len.max(1), PageSize::Normal).unwrap();
        Region { guest, len, file, offset: 0 }
    }

    proptest! {
        /// Compares with a linear search over the regions, in arithmetic that cannot overflow.
        #[test]
        fn translation_agrees_with_linear_search(
            gaps in prop::collection::vec((0..3 * PAGE, 1..3 * PAGE), 1..8),
            base in prop_oneof![Just(0), Just(1 << 40), Just(u64::MAX - 64 * PAGE)],
            asked in prop::collection::vec((any::<prop::sample::Index>(), -100i64..9000, 0u64..9000), 1..50),
        ) {
            let mut next = base;
            let mut table = Vec::new();
            for (gap, len) in gaps {
                table.push((next + gap, len));
                next += gap + len;
            }
            // The order in which a peer names its regions does not matter.
            let memory = GuestMemory::new(table.iter().rev().map(|&(g, len)| region(g, len))).unwrap();
            let mut hint = 0;
            for (which, offset, len) in asked {
                let address = table[which.index(table.len())].0.wrapping_add_signed(offset);
                let expected = table.iter().any(|&(guest, size)| {
                    let end = u128::from(address) + u128::from(len);
                    address >= guest && end <= u128::from(guest) + u128::from(size)
                });
                let found = memory.translate(address, len, &mut hint);
                // An empty range at the border of two regions is in either.
                prop_assert_eq!(found.is_some(), expected, "{:#x} {}", address, len);
            }
        }
    }

    #[test]
    fn invalid_region_tables_are_refused() {
        let refused = |regions: Vec<Region>| GuestMemory::new(regions).unwrap_err().to_string();
        for (guest, len) in [(0, 2 * PAGE), (PAGE - 1, 2), (2 * PAGE - 1, PAGE), (PAGE, PAGE)] {
            let message = refused(vec![region(PAGE, PAGE), region(guest, len)]);
            assert!(message.contains("region 1") && message.contains("overlaps"), "{message}");
        }
        let message = refused(vec![region(u64::MAX - 10, 12)]);
        assert!(message.contains("exceed the address space"), "{message}");
        let short = Region { len: 2 * PAGE, ..region(0, PAGE) };
        assert!(refused(vec![short]).contains("do not fit the file of"), "longer than its file");
        let empty = Region { len: 0, ..region(0, PAGE) };
        assert!(refused(vec![empty]).contains("region 0"));
    }

    #[test]
    fn translation_fails_without_memory() {
        assert_eq!(GuestMemory::default().translate(0, 1, &mut 0), None);
        assert_eq!(GuestMemory::default().translate(0, 1, &mut 7), None);
    }
}
