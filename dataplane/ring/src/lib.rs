//! Virtqueues as in Virtio 1.3, sections 2.7 (split) and 2.8 (packed): both layouts, both sides.
//! Also both sides of the rings of [`memif`], and a ring of [`records`] for a local user.
//!
//! * [`DriverQueue`]: the side that owns the memory, posts buffers and polls returned ones.
//! * [`DeviceQueue`]: the side that pops the buffers, fills or reads them and returns them.
//!
//! Neither side trusts the other. A ring is read only through relaxed atomics, each field once into
//! a local that is checked and then used. An impossible index or address is a [`RingError`], and
//! the side that detects it disconnects the peer. Only the two sides' indices (split) or flags
//! (packed) carry ordering.
//!
//! Functions called for every frame are always inlined (`#[inline(always)]`): otherwise their large
//! results pass through memory, where reading a field next to one just written stalls the processor
//! for longer than everything else takes (see `make bench`). A loop over a batch is a function of
//! its own: in a larger one, the compiler stores the loop's counters in memory.
//!
//! Each side keeps to its own cache lines: it caches the other side's index until that runs out,
//! and rewrites an entry only if the entry changes.
//!
//! A driver and a device that share a ring in one process:
//!
//! ```
//! use std::ptr::NonNull;
//!
//! use dray_ring::split::{SplitDevice, SplitDriver, SplitLayout};
//! use dray_ring::{Access, AddressSpace, Buffer, DeviceQueue, DriverQueue, QueueSize, Used};
//!
//! /// A buffer's address is its offset from `start`.
//! struct Memory {
//!     start: NonNull<u8>,
//!     len: u64,
//! }
//!
//! impl AddressSpace for Memory {
//!     fn translate(&self, address: u64, len: u64, _: &mut usize) -> Option<NonNull<u8>> {
//!         let fits = address.checked_add(len)? <= self.len;
//!         // SAFETY: the range is in the memory.
//!         fits.then(|| unsafe { self.start.add(address as usize) })
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut pages = vec![0u128; 4096 / 16];
//! let start: NonNull<u8> = NonNull::new(pages.as_mut_ptr()).unwrap().cast();
//! let memory = Memory { start, len: 4096 };
//! let size = QueueSize::new(8)?;
//! // SAFETY: each part lies in the memory, which lives longer than both queues.
//! let layout = unsafe { SplitLayout::new(size, start, start.add(512), start.add(1024))? };
//! let mut driver = SplitDriver::new(layout, false);
//! let mut device = SplitDevice::new(layout, 0, false, false);
//!
//! let buffer = Buffer { address: 2048, len: 64, access: Access::Read };
//! let id = driver.post(&[buffer]).expect("the ring is empty");
//! driver.publish();
//! let chain = device.pop(&memory, Access::Read)?.expect("one buffer is available");
//! assert_eq!(chain.first.len, 64);
//! device.push(&chain, 0);
//! device.publish();
//! assert_eq!(driver.poll()?, Some(Used { id, len: 0 }));
//! # Ok(())
//! # }
//! ```

#[cfg(not(loom))]
mod align;
mod chain;
mod error;
mod ids;
pub mod memif;
pub mod packed;
mod progress;
#[cfg(not(loom))]
pub mod records;
mod size;
pub mod split;
mod sync;

use arrayvec::ArrayVec;
use dray_shm::SharedWord;

#[cfg(not(loom))]
pub use align::AlignError;
pub use chain::{Access, AddressSpace, Buffer, CHAIN_MAX, Chain, Plain, Segment};
pub use error::RingError;
pub use progress::Progress;
pub use size::{QueueSize, SizeError};

/// The device side of a virtqueue.
///
/// A device [`pop`](Self::pop)s chains, returns them with [`push`](Self::push) in the same order,
/// and makes the batch visible with [`publish`](Self::publish).
pub trait DeviceQueue: Send {
    /// Returns the number of entries of the ring.
    fn size(&self) -> u16;

    /// Sets the number of descriptors that [`pop`](Self::pop) and [`pop_plain`](Self::pop_plain)
    /// may read together, in the ring and in indirect tables; by default there is no limit. A
    /// buffer that is not taken does not count. With an exhausted budget, no chain is available. A
    /// chain is always read to its end, which may take [`CHAIN_MAX`] descriptors beyond the budget,
    /// and one for its table.
    fn set_budget(&mut self, descriptors: u32);

    /// Returns the next available chain, if all of its buffers are in `memory` and allow `access`.
    /// Its buffers after the first are in [`rest`](Self::rest) until the next call. Popped chains
    /// never take more entries than the ring has.
    fn pop<M: AddressSpace>(
        &mut self,
        memory: &M,
        access: Access,
    ) -> Result<Option<Chain>, RingError>;

    /// Passes chains of one buffer to `take` and pops those that it accepts, up to `most`, until
    /// `take` returns false, no chain is left, or the next chain has several buffers. Returns true
    /// in the last case: [`pop`](Self::pop) returns that chain. With an error, no chain is popped,
    /// not even one that `take` has accepted.
    fn pop_plain<M: AddressSpace>(
        &mut self,
        memory: &M,
        access: Access,
        most: usize,
        take: impl FnMut(Plain) -> bool,
    ) -> Result<bool, RingError>;

    /// Like [`push`](Self::push), for chains of one buffer: the identity of each, and the number of
    /// bytes written into it.
    fn push_plain(&mut self, used: impl Iterator<Item = (u16, u32)>);

    /// Records the device's [`Progress`] in `word` from now on. A device that continues after this
    /// one was killed reads it.
    fn publish_progress(&mut self, word: SharedWord);

    /// Marks the popped chains as about to be used. If this device is killed before it has returned
    /// them, the next one returns them without reading them again.
    fn commit(&mut self);

    /// Returns the buffers after the first one of the chain popped last.
    fn rest(&self) -> &[Segment];

    /// Puts back the chains popped last, which take `slots` ring entries in all.
    fn unpop(&mut self, slots: u16);

    /// Returns a chain to the driver; `len` bytes were written into it.
    fn push(&mut self, chain: &Chain, len: u32);

    /// Returns chains, each with the number of bytes written into it, so that the driver sees all
    /// of them or none: the chains that one frame was spread over (Virtio 1.3, section 5.1.6.4.1).
    fn push_together(&mut self, chains: &[(Chain, u32)]);

    /// Makes all pushed chains visible to the driver. Returns true if the driver wants a call.
    fn publish(&mut self) -> bool;

    /// Sets whether the driver should kick when it makes a buffer available. Returns true if a
    /// buffer is available now, for which the driver may never kick.
    fn want_kicks(&mut self, on: bool) -> bool;

    /// Returns the device's position, as in vhost-user's `GET_VRING_BASE`: in a split ring the next
    /// available index; in a packed one the next entry, with its wrap bit in bit 15.
    fn base(&self) -> u16;
}

/// The driver side of a virtqueue.
///
/// A driver [`post`](Self::post)s buffers, makes the batch visible with [`publish`](Self::publish),
/// and [`poll`](Self::poll)s returned ones.
pub trait DriverQueue: Send {
    /// Appends the free identities to `out`, as many as fit, in the order in which the buffers of
    /// the next chains will use them. A driver with a fixed memory area for each identity can thus
    /// fill it first.
    fn ids<const N: usize>(&self, out: &mut ArrayVec<u16, N>);

    /// Returns the first of the [`ids`](Self::ids), if the ring has room.
    fn next_id(&self) -> Option<u16> {
        let mut one = ArrayVec::<u16, 1>::new();
        self.ids(&mut one);
        one.pop()
    }

    /// Posts one chain of `buffers`. Returns its identity, which is that of its first buffer;
    /// `None` if the ring has no room for it.
    fn post(&mut self, buffers: &[Buffer]) -> Option<u16>;

    /// Makes all posted chains visible to the device. Returns true if the device wants a kick.
    fn publish(&mut self) -> bool;

    /// Returns the next chain that the device has returned, and the number of bytes it claims to
    /// have written.
    fn poll(&mut self) -> Result<Option<Used>, RingError>;

    /// Like [`poll`](Self::poll), up to `most` times, until no chain is left. The fast path is for
    /// chains of one buffer.
    fn poll_each(&mut self, most: usize, each: impl FnMut(Used)) -> Result<(), RingError>;

    /// Returns the number of identities in use: those of buffers posted and not polled yet.
    fn in_use(&self) -> u16;

    /// Posts the `count` identities that have been free for longest again, each as a chain of one
    /// buffer, with the buffer that it was last posted with. None of them may have been posted in a
    /// chain of several buffers last.
    ///
    /// # Panics
    /// If fewer are free.
    fn repost(&mut self, count: u16);

    /// Sets whether the device should call when it returns a buffer. Returns true if a buffer has
    /// been returned already, for which the device may never call.
    fn want_calls(&mut self, on: bool) -> bool;
}

/// A chain that the device returned to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Identity of the chain, from [`DriverQueue::post`].
    pub id: u16,
    /// Number of bytes that the device claims to have written.
    pub len: u32,
}

/// Returns true if the other side asked for an event between the index that was published before
/// (`old`) and the one published now (`new`), both running (Virtio 1.3, section 2.7.10).
#[inline]
fn event_wanted(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
