//! Layout of rings and buffers in a virtio port's shared memory.
//!
//! ```text
//! one virtqueue after the other:
//!   rings     descriptors | driver's part | device's part, each on pages of its own
//!   buffers   one slot for each entry of the ring
//! one slot:
//!   52 bytes unused | 12 bytes virtio-net header | 2048 bytes of frame
//! ```
//!
//! A frame begins on a cache line, so that its header is not on any of the frame's lines, and a
//! slot takes an odd number of lines, so that the first lines of many slots spread over all sets of
//! the caches.

use std::io;
use std::ops::Deref;
use std::ptr::NonNull;

use dray_ring::QueueSize;
use dray_ring::packed::PackedLayout;
use dray_ring::split::SplitLayout;
use dray_shm::PageSize;

use super::VirtioUri;
use crate::ends::peer_memory::Region;

/// Length of the virtio-net header of a device with `VERSION_1` or `MRG_RXBUF`.
pub(super) const HEADER_LEN: usize = 12;
/// Offset of the frame in its slot.
pub(super) const FRAME_AT: usize = 64;
/// Number of frame bytes that one slot holds.
pub(super) const SLOT_FRAME: usize = 2048;
/// Distance from one slot to the next.
const SLOT_LEN: usize = FRAME_AT + SLOT_FRAME;
const _: () = assert!(SLOT_LEN % 128 == 64);

const PAGE: usize = 4096;

/// Memory of all virtqueues, shared with one back end.
#[derive(Debug)]
pub(super) struct SharedMemory {
    region: Region,
    size: QueueSize,
    packed: bool,
}

/// Offsets of the parts of one virtqueue.
#[derive(Clone, Copy)]
pub(super) struct QueueOffsets {
    /// Descriptor table or ring, from the start of the memory.
    pub(super) descriptors: usize,
    /// Available ring, or driver event suppression.
    pub(super) driver: usize,
    /// Used ring, or device event suppression.
    pub(super) device: usize,
    /// First slot.
    buffers: usize,
    /// End of the virtqueue.
    end: usize,
}

impl QueueOffsets {
    /// Returns the offsets of a virtqueue that begins at `start`.
    fn new(start: usize, size: QueueSize, packed: bool) -> Self {
        let pages = |len: usize| len.next_multiple_of(PAGE);
        let (table, driver, device) = if packed {
            let table = PackedLayout::descriptors_len(size);
            (table, PackedLayout::EVENT_LEN, PackedLayout::EVENT_LEN)
        } else {
            let table = SplitLayout::descriptors_len(size);
            (table, SplitLayout::available_len(size), SplitLayout::used_len(size))
        };
        let driver_at = start + pages(table);
        let device_at = driver_at + pages(driver);
        let buffers = device_at + pages(device);
        let end = buffers + pages(usize::from(size.get()) * SLOT_LEN);
        Self { descriptors: start, driver: driver_at, device: device_at, buffers, end }
    }
}

impl SharedMemory {
    pub(super) fn new(uri: &VirtioUri) -> io::Result<Self> {
        const HUGE_PAGE: usize = 2 << 20;
        let len = QueueOffsets::new(0, uri.size, uri.packed).end * 2 * usize::from(uri.queues);
        let create = |pages, len| Region::create("dray-virtio", len, pages);
        let huge = || create(PageSize::Huge, len.next_multiple_of(HUGE_PAGE)).ok();
        let region = match uri.hugepages.then(huge).flatten() {
            Some(region) => region,
            None => create(PageSize::Normal, len)?,
        };
        Ok(Self { region, size: uri.size, packed: uri.packed })
    }

    /// Returns the offsets of virtqueue `index`.
    pub(super) fn offsets(&self, index: usize) -> QueueOffsets {
        let len = QueueOffsets::new(0, self.size, self.packed).end;
        QueueOffsets::new(index * len, self.size, self.packed)
    }

    /// Returns the slots of a virtqueue.
    pub(super) fn slots(&self, offsets: &QueueOffsets) -> Slots {
        Slots { first: self.at(offsets.buffers), count: self.size.get() }
    }
}

impl Deref for SharedMemory {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.region
    }
}

/// Buffers of one virtqueue. They stay mapped as long as the [`SharedMemory`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots {
    first: NonNull<u8>,
    count: u16,
}

// SAFETY: a `Slots` is only an address; its user ensures that the memory is mapped, on any thread.
unsafe impl Send for Slots {}

impl Slots {
    /// Returns the number of slots.
    pub(super) fn count(&self) -> usize {
        self.count.into()
    }

    /// Returns the start of the frame in slot `id`; its header lies just before it.
    ///
    /// # Panics
    /// If there is no such slot.
    #[inline]
    pub(super) fn frame(&self, id: u16) -> NonNull<u8> {
        assert!(id < self.count, "slot {id}");
        // SAFETY: all slots lie in the region.
        unsafe { self.first.add(usize::from(id) * SLOT_LEN + FRAME_AT) }
    }
}
