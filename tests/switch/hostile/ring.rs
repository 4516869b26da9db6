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
/// Length of a frame of 64 bytes with its header.
pub const FRAME: u32 = HEADER + 64;

/// `(address, len, flags, next)`, or in a packed ring `(address, len, flags, id)`.
pub type Descriptor = (u64, u32, u16, u16);

/// Returns the guest address of an offset in the memory.
pub fn at(offset: u64) -> u64 {
    GUEST + offset
}

/// Returns the guest address of a buffer.
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

    /// Split: writes descriptor number `index`.
    pub fn descriptor(&self, index: u16, descriptor: Descriptor) {
        self.memory.write(self.parts[0] + u64::from(index) * 16, &split(descriptor));
    }

    /// Split: makes the chain that begins with `head` available.
    pub fn post(&mut self, head: u16) {
        let place = 4 + 2 * u64::from(self.available % self.size);
        self.memory.write(self.parts[1] + place, &head.to_le_bytes());
        self.set_available(self.available.wrapping_add(1));
    }

    /// Split: writes the available index, whether or not entries match it.
    pub fn set_available(&mut self, index: u16) {
        self.available = index;
        self.memory.write(self.parts[1] + 2, &index.to_le_bytes());
    }

    /// Split: writes the used index, which belongs to the device.
    pub fn set_used(&self, index: u16) {
        self.memory.write(self.parts[2] + 2, &index.to_le_bytes());
    }

    pub fn used(&self) -> u16 {
        self.memory.read_u16(self.parts[2] + 2)
    }

    /// Split: writes the used index at which the driver wants to be called.
    pub fn set_used_event(&self, index: u16) {
        self.memory.write(self.parts[1] + 4 + 2 * u64::from(self.size), &index.to_le_bytes());
    }

    /// Split: makes one buffer available.
    pub fn offer(&mut self, descriptor: Descriptor) {
        let index = self.available % self.size;
        self.descriptor(index, descriptor);
        self.post(index);
    }

    /// Packed: writes descriptor number `index`, including its flags.
    pub fn packed(&self, index: u16, descriptor: Descriptor) {
        self.memory.write(self.parts[0] + u64::from(index) * 16, &packed(descriptor));
    }

    /// Packed: writes the flags of descriptor number `index`.
    pub fn packed_flags(&self, index: u16, flags: u16) {
        self.memory.write(self.parts[0] + u64::from(index) * 16 + 14, &flags.to_le_bytes());
    }
}

/// Encodes an entry of a split ring's table.
pub fn split((address, len, flags, next): Descriptor) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..12].copy_from_slice(&len.to_le_bytes());
    bytes[12..14].copy_from_slice(&flags.to_le_bytes());
    bytes[14..].copy_from_slice(&next.to_le_bytes());
    bytes
}

/// Encodes an entry of a packed ring.
pub fn packed((address, len, flags, id): Descriptor) -> [u8; 16] {
    split((address, len, id, flags))
}
