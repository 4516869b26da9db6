//! Memory shared with a peer that is not trusted.
//!
//! * [`MemoryFile`]: memory as a file descriptor, ours (sealed) or a peer's.
//! * [`Mapping`]: such a file in our address space. A peer that truncates its file while we use it
//!   costs us nothing but its data: see [`guard`].
//! * [`GuestMemory`]: the regions that a peer described, and the addresses in them.
//!
//! What lies in such memory can change at any moment. This crate hands out raw pointers to memory
//! that is certainly mapped, and no references; who uses them reads a value once and checks what was
//! read, never what is there.

mod file;
pub mod guard;
mod guest;
mod huge;
mod mapping;

pub use file::{FileError, MemoryFile, PageSize, name_of};
pub use guest::{GuestMemory, Region, RegionError, Window};
pub use huge::vec_in_huge_pages;
pub use mapping::Mapping;
