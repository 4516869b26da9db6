//! Virtqueues as in Virtio 1.3, sections 2.7 (split) and 2.8 (packed): both layouts, both sides. And
//! the rings of [`memif`], the client's side.
//!
//! * [`DriverQueue`]: the side that owns the memory, posts buffers and gets them back.
//! * [`DeviceQueue`]: the side that takes the buffers, fills or reads them and returns them.
//!
//! Neither side trusts the other. All of a ring is read through relaxed atomics, each field once
//! into a local that is checked and then used; an index or address that cannot be is a [`Lie`], and
//! who is lied to parts with the peer. Only the two sides' indices (split) or flags (packed) carry
//! ordering.
//!
//! What is called for every frame is inlined always (`#[inline(always)]`): results as large as theirs
//! otherwise pass through memory, where reading a field next to one just written stalls the
//! processor for longer than all the rest takes (see `make bench`).
//!
//! Each side keeps to lines of its own: it caches the other side's index until that runs out, and
//! rewrites an entry only where it differs from what lies there already.

#[cfg(not(loom))]
mod align;
mod chain;
mod free;
mod lie;
pub mod memif;
pub mod packed;
mod size;
pub mod split;
mod sync;

use arrayvec::ArrayVec;

#[cfg(not(loom))]
pub use align::AlignError;
pub use chain::{Access, AddressSpace, Buffer, CHAIN_MAX, Chain, Plain, Segment};
pub use lie::Lie;
pub use size::{QueueSize, SizeError};

/// The device side of a virtqueue.
///
/// A device [`pop`](Self::pop)s chains, returns them with [`push`](Self::push) in the order in
/// which it got them, and makes the batch known with [`publish`](Self::publish).
pub trait DeviceQueue: Send {
    /// Sets how many descriptors may be read from now on, in the ring and in indirect tables, by
    /// [`pop`](Self::pop) and [`pop_plain`](Self::pop_plain) together; without it there is no bound.
    /// Once they have been read nothing is available any more. A chain that has been begun is read to
    /// its end, so up to [`CHAIN_MAX`] more and one for its table are read.
    fn allow(&mut self, descriptors: u32);

    /// The next available chain, all of its buffers found in `memory` and meant for `access`.
    /// What the chain has beyond its first buffer is in [`rest`](Self::rest) until the next call.
    /// Never are more entries out than the ring has.
    fn pop<M: AddressSpace>(&mut self, memory: &M, access: Access) -> Result<Option<Chain>, Lie>;

    /// Pops chains of one buffer until `out` has `most`, there is none left, or the next one has more
    /// buffers than one. Whether that is so: then [`pop`](Self::pop) takes it.
    fn pop_plain<M: AddressSpace, const N: usize>(
        &mut self,
        memory: &M,
        access: Access,
        most: usize,
        out: &mut ArrayVec<Plain, N>,
    ) -> Result<bool, Lie>;

    /// As [`push`](Self::push), of a chain of one buffer.
    fn push_plain(&mut self, id: u16, len: u32);

    /// The buffers behind the first one of the chain popped last.
    fn rest(&self) -> &[Segment];

    /// Puts back the chains popped last, which take `slots` ring entries in all.
    fn unpop(&mut self, slots: u16);

    /// Returns a chain, into which `len` bytes were written.
    fn push(&mut self, chain: &Chain, len: u32);

    /// Returns chains, each with how many bytes were written into it, of which the driver sees all
    /// or none: those that one frame was spread over (Virtio 1.3, section 5.1.6.4.1).
    fn push_together(&mut self, chains: &[(Chain, u32)]);

    /// Makes everything pushed known to the driver. Whether the driver wants to be called.
    fn publish(&mut self) -> bool;

    /// Asks the driver to kick when it makes a buffer available, or not to. Whether one is
    /// available now: then no kick may ever come for it.
    fn want_kicks(&mut self, on: bool) -> bool;

    /// Where the device stands, as vhost-user's `GET_VRING_BASE` gives it: of a split ring the next
    /// available index; of a packed one the next entry, with its wrap bit in bit 15.
    fn base(&self) -> u16;
}

/// The driver side of a virtqueue.
///
/// A driver [`post`](Self::post)s buffers, makes the batch known with [`publish`](Self::publish),
/// and gets them back by [`poll`](Self::poll).
pub trait DriverQueue: Send {
    /// The identities that are free, in the order in which the buffers of the next chains will have
    /// them, up to what `out` has room for. A driver that keeps one piece of memory for each
    /// identity can thus fill it first.
    fn ids<const N: usize>(&self, out: &mut ArrayVec<u16, N>);

    /// The first of the [`ids`](Self::ids), where the ring has room.
    fn next_id(&self) -> Option<u16> {
        let mut one = ArrayVec::<u16, 1>::new();
        self.ids(&mut one);
        one.pop()
    }

    /// Posts one chain of `buffers`. Its identity, that of its first buffer; `None` where the ring has no room for it.
    fn post(&mut self, buffers: &[Buffer]) -> Option<u16>;

    /// Makes everything posted known to the device. Whether the device wants to be kicked.
    fn publish(&mut self) -> bool;

    /// The next chain that the device returned, and how many bytes it says it wrote.
    fn poll(&mut self) -> Result<Option<Used>, Lie>;

    /// As [`poll`](Self::poll), up to `most` times, until nothing is left to poll.
    fn poll_each(&mut self, most: usize, each: impl FnMut(Used)) -> Result<(), Lie>;

    /// How many identities are in use: those of posted buffers that were not polled yet.
    fn in_use(&self) -> u16;

    /// Posts the `count` identities that have been free for longest again, each as a chain of one
    /// buffer, with the buffer that it was posted with last.
    ///
    /// # Panics
    /// Where fewer are free.
    fn repost(&mut self, count: u16);

    /// Asks the device to call when it returns a buffer, or not to. Whether one has been returned
    /// already: then no call may ever come for it.
    fn want_calls(&mut self, on: bool) -> bool;
}

/// A chain that came back to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Which chain, as named by [`DriverQueue::post`].
    pub id: u16,
    /// Bytes that the device says it wrote.
    pub len: u32,
}

/// Whether the other side asked for an event between the index that was published before (`old`)
/// and the one published now (`new`), both running (Virtio 1.3, section 2.7.10).
#[inline]
fn event_wanted(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
