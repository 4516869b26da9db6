//! The client's side of a memif ring, in either direction.

use super::MemifLayout;
use crate::Lie;
use crate::sync::{Ordering, fence};

/// The receiving side wants no interrupts.
pub(super) const MASK_INTERRUPTS: u16 = 1;

/// The client's side of a ring. Entries are posted, and come back from the server, in order.
///
/// What the server writes is its index, and length and flags of what it fills; where a buffer lies is
/// never read from the ring.
#[derive(Debug)]
pub struct ClientRing {
    ring: MemifLayout,
    /// The next entry to post, running.
    head: u16,
    /// As far as the server knows of.
    published: u16,
    /// The next entry to take back, running.
    tail: u16,
    /// The server's index when it was last looked at, running.
    returned: u16,
}

/// An entry that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// Its place in the ring.
    pub entry: u16,
    /// The length that it has now; the server's word.
    pub len: u32,
    /// Whether the frame goes on in the next entry.
    pub more: bool,
}

impl ClientRing {
    /// A new, empty ring. The server must not be using it yet.
    pub fn new(ring: MemifLayout) -> Self {
        ring.clear();
        Self { ring, head: 0, published: 0, tail: 0, returned: 0 }
    }

    /// How many entries can be posted.
    #[inline(always)]
    pub fn room(&self) -> u16 {
        self.ring.size.get() - self.in_use()
    }

    /// How many are posted and have not been taken back.
    #[inline(always)]
    pub fn in_use(&self) -> u16 {
        self.head.wrapping_sub(self.tail)
    }

    /// The entry that is posted `ahead` entries from now.
    #[inline(always)]
    pub fn entry(&self, ahead: u16) -> u16 {
        self.ring.size.slot(self.head.wrapping_add(ahead)) as u16
    }

    /// Posts the next entry: `len` bytes `offset` bytes into the first region, and whether the frame goes
    /// on in the one after it.
    ///
    /// # Panics
    /// Where there is no [`room`](Self::room).
    #[inline(always)]
    pub fn post(&mut self, offset: u32, len: u32, more: bool) {
        assert!(self.room() > 0, "a full ring");
        self.ring.set_descriptor(self.head, offset, len, more);
        self.head = self.head.wrapping_add(1);
    }

    /// Makes everything posted known to the server. Whether it wants an interrupt, as the receiving side.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.head == self.published {
            return false;
        }
        self.published = self.head;
        let header = self.ring.header();
        header.head.store(self.head, Ordering::Release);
        // The wish must be read after the other side can have seen the index, or both would sleep.
        fence(Ordering::SeqCst);
        header.flags.load(Ordering::Relaxed) & MASK_INTERRUPTS == 0
    }

    /// How many entries have come back and were not taken.
    #[inline]
    pub fn poll(&mut self) -> Result<u16, Lie> {
        let tail = self.ring.header().tail.load(Ordering::Acquire);
        let (new, size) = (tail.wrapping_sub(self.tail), self.published.wrapping_sub(self.tail));
        // It cannot return what it was not given, nor take back what it has returned.
        if new > size || new < self.returned.wrapping_sub(self.tail) {
            return Err(Lie::IndexJump { from: self.returned, to: tail, size });
        }
        self.returned = tail;
        Ok(new)
    }

    /// The `index`th of the entries that have come back.
    ///
    /// # Panics
    /// Where [`poll`](Self::poll) did not count so many.
    #[inline(always)]
    pub fn returned(&self, index: u16) -> Returned {
        assert!(index < self.returned.wrapping_sub(self.tail), "entry {index} is out");
        let at = self.tail.wrapping_add(index);
        let (len, more) = self.ring.descriptor(at);
        Returned { entry: self.ring.size.slot(at) as u16, len, more }
    }

    /// Takes back the first `count` of the entries that have come back: they can be posted again.
    ///
    /// # Panics
    /// Where [`poll`](Self::poll) did not count so many.
    #[inline(always)]
    pub fn take(&mut self, count: u16) {
        assert!(count <= self.returned.wrapping_sub(self.tail), "{count} entries are out");
        self.tail = self.tail.wrapping_add(count);
    }

    /// As the receiving side, asks for an interrupt when an entry comes back, or for none. Whether one
    /// has come back already: then none may ever come for it.
    pub fn want_interrupts(&mut self, on: bool) -> bool {
        let flags = if on { 0 } else { MASK_INTERRUPTS };
        self.ring.header().flags.store(flags, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // A lie counts as work: whoever polls next finds out.
        self.poll().map_or(true, |returned| returned > 0)
    }
}
