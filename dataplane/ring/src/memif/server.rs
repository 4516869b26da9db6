//! The server's side of a memif ring, for the model checker, which needs both sides.

use super::MemifLayout;
use super::client::{MASK_INTERRUPTS, Returned};
use crate::sync::{Ordering, fence};

/// The server's side of a ring. Entries are taken and returned in order.
#[derive(Debug)]
pub struct ServerRing {
    ring: MemifLayout,
    /// Next entry to take, running.
    next: u16,
    /// Tail that the client knows.
    published: u16,
}

impl ServerRing {
    /// Creates the server's side of a ring that the client has made empty.
    pub fn new(ring: MemifLayout) -> Self {
        Self { ring, next: 0, published: 0 }
    }

    /// Takes the next entry that the client has posted.
    pub fn take(&mut self) -> Option<Returned> {
        if self.ring.header().head.load(Ordering::Acquire) == self.next {
            return None;
        }
        let (len, more) = self.ring.descriptor(self.next);
        let entry = self.ring.size.slot(self.next) as u16;
        self.next = self.next.wrapping_add(1);
        Some(Returned { entry, len, more })
    }

    /// Fills the entry that was taken last.
    pub fn fill(&mut self, len: u32, more: bool) {
        self.ring.set_descriptor(self.next.wrapping_sub(1), 0, len, more);
    }

    /// Returns everything taken to the client. Returns true if the client, as the receiving side,
    /// wants an interrupt.
    pub fn publish(&mut self) -> bool {
        if self.next == self.published {
            return false;
        }
        self.published = self.next;
        let header = self.ring.header();
        header.tail.store(self.next, Ordering::Release);
        fence(Ordering::SeqCst);
        header.flags.load(Ordering::Relaxed) & MASK_INTERRUPTS == 0
    }

    /// As the receiving side, sets whether the client should interrupt when an entry is posted.
    /// Returns true if one is posted already.
    pub fn want_interrupts(&mut self, on: bool) -> bool {
        let header = self.ring.header();
        let flags = if on { 0 } else { MASK_INTERRUPTS };
        header.flags.store(flags, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        header.head.load(Ordering::Acquire) != self.next
    }
}
