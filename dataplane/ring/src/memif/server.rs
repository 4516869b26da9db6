//! The server's side of a memif ring, in either direction.

use dray_shm::SharedWord;

use super::MemifLayout;
use super::client::MASK_INTERRUPTS;
use crate::RingError;
use crate::progress::{Progress, ProgressCell};
use crate::sync::{Ordering, fence};

/// The server's side of a ring. Entries are taken and returned in order.
///
/// The client may write everything in the ring but the tail, at any time. The server reads each
/// field of an entry once. The caller checks that the entry's buffer is in the client's memory.
#[derive(Debug)]
pub struct ServerRing {
    ring: MemifLayout,
    /// Next entry to take, running.
    next: u16,
    /// Tail that the client knows.
    published: u16,
    /// The client's index when it was last read, running.
    head: u16,
    progress: ProgressCell,
}

/// An entry that the client has posted, by the client's unchecked description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// Number of the region that the buffer is in.
    pub region: u16,
    /// Offset of the buffer in the region, in bytes.
    pub offset: u32,
    /// Length of the frame's part, or of an empty buffer.
    pub len: u32,
    /// True if the frame continues in the next entry.
    pub more: bool,
}

impl ServerRing {
    /// Creates the server's side of an empty ring of the client.
    ///
    /// # Errors
    /// If the memory contains no ring.
    pub fn new(ring: MemifLayout) -> Result<Self, RingError> {
        match ring.wrong_cookie() {
            Some(found) => Err(RingError::Cookie { found }),
            None => {
                Ok(Self { ring, next: 0, published: 0, head: 0, progress: ProgressCell::default() })
            }
        }
    }

    /// Creates the server's side of a ring that another server, which may have been killed, has
    /// used. Continues at the published tail. `progress` is the other server's, if it received on
    /// the ring: entries that it has used but not returned are returned unread.
    ///
    /// # Errors
    /// If the memory contains no ring, or the client has revoked such entries.
    pub fn resume(ring: MemifLayout, progress: Option<Progress>) -> Result<Self, RingError> {
        let tail = ring.header().tail.load(Ordering::Relaxed);
        let mut server = Self { next: tail, published: tail, head: tail, ..Self::new(ring)? };
        let unreturned = progress.map_or(0, |progress| progress.next.wrapping_sub(tail));
        let size = server.size();
        // Progress that is older than the tail leaves nothing to return.
        if unreturned == 0 || unreturned > size {
            return Ok(server);
        }
        if server.poll()? < unreturned {
            return Err(RingError::IndexJump {
                from: tail,
                to: tail.wrapping_add(unreturned),
                size,
            });
        }
        server.take(unreturned);
        server.publish();
        Ok(server)
    }

    /// Records the progress of this side in `word` from now on, as a
    /// [device](crate::DeviceQueue::publish_progress) does.
    pub fn publish_progress(&mut self, word: SharedWord) {
        self.progress = ProgressCell::at(word);
        self.commit(0);
    }

    /// Marks the first `count` of the posted entries as about to be used. If this side is killed
    /// before it has returned them, the next one returns them without reading them again.
    #[inline(always)]
    pub fn commit(&self, count: u16) {
        self.progress.record(self.published, self.next.wrapping_add(count), 1);
    }

    /// Returns the number of entries.
    #[inline]
    pub fn size(&self) -> u16 {
        self.ring.size.get()
    }

    /// Returns the number of entries that the client claims to have posted and that were not taken;
    /// at most [`size`](Self::size).
    pub fn waiting(&self) -> u16 {
        let head = self.ring.header().head.load(Ordering::Relaxed);
        head.wrapping_sub(self.next).min(self.size())
    }

    /// Returns the number of entries that the client has posted and that were not taken.
    #[inline]
    pub fn poll(&mut self) -> Result<u16, RingError> {
        let head = self.ring.header().head.load(Ordering::Acquire);
        let (out, size) = (head.wrapping_sub(self.published), self.size());
        // The ring bounds the posted entries, and the client cannot revoke any.
        if out > size || out < self.head.wrapping_sub(self.published) {
            return Err(RingError::IndexJump { from: self.head, to: head, size });
        }
        self.head = head;
        Ok(head.wrapping_sub(self.next))
    }

    /// Returns entry `index` of those that the client has posted.
    ///
    /// # Panics
    /// If [`poll`](Self::poll) has not counted that many.
    #[inline(always)]
    pub fn posted(&self, index: u16) -> Posted {
        self.check(index);
        let (region, offset, len, more) = self.ring.posted(self.next.wrapping_add(index));
        Posted { region, offset, len, more }
    }

    /// Writes that entry `index` of those that the client has posted now holds `len` bytes; `more`
    /// is true if the frame continues in the entry after it.
    ///
    /// # Panics
    /// If [`poll`](Self::poll) has not counted that many.
    #[inline(always)]
    pub fn fill(&mut self, index: u16, len: u32, more: bool) {
        self.check(index);
        self.ring.fill(self.next.wrapping_add(index), len, more);
    }

    #[inline(always)]
    fn check(&self, index: u16) {
        assert!(index < self.head.wrapping_sub(self.next), "entry {index} is not posted");
    }

    /// Takes the first `count` of the posted entries: [`publish`](Self::publish) returns them.
    ///
    /// # Panics
    /// If [`poll`](Self::poll) has not counted that many.
    #[inline(always)]
    pub fn take(&mut self, count: u16) {
        assert!(count <= self.head.wrapping_sub(self.next), "{count} entries are not posted");
        self.next = self.next.wrapping_add(count);
    }

    /// Returns everything taken to the client. Returns true if the client, as the receiving side,
    /// wants an interrupt.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.next == self.published {
            self.commit(0);
            return false;
        }
        self.published = self.next;
        let header = self.ring.header();
        header.tail.store(self.next, Ordering::Release);
        // The flag must be read after the index is visible to the other side, or both would sleep.
        fence(Ordering::SeqCst);
        self.commit(0);
        header.flags.load(Ordering::Relaxed) & MASK_INTERRUPTS == 0
    }

    /// As the receiving side, sets whether the client should interrupt when an entry is posted.
    /// Returns true if an entry is posted already: the client may send no interrupt for it.
    pub fn want_interrupts(&mut self, on: bool) -> bool {
        let flags = if on { 0 } else { MASK_INTERRUPTS };
        self.ring.header().flags.store(flags, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // A protocol violation counts as work: the next poll reports it.
        self.poll().map_or(true, |posted| posted > 0)
    }
}
