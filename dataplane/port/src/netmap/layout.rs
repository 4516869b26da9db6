//! Layout of the memory that netmap shares with programs (net/netmap.h, version 14 of its API).
//!
//! All fields are atomic: the kernel writes them during system calls, and another process that uses
//! the same region can write them at any time.

use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, AtomicU64};

/// `struct netmap_slot`: one buffer of a ring.
#[repr(C)]
pub(super) struct Slot {
    /// Number of the buffer.
    pub(super) buffer: AtomicU32,
    /// Length of the frame, or of this part of it, in bytes.
    pub(super) len: AtomicU16,
    pub(super) flags: AtomicU16,
    /// The frame's distance from the start of its buffer, in the bits that the ring's
    /// `offset_mask` has.
    pub(super) pointer: AtomicU64,
}

/// `NS_BUF_CHANGED`: the slot has another buffer than before.
pub(super) const BUFFER_CHANGED: u16 = 1;
/// `NS_MOREFRAG`: the frame continues in the next slot.
pub(super) const MORE_FRAGMENTS: u16 = 0x20;
/// `NETMAP_MAX_FRAGS`: maximum number of slots of a frame.
pub(super) const FRAGMENTS_MAX: usize = 64;

/// Beginning of `struct netmap_ring`.
#[repr(C)]
pub(super) struct RingHeader {
    /// Distance of buffer 0 from this header.
    pub(super) buffers_at: AtomicI64,
    pub(super) slots: AtomicU32,
    pub(super) buffer_len: AtomicU32,
    id: AtomicU16,
    direction: AtomicU16,
    /// First slot that belongs to the program.
    pub(super) head: AtomicU32,
    /// Slot from which on the program is to be woken.
    pub(super) current: AtomicU32,
    /// First slot that belongs to the kernel.
    pub(super) tail: AtomicU32,
    flags: AtomicU32,
    time: [AtomicI64; 2],
    /// The bits of [`Slot::pointer`] that are an offset.
    pub(super) offset_mask: AtomicU64,
}

/// Distance of the first slot from the ring's header.
pub(super) const SLOTS_AT: usize = 256;

/// Beginning of `struct netmap_if`, which lists the rings of a port.
#[repr(C)]
pub(super) struct Interface {
    name: [u8; 16],
    version: AtomicU32,
    flags: AtomicU32,
    pub(super) tx_rings: AtomicU32,
    pub(super) rx_rings: AtomicU32,
    spare_buffers: AtomicU32,
    pub(super) host_tx_rings: AtomicU32,
    host_rx_rings: AtomicU32,
    reserved: [AtomicU32; 3],
}

/// Distance of the list of rings from the start of [`Interface`]. Each entry is the distance of a
/// ring's header from there: transmit rings, host transmit rings, receive rings, host receive
/// rings.
pub(super) const RINGS_AT: usize = 56;

/// `struct nmreq_header`: a request.
#[repr(C)]
pub(super) struct Request {
    pub(super) version: u16,
    pub(super) kind: u16,
    pub(super) reserved: u32,
    pub(super) name: [u8; 64],
    pub(super) options: u64,
    pub(super) body: u64,
}

/// `NETMAP_API`.
pub(super) const VERSION: u16 = 14;
/// `NETMAP_REQ_REGISTER`.
pub(super) const REGISTER: u16 = 1;

/// `struct nmreq_register`: a descriptor's port, and which of its rings.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub(super) struct Register {
    /// Where the port's [`Interface`] lies in the region.
    pub(super) interface_at: u64,
    /// Length of the region in bytes.
    pub(super) region_len: u64,
    pub(super) tx_slots: u32,
    pub(super) rx_slots: u32,
    pub(super) tx_rings: u16,
    pub(super) rx_rings: u16,
    pub(super) host_tx_rings: u16,
    pub(super) host_rx_rings: u16,
    /// Number of the region.
    pub(super) memory: u16,
    pub(super) ring: u16,
    pub(super) mode: u32,
    pub(super) spare_buffers: u32,
    pub(super) flags: u64,
}

/// `NR_REG_ONE_NIC`: one ring pair.
pub(super) const ONE_PAIR: u32 = 4;
/// `NR_REG_NULL`: a region, without a port.
pub(super) const NO_PORT: u32 = 7;
/// `NR_REG_ONE_SW`: one pair of host rings.
pub(super) const ONE_HOST_PAIR: u32 = 8;
/// `NR_EXCLUSIVE`: no other program may use the rings.
pub(super) const EXCLUSIVE: u64 = 0x800;
/// `NR_RX_RINGS_ONLY`.
pub(super) const RX_ONLY: u64 = 0x2000;
/// `NR_TX_RINGS_ONLY`.
pub(super) const TX_ONLY: u64 = 0x4000;
/// `NR_NO_TX_POLL`: waiting for frames transmits none.
pub(super) const NO_TX_POLL: u64 = 0x20000;

/// `struct nmreq_opt_offsets`: asks for offsets in the slots of a ring.
#[repr(C)]
#[derive(Default)]
pub(super) struct Offsets {
    pub(super) next: u64,
    pub(super) kind: u32,
    pub(super) status: u32,
    pub(super) size: u64,
    pub(super) max: u64,
    /// Offset that all slots have at the beginning.
    pub(super) initial: u64,
    /// Number of bits for the offset.
    pub(super) bits: u32,
    pub(super) align: u32,
    pub(super) gap: u64,
}

/// `NETMAP_REQ_OPT_OFFSETS`.
pub(super) const OFFSETS: u32 = 5;
/// Number of bits for an offset.
pub(super) const OFFSET_BITS: u32 = 16;

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn layout_is_that_of_netmap_header() {
        assert_eq!((size_of::<Slot>(), offset_of!(Slot, pointer)), (16, 8));
        assert_eq!((offset_of!(Slot, len), offset_of!(Slot, flags)), (4, 6));
        let ring = [
            offset_of!(RingHeader, slots),
            offset_of!(RingHeader, buffer_len),
            offset_of!(RingHeader, head),
            offset_of!(RingHeader, current),
            offset_of!(RingHeader, tail),
            offset_of!(RingHeader, offset_mask),
        ];
        assert_eq!(ring, [8, 12, 20, 24, 28, 56]);
        assert_eq!(size_of::<Interface>(), RINGS_AT);
        assert_eq!(offset_of!(Interface, tx_rings), 24);
        assert_eq!(offset_of!(Interface, host_tx_rings), 36);
        assert_eq!((size_of::<Request>(), offset_of!(Request, body)), (88, 80));
        assert_eq!((size_of::<Register>(), offset_of!(Register, memory)), (56, 32));
        assert_eq!((offset_of!(Register, mode), offset_of!(Register, flags)), (36, 48));
        assert_eq!((size_of::<Offsets>(), offset_of!(Offsets, gap)), (56, 48));
    }
}
