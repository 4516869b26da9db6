//! Rings between the kernel and an AF_XDP socket (linux/if_xdp.h): one side produces, the other
//! consumes, and each index is written by one side only.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::XdpRingOffset;

/// Number of entries of most rings, and of chunks that a socket has to receive into and to transmit
/// from.
pub(super) const RING_LEN: u32 = 2048;

/// Number of entries of the fill ring: more than there are chunks, because the kernel does not tell
/// at once which ones it has taken.
pub(super) const FILL_RING_LEN: u32 = 2 * RING_LEN;

/// The fill ring.
pub(super) type Fill = Producer<u64, FILL_RING_LEN>;

/// `XDP_RING_NEED_WAKEUP`.
const NEED_WAKEUP: u32 = 1;

/// A mapped ring of `LEN` entries of `T`; `LEN` is a power of two.
struct Ring<T, const LEN: u32> {
    pages: NonNull<libc::c_void>,
    len: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
}

// SAFETY: a ring is memory that the kernel shares with the owner of this value.
unsafe impl<T: Send, const LEN: u32> Send for Ring<T, LEN> {}

impl<T: Copy, const LEN: u32> Ring<T, LEN> {
    /// Maps the ring of `socket` at `page_offset`.
    fn map(socket: BorrowedFd<'_>, page_offset: u64, at: &XdpRingOffset) -> io::Result<Self> {
        let old = || io::Error::new(io::ErrorKind::Unsupported, "AF_XDP rings need Linux 5.4");
        let len = at.desc as usize + LEN as usize * size_of::<T>();
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let pages = unsafe {
            mmap(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                socket,
                page_offset,
            )
        }?;
        let pages = NonNull::new(pages).expect("mmap gives an address or fails");
        // SAFETY: the kernel gives offsets within the ring that it made.
        let part = |offset: u64| unsafe { pages.cast::<u8>().add(offset as usize) };
        Ok(Self {
            pages,
            len,
            producer: part(at.producer).cast(),
            consumer: part(at.consumer).cast(),
            flags: part(at.flags.ok_or_else(old)?).cast(),
            entries: part(at.desc).cast(),
        })
    }

    #[inline(always)]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: the index is mapped as long as this value lives, and aligned by the kernel.
        unsafe { self.producer.as_ref() }
    }

    #[inline(always)]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    #[inline(always)]
    fn needs_wakeup(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }

    #[inline(always)]
    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: the mask keeps the entry within the mapping.
        unsafe { self.entries.add((index & (LEN - 1)) as usize) }
    }
}

impl<T, const LEN: u32> Drop for Ring<T, LEN> {
    fn drop(&mut self) {
        // SAFETY: the pages were mapped by `map`, and no pointer into them is in use.
        let _ = unsafe { munmap(self.pages.as_ptr(), self.len) };
    }
}

/// A ring that this side fills.
pub(super) struct Producer<T, const LEN: u32 = RING_LEN> {
    ring: Ring<T, LEN>,
    /// Running index of the next entry to write; earlier entries belong to the kernel once
    /// submitted.
    next: u32,
    /// The kernel's index when it was last read.
    consumed: u32,
}

impl<T: Copy, const LEN: u32> Producer<T, LEN> {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        at: &XdpRingOffset,
    ) -> io::Result<Self> {
        Ok(Self { ring: Ring::map(socket, page_offset, at)?, next: 0, consumed: 0 })
    }

    /// Continues where another process has stopped, which has submitted all but what it pushed
    /// last.
    pub(super) fn resume(&mut self) {
        self.next = self.ring.producer().load(Ordering::Acquire);
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
    }

    /// Returns the running index of the next entry to push.
    #[inline(always)]
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Returns the entry at a running index, whatever it contains.
    pub(super) fn read(&self, index: u32) -> T {
        // SAFETY: the entry is mapped, and the kernel writes none on this ring.
        unsafe { self.ring.entry(index).read() }
    }

    /// Returns how many entries can be pushed. The kernel's index is read only if there is not
    /// known to be room for `wanted`.
    #[inline]
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let room = |consumed: u32| LEN.saturating_sub(self.next.wrapping_sub(consumed));
        if room(self.consumed) < wanted {
            self.consumed = self.ring.consumer().load(Ordering::Acquire);
        }
        room(self.consumed)
    }

    /// Writes an entry; there must be [`room`](Self::room) for it.
    #[inline(always)]
    pub(super) fn push(&mut self, entry: T) {
        debug_assert!(self.next.wrapping_sub(self.consumed) < LEN, "no room");
        // SAFETY: the entry is ours until it is submitted.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Gives the pushed entries to the kernel.
    #[inline]
    pub(super) fn submit(&self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Returns the number of submitted entries that the kernel has not taken.
    #[inline]
    pub(super) fn waiting(&self) -> u32 {
        self.next.wrapping_sub(self.ring.consumer().load(Ordering::Acquire))
    }

    /// Returns true if the kernel takes nothing from this ring until it is called.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// A ring that the kernel fills.
pub(super) struct Consumer<T> {
    ring: Ring<T, RING_LEN>,
    /// Running index of the next entry to read; earlier entries belong to the kernel once
    /// released.
    next: u32,
    /// The kernel's index when it was last read.
    produced: u32,
}

impl<T: Copy> Consumer<T> {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        at: &XdpRingOffset,
    ) -> io::Result<Self> {
        Ok(Self { ring: Ring::map(socket, page_offset, at)?, next: 0, produced: 0 })
    }

    /// Continues where another process has stopped.
    pub(super) fn resume(&mut self) {
        self.next = self.ring.consumer().load(Ordering::Acquire);
        self.produced = self.ring.producer().load(Ordering::Acquire);
    }

    /// Returns the running index of the next entry to read.
    #[inline(always)]
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Returns how many entries can be read. The kernel's index is read only if fewer than `wanted`
    /// are known.
    #[inline]
    pub(super) fn available(&mut self, wanted: u32) -> u32 {
        if self.produced.wrapping_sub(self.next) < wanted {
            self.produced = self.ring.producer().load(Ordering::Acquire);
        }
        self.produced.wrapping_sub(self.next)
    }

    /// Returns the entry `offset` after the next; it must be [`available`](Self::available).
    #[inline(always)]
    pub(super) fn get(&self, offset: u32) -> T {
        debug_assert!(offset < self.produced.wrapping_sub(self.next), "entry is not produced yet");
        // SAFETY: the kernel has written the entry, and does not write it again until it is
        // released.
        unsafe { self.ring.entry(self.next.wrapping_add(offset)).read() }
    }

    /// Returns the next `count` entries to the kernel.
    #[inline]
    pub(super) fn release(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count);
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    /// Memory that both sides map, as they map the kernel's.
    fn ring() -> (OwnedFd, XdpRingOffset) {
        let memory = memfd_create("ring", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&memory, 192 + u64::from(RING_LEN) * 8).unwrap();
        (memory, XdpRingOffset { producer: 0, consumer: 64, desc: 192, flags: Some(128) })
    }

    #[test]
    fn entries_stay_in_order_across_index_wrap() {
        let (memory, at) = ring();
        let start = 0_u32.wrapping_sub(3000);
        let mut producer = Producer::<u64>::map(memory.as_fd(), 0, &at).unwrap();
        let mut consumer = Consumer::<u64>::map(memory.as_fd(), 0, &at).unwrap();
        (producer.next, producer.consumed) = (start, start);
        (consumer.next, consumer.produced) = (start, start);
        producer.submit();
        consumer.release(0);
        let (mut sent, mut received) = (0, 0);
        for round in 0..200 {
            // Sometimes more than there is room for.
            let room = producer.room(RING_LEN);
            assert_eq!(room, RING_LEN - (sent - received) as u32);
            let count = (round * 37 % 2100).min(room);
            for _ in 0..count {
                producer.push(sent);
                sent += 1;
            }
            let before = consumer.available(RING_LEN + 1);
            assert_eq!(u64::from(before), sent - u64::from(count) - received, "not submitted");
            producer.submit();
            assert_eq!(u64::from(producer.waiting()), sent - received);
            let available = consumer.available(RING_LEN + 1);
            assert_eq!(u64::from(available), sent - received);
            // Not always all entries.
            let taken = available - available / 3 * (round % 2);
            for offset in 0..taken {
                assert_eq!(consumer.get(offset), received + u64::from(offset));
            }
            consumer.release(taken);
            received += u64::from(taken);
        }
        assert!(producer.next < start, "it has wrapped");
    }

    #[test]
    fn full_ring_has_no_room_until_consumed() {
        let (memory, at) = ring();
        let mut producer = Producer::<u64>::map(memory.as_fd(), 0, &at).unwrap();
        let mut consumer = Consumer::<u64>::map(memory.as_fd(), 0, &at).unwrap();
        (0..u64::from(RING_LEN)).for_each(|entry| producer.push(entry));
        producer.submit();
        assert_eq!((producer.room(1), consumer.available(1)), (0, RING_LEN));
        consumer.release(1);
        assert_eq!((producer.room(1), consumer.available(1)), (1, RING_LEN - 1));
        assert!(!producer.needs_wakeup());
    }
}
