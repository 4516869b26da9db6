//! The memory that a hostile peer shares.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

/// Length of the memory in bytes.
pub const LEN: u64 = 1 << 20;
/// Address of the first byte in the hostile peer's descriptors (`GUEST`) and in its messages
/// (`USER`).
pub const GUEST: u64 = 0x1_0000_0000;
pub const USER: u64 = 0x7f00_0000_0000;

/// Distance between virtqueues; virtqueue 0 begins at offset 0.
const RING_LEN: u64 = 0x2_0000;
/// Offset of the memory behind both rings.
pub const BUFFERS: u64 = 0x4_0000;

/// Returns the offsets of the parts of virtqueue `index` in the memory: descriptors, driver's,
/// device's.
pub fn parts(index: u32) -> [u64; 3] {
    let start = u64::from(index) * RING_LEN;
    [start, start + 0x1_0000, start + 0x1_8000]
}

/// A shared file that either side can truncate.
pub struct Memory(File);

impl Memory {
    pub fn new() -> Self {
        Self::of(LEN)
    }

    pub fn of(len: u64) -> Self {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("peer", flags).expect("memfd");
        ftruncate(&fd, len).expect("a sparse file");
        Self(fd.into())
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.0.write_all_at(bytes, at).expect("within the file");
    }

    pub fn read_u16(&self, at: u64) -> u16 {
        let mut bytes = [0; 2];
        // Reads past the end of a truncated file give zeroes.
        let _ = self.0.read_at(&mut bytes, at);
        u16::from_le_bytes(bytes)
    }

    pub fn truncate(&self, len: u64) {
        ftruncate(&self.0, len).expect("not sealed");
    }

    pub fn file(&self) -> &File {
        &self.0
    }

    pub fn share(&self) -> Self {
        Self(self.0.try_clone().expect("a descriptor"))
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
