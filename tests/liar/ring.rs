//! Virtqueues, written byte by byte.

use super::memory::{BUFFERS, GUEST, Memory, parts};

pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;
/// Packed: available in the first round.
pub const AVAILABLE: u16 = 1 << 7;
pub const USED: u16 = 1 << 15;

/// Length of a virtio-net header.
pub const HEADER: u32 = 12;
/// A frame of 64 bytes behind its header.
pub const FRAME: u32 = HEADER + 64;

/// `(address, len, flags, next)`, or of a packed ring `(address, len, flags, id)`.
pub type Descriptor = (u64, u32, u16, u16);

/// A place in the memory as descriptors name it.
pub fn at(offset: u64) -> u64 {
    GUEST + offset
}

/// Some place for a buffer.
pub fn buffer() -> u64 {
    at(BUFFERS)
}

pub struct Ring {
    memory: Memory,
    parts: [u64; 3],
    size: u16,
    available: u16,
}

impl Ring {
    pub fn new(memory: Memory, index: u32, size: u16) -> Self {
        Self { memory, parts: parts(index), size, available: 0 }
    }

    /// Split: descriptor number `index`.
    pub fn descriptor(&self, index: u16, descriptor: Descriptor) {
        self.memory.write(self.parts[0] + u64::from(index) * 16, &split(descriptor));
    }

    /// Split: makes the chain that begins with `head` available.
    pub fn post(&mut self, head: u16) {
        let place = 4 + 2 * u64::from(self.available % self.size);
        self.memory.write(self.parts[1] + place, &head.to_le_bytes());
        self.set_available(self.available.wrapping_add(1));
    }

    /// Split: the available index, whatever is behind it.
    pub fn set_available(&mut self, index: u16) {
        self.available = index;
        self.memory.write(self.parts[1] + 2, &index.to_le_bytes());
    }

    /// Split: the used index, which is the device's to write.
    pub fn set_used(&self, index: u16) {
        self.memory.write(self.parts[2] + 2, &index.to_le_bytes());
    }

    pub fn used(&self) -> u16 {
        self.memory.read_u16(self.parts[2] + 2)
    }

    /// Split: at which used index the driver wants to be called.
    pub fn set_used_event(&self, index: u16) {
        self.memory.write(self.parts[1] + 4 + 2 * u64::from(self.size), &index.to_le_bytes());
    }

    /// Split: one buffer.
    pub fn offer(&mut self, descriptor: Descriptor) {
        let index = self.available % self.size;
        self.descriptor(index, descriptor);
        self.post(index);
    }

    /// Packed: descriptor number `index`, flags and all.
    pub fn packed(&self, index: u16, descriptor: Descriptor) {
        self.memory.write(self.parts[0] + u64::from(index) * 16, &packed(descriptor));
    }

    /// Packed: the flags of descriptor number `index`.
    pub fn packed_flags(&self, index: u16, flags: u16) {
        self.memory.write(self.parts[0] + u64::from(index) * 16 + 14, &flags.to_le_bytes());
    }
}

/// An entry of a split ring's table.
pub fn split((address, len, flags, next): Descriptor) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..12].copy_from_slice(&len.to_le_bytes());
    bytes[12..14].copy_from_slice(&flags.to_le_bytes());
    bytes[14..].copy_from_slice(&next.to_le_bytes());
    bytes
}

/// An entry of a packed ring.
pub fn packed((address, len, flags, id): Descriptor) -> [u8; 16] {
    split((address, len, id, flags))
}
