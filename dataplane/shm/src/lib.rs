//! Memory shared with an untrusted peer.
//!
//! * [`MemoryFile`]: memory as a file descriptor, ours (sealed) or a peer's.
//! * [`Mapping`]: such a file in our address space. A peer that truncates its file while we use it
//!   loses only its own data: see [`guard`].
//! * [`GuestMemory`]: the regions that a peer described, and the addresses in them.
//! * [`SharedWords`]: numbers that outlive the process, for another one of this program.
//! * [`cache`]: copies, and hints to the caches, for such memory.
//!
//! Such memory can change at any moment. This crate hands out raw pointers to memory that is
//! guaranteed to be mapped, and no references. Users must read a value once and check the copy,
//! never the shared memory itself.

pub mod cache;
mod file;
pub mod guard;
mod guest;
mod heap;
mod huge;
mod mapping;
mod words;

pub use file::{FileError, MemoryFile, PageSize, name_of};
pub use guest::{GuestMemory, Region, RegionError, Window};
pub use heap::share_heap;
pub use huge::vec_in_huge_pages;
pub use mapping::Mapping;
pub use words::{SharedWord, SharedWords};
