//! The client's side of a memif ring, in either direction.

use super::MemifLayout;
use crate::RingError;
use crate::sync::{Ordering, fence};

/// The receiving side wants no interrupts.
pub(super) const MASK_INTERRUPTS: u16 = 1;

/// The client's side of a ring. Entries are posted, and come back from the server, in order.
///
/// The server writes its index, and length and flags of the entries that it fills; the location of
/// a buffer is never read from the ring.
#[derive(Debug)]
pub struct ClientRing {
    ring: MemifLayout,
    /// Next entry to post, running.
    head: u16,
    /// Head that the server knows.
    published: u16,
    /// Next entry to take back, running.
    tail: u16,
    /// The server's index when it was last read, running.
    returned: u16,
}

/// An entry that the server has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// Index of the entry in the ring.
    pub entry: u16,
    /// Length of the entry now, as claimed by the server.
    pub len: u32,
    /// True if the frame continues in the next entry.
    pub more: bool,
}

impl ClientRing {
    /// Creates an empty ring. The server must not be using it yet.
    pub fn new(ring: MemifLayout) -> Self {
        ring.clear();
        Self { ring, head: 0, published: 0, tail: 0, returned: 0 }
    }

    /// Returns the number of entries that can be posted.
    #[inline(always)]
    pub fn room(&self) -> u16 {
        self.ring.size.get() - self.in_use()
    }

    /// Returns the number of entries that are posted and have not been taken back.
    #[inline(always)]
    pub fn in_use(&self) -> u16 {
        self.head.wrapping_sub(self.tail)
    }

    /// Returns the number of entries.
    pub fn size(&self) -> u16 {
        self.ring.size.get()
    }

    /// Returns the number of entries that the server claims to have returned and that were not
    /// taken back; at most [`size`](Self::size).
    pub fn waiting(&self) -> u16 {
        let tail = self.ring.header().tail.load(Ordering::Relaxed);
        tail.wrapping_sub(self.tail).min(self.size())
    }

    /// Returns the index of the entry that is posted after the next `ahead` ones.
    #[inline(always)]
    pub fn entry(&self, ahead: u16) -> u16 {
        self.ring.size.slot(self.head.wrapping_add(ahead)) as u16
    }

    /// Posts the next entry: `len` bytes at `offset` in the first region; `more` is true if the
    /// frame continues in the entry after it.
    ///
    /// # Panics
    /// If there is no [`room`](Self::room).
    #[inline(always)]
    pub fn post(&mut self, offset: u32, len: u32, more: bool) {
        assert!(self.room() > 0, "a full ring");
        self.ring.set_descriptor(self.head, offset, len, more);
        self.head = self.head.wrapping_add(1);
    }

    /// Like [`post`](Self::post), for frames of one entry each: their lengths, and the offset of an
    /// entry's buffer.
    ///
    /// # Panics
    /// If there is no [`room`](Self::room) for all.
    #[inline(always)]
    pub fn post_each(&mut self, lens: impl Iterator<Item = u32>, offset: impl Fn(u16) -> u32) {
        // A local, written back once: reading a field again would wait for stores to the peer's
        // memory.
        let (ring, mut head) = (self.ring, self.head);
        for len in lens {
            assert!(head.wrapping_sub(self.tail) < ring.size.get(), "a full ring");
            ring.set_descriptor(head, offset(ring.size.slot(head) as u16), len, false);
            head = head.wrapping_add(1);
        }
        self.head = head;
    }

    /// Makes all posted entries visible to the server. Returns true if the server, as the receiving
    /// side, wants an interrupt.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.head == self.published {
            return false;
        }
        self.published = self.head;
        let header = self.ring.header();
        header.head.store(self.head, Ordering::Release);
        // The flag must be read after the index is visible to the other side, or both would sleep.
        fence(Ordering::SeqCst);
        header.flags.load(Ordering::Relaxed) & MASK_INTERRUPTS == 0
    }

    /// Returns the number of entries that the server has returned and that were not taken back.
    #[inline]
    pub fn poll(&mut self) -> Result<u16, RingError> {
        let tail = self.ring.header().tail.load(Ordering::Acquire);
        let (new, size) = (tail.wrapping_sub(self.tail), self.published.wrapping_sub(self.tail));
        // The server cannot return entries it was not given, nor revoke entries it has returned.
        if new > size || new < self.returned.wrapping_sub(self.tail) {
            return Err(RingError::IndexJump { from: self.returned, to: tail, size });
        }
        self.returned = tail;
        Ok(new)
    }

    /// Returns entry `index` of those that the server has returned.
    ///
    /// # Panics
    /// If [`poll`](Self::poll) has not counted that many.
    #[inline(always)]
    pub fn returned(&self, index: u16) -> Returned {
        assert!(index < self.returned.wrapping_sub(self.tail), "entry {index} is out");
        let at = self.tail.wrapping_add(index);
        let (len, more) = self.ring.descriptor(at);
        Returned { entry: self.ring.size.slot(at) as u16, len, more }
    }

    /// Takes back the first `count` of the returned entries, which can then be posted again.
    ///
    /// # Panics
    /// If [`poll`](Self::poll) has not counted that many.
    #[inline(always)]
    pub fn take(&mut self, count: u16) {
        assert!(count <= self.returned.wrapping_sub(self.tail), "{count} entries are out");
        self.tail = self.tail.wrapping_add(count);
    }

    /// As the receiving side, sets whether the server should interrupt when an entry is returned.
    /// Returns true if an entry has been returned already: the server may send no interrupt for it.
    pub fn want_interrupts(&mut self, on: bool) -> bool {
        let flags = if on { 0 } else { MASK_INTERRUPTS };
        self.ring.header().flags.store(flags, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // A protocol violation counts as work: the next poll reports it.
        self.poll().map_or(true, |returned| returned > 0)
    }
}
