//! A ring in memory that both sides see.

use std::ptr::NonNull;

use crate::bytes::Bytes;
use dray_ring::packed::{PackedDevice, PackedDriver, PackedLayout};
use dray_ring::split::{SplitDevice, SplitDriver, SplitLayout};
use dray_ring::{Access, DeviceQueue, DriverQueue, QueueSize};
use dray_shm::{GuestMemory, MemoryFile, PageSize, Region};

/// Addresses of the regions: of the ring, of buffers, of indirect tables.
pub(crate) const RING: u64 = 0x1_0000;
pub(crate) const DATA: u64 = 0x4000_0000;
pub(crate) const DATA_LEN: u64 = 0x2_0000;
pub(crate) const TABLES: u64 = 0x8000_0000;
/// Size of one table in bytes: 16 entries, one of which may be lost to misalignment.
pub(crate) const TABLE_LEN: u64 = 256;

pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;
pub(crate) const AVAILABLE: u16 = 1 << 7;
pub(crate) const USED: u16 = 1 << 15;

/// One of the two layouts.
pub(crate) trait Layout: Sized {
    const PACKED: bool;
    type Driver: DriverQueue;
    type Device: DeviceQueue;

    /// Returns the sizes of the three parts in bytes: descriptors, the driver's, the device's.
    fn parts(size: QueueSize) -> [usize; 3];
    /// # Safety
    /// The contract is that of the layouts' `new`.
    unsafe fn new(size: QueueSize, parts: [NonNull<u8>; 3]) -> Self;
    fn driver(&self, event_index: bool) -> Self::Driver;
    fn device(&self, base: u16, indirect: bool, event_index: bool) -> Self::Device;
}

impl Layout for SplitLayout {
    const PACKED: bool = false;
    type Driver = SplitDriver;
    type Device = SplitDevice;

    fn parts(size: QueueSize) -> [usize; 3] {
        [Self::descriptors_len(size), Self::available_len(size), Self::used_len(size)]
    }

    unsafe fn new(size: QueueSize, [descriptors, available, used]: [NonNull<u8>; 3]) -> Self {
        // SAFETY: by the contract.
        unsafe { Self::new(size, descriptors, available, used).unwrap() }
    }

    fn driver(&self, event_index: bool) -> SplitDriver {
        SplitDriver::new(*self, event_index)
    }

    fn device(&self, base: u16, indirect: bool, event_index: bool) -> SplitDevice {
        SplitDevice::new(*self, base, indirect, event_index)
    }
}

impl Layout for PackedLayout {
    const PACKED: bool = true;
    type Driver = PackedDriver;
    type Device = PackedDevice;

    fn parts(size: QueueSize) -> [usize; 3] {
        [Self::descriptors_len(size), Self::EVENT_LEN, Self::EVENT_LEN]
    }

    unsafe fn new(size: QueueSize, [descriptors, driver, device]: [NonNull<u8>; 3]) -> Self {
        // SAFETY: by the contract.
        unsafe { Self::new(size, descriptors, driver, device).unwrap() }
    }

    fn driver(&self, event_index: bool) -> PackedDriver {
        PackedDriver::new(*self, event_index)
    }

    fn device(&self, base: u16, indirect: bool, event_index: bool) -> PackedDevice {
        PackedDevice::new(*self, base, indirect, event_index).unwrap()
    }
}

/// Memory with a ring in it, all zero at first.
pub(crate) struct Memory {
    pub(crate) size: QueueSize,
    /// Access of the device to the ring's buffers.
    pub(crate) access: Access,
    pub(crate) guest: GuestMemory,
    /// Offsets of the three parts in the region of the ring.
    pub(crate) parts: [u64; 3],
    /// Sizes in bytes of the region of the ring and of that of the tables.
    pub(crate) ring_len: u64,
    pub(crate) tables_len: u64,
}

impl Memory {
    pub(crate) fn new<L: Layout>(size: QueueSize, access: Access) -> (Self, L) {
        let lens = L::parts(size).map(|len| len as u64);
        let driver = lens[0];
        let device = (driver + lens[1]).next_multiple_of(4);
        let parts = [0, driver, device];
        let ring_len = device + lens[2];
        let tables_len = TABLE_LEN * u64::from(size.get().max(4));
        let region = |guest, len| {
            let file = MemoryFile::create("ring-test", len, PageSize::Normal).unwrap();
            Region { guest, len, file, offset: 0 }
        };
        let regions = [region(RING, ring_len), region(DATA, DATA_LEN), region(TABLES, tables_len)];
        let guest = GuestMemory::new(regions).unwrap();
        let memory = Self { size, access, guest, parts, ring_len, tables_len };
        // SAFETY: the parts are in the region, which is mapped as long as `memory` lives; tests
        // keep both together.
        let layout = unsafe { L::new(size, parts.map(|at| memory.at(RING + at, 0))) };
        (memory, layout)
    }

    /// Returns our pointer to `address`.
    pub(crate) fn at(&self, address: u64, len: u64) -> NonNull<u8> {
        self.guest.translate(address, len, &mut 0).unwrap_or_else(|| {
            panic!("{len} bytes at {address:#x}");
        })
    }

    /// Writes `value` at `address`, as a peer can at any time.
    pub(crate) fn write<const N: usize>(&self, address: u64, value: [u8; N]) {
        // SAFETY: that many bytes are mapped there.
        unsafe { self.at(address, N as u64).cast::<[u8; N]>().write_volatile(value) }
    }

    pub(crate) fn read<const N: usize>(&self, address: u64) -> [u8; N] {
        // SAFETY: that many bytes are mapped there.
        unsafe { self.at(address, N as u64).cast::<[u8; N]>().read_volatile() }
    }

    pub(crate) fn read_u16(&self, address: u64) -> u16 {
        u16::from_le_bytes(self.read(address))
    }

    /// Writes to a place in the ring or in a table, mostly something plausible; the bytes decide
    /// where and what. `round` is the position of the side under test: an index or a place, as in
    /// [`DeviceQueue::base`]; `used` says which half of a ring is the peer's.
    pub(crate) fn disturb<L: Layout>(&self, bytes: &mut Bytes, round: u16, used: bool) {
        let size = self.size.get();
        let near = |bytes: &mut Bytes, at: u16| at.wrapping_add(u16::from(bytes.byte() & 3)) % size;
        let kind = bytes.byte();
        match kind % 8 {
            // Anything anywhere.
            0 => {
                let at = u64::from(bytes.u32()) % (self.ring_len - 8);
                self.write(RING + at, bytes.u64().to_le_bytes());
            }
            1 | 2 if !L::PACKED => {
                let ring = RING + self.parts[1 + usize::from(used)];
                let index = match bytes.byte() {
                    0 => bytes.u16(),
                    byte => round.wrapping_add(u16::from(byte) % 5),
                };
                self.write(ring + 2, index.to_le_bytes());
            }
            3 | 4 if !L::PACKED => {
                let ring = RING + self.parts[1 + usize::from(used)];
                let (slot, entry) = (u64::from(near(bytes, round)), near(bytes, 0));
                if used {
                    self.write(ring + 4 + 8 * slot, u32::from(entry).to_le_bytes());
                } else {
                    self.write(ring + 4 + 2 * slot, entry.to_le_bytes());
                }
            }
            5 => {
                let table = TABLES + u64::from(bytes.byte() & 3) * TABLE_LEN;
                let at = table + 16 * u64::from(bytes.byte() & 15);
                self.disturb_descriptor::<L>(bytes, at, round, used);
            }
            _ => {
                let at =
                    Memory::descriptor(near(bytes, if L::PACKED { round & 0x7fff } else { 0 }));
                self.disturb_descriptor::<L>(bytes, at, round, used);
            }
        }
    }

    fn disturb_descriptor<L: Layout>(&self, bytes: &mut Bytes, at: u64, round: u16, used: bool) {
        let kind = bytes.byte();
        let (address, len) = match kind & 7 {
            0 => (bytes.u64(), bytes.u32()),
            1 => (DATA + DATA_LEN - u64::from(bytes.byte()), u32::from(bytes.byte())),
            2 => (RING + u64::from(bytes.byte()) * 8, u32::from(bytes.u16())),
            3 | 4 => {
                (TABLES + u64::from(bytes.byte() & 3) * TABLE_LEN, 16 * u32::from(bytes.byte()))
            }
            _ => (DATA + u64::from(bytes.u16()), u32::from(bytes.byte())),
        };
        let mut flags = u16::from(kind >> 3) & (NEXT | INDIRECT);
        // Mostly a table only where there is one.
        if kind & 7 > 4 && bytes.byte() > 16 {
            flags &= !INDIRECT;
        }
        // And mostly in the right direction.
        if self.access == Access::Write || bytes.byte() < 8 {
            flags |= WRITE;
        }
        let tag = match bytes.byte() {
            0 => bytes.u16(),
            byte => u16::from(byte) % self.size.get().min(8),
        };
        if L::PACKED {
            let mine = if round & 0x8000 != 0 { AVAILABLE } else { USED };
            let both = if round & 0x8000 != 0 { AVAILABLE | USED } else { 0 };
            flags |= if used { both } else { mine };
            self.write_descriptor(at, address, len, [tag, flags]);
        } else {
            self.write_descriptor(at, address, len, [flags, tag]);
        }
    }

    /// Returns the address of descriptor `index` of the ring.
    pub(crate) fn descriptor(index: u16) -> u64 {
        RING + 16 * u64::from(index)
    }

    /// Writes a descriptor, in the ring or in a table. `tail` is in the order of the layout: flags
    /// and next in a split ring, identity and flags in a packed one.
    pub(crate) fn write_descriptor(&self, at: u64, address: u64, len: u32, tail: [u16; 2]) {
        self.write(at, address.to_le_bytes());
        self.write(at + 8, len.to_le_bytes());
        self.write(at + 12, tail[0].to_le_bytes());
        self.write(at + 14, tail[1].to_le_bytes());
    }

    /// Returns true if all `len` bytes from `start` on are mapped.
    pub(crate) fn holds(&self, start: NonNull<u8>, len: u32) -> bool {
        let regions = [(RING, self.ring_len), (DATA, DATA_LEN), (TABLES, self.tables_len)];
        regions.iter().any(|&(guest, region_len)| {
            let region = self.at(guest, region_len).as_ptr() as u64;
            let start = start.as_ptr() as u64;
            start >= region && start + u64::from(len) <= region + region_len
        })
    }
}
