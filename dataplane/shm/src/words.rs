//! Numbers that outlive the process that writes them.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::{FileError, Mapping, MemoryFile, PageSize};

/// Numbers in memory that another process of the same user, or the kernel, can read, also after
/// this process has been killed. No peer ever has the memory.
#[derive(Debug)]
pub struct SharedWords {
    file: OwnedFd,
    mapping: Mapping,
}

impl SharedWords {
    /// Creates `count` numbers, all zero. Memory is used by those that have been written.
    pub fn create(name: &str, count: usize) -> io::Result<Self> {
        let file = MemoryFile::create(name, 8 * count as u64, PageSize::Normal);
        let file = file.map_err(|error| match error {
            FileError::Create { error, .. } | FileError::Inspect(error) => error,
            error @ FileError::NotMemory(_) => io::Error::other(error),
        })?;
        Self::map(&file)
    }

    /// Opens the numbers that another process has created.
    ///
    /// # Errors
    /// If the descriptor is not of such memory.
    pub fn of(descriptor: OwnedFd) -> io::Result<Self> {
        Self::map(&MemoryFile::of(descriptor)?)
    }

    /// Opens the first `count` numbers of an array of BPF.
    ///
    /// # Errors
    /// If the descriptor is not of such an array, or it has fewer numbers.
    pub fn of_array(descriptor: OwnedFd, count: usize) -> io::Result<Self> {
        Self::map(&MemoryFile::of_array(descriptor, 8 * count as u64)?)
    }

    fn map(file: &MemoryFile) -> io::Result<Self> {
        let mapping = Mapping::new(file, 0, file.len())?;
        Ok(Self { file: file.as_fd().try_clone_to_owned()?, mapping })
    }

    /// Returns the numbers.
    pub fn words(&self) -> &[AtomicU64] {
        let start: NonNull<AtomicU64> = self.mapping.start().cast();
        // SAFETY: the mapping begins at a page and lives as long as this value, its file cannot
        // shrink, and any bytes are valid atomics.
        unsafe { slice::from_raw_parts(start.as_ptr(), self.mapping.len() / 8) }
    }

    /// Returns number `index`, which keeps the memory mapped.
    ///
    /// # Panics
    /// If there is no such number.
    pub fn word(self: &Arc<Self>, index: usize) -> SharedWord {
        SharedWord { at: NonNull::from(&self.words()[index]), _memory: self.clone() }
    }
}

impl AsFd for SharedWords {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A word of [`SharedWords`].
#[derive(Clone, Debug)]
pub struct SharedWord {
    at: NonNull<AtomicU64>,
    _memory: Arc<SharedWords>,
}

// SAFETY: it is a reference to an atomic, which any thread may use.
unsafe impl Send for SharedWord {}
// SAFETY: as above.
unsafe impl Sync for SharedWord {}

impl Deref for SharedWord {
    type Target = AtomicU64;

    #[inline(always)]
    fn deref(&self) -> &AtomicU64 {
        // SAFETY: the memory lives as long as this value.
        unsafe { self.at.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    #[test]
    fn words_outlive_their_writer() {
        let words = Arc::new(SharedWords::create("test", 100).unwrap());
        let copy = words.as_fd().try_clone_to_owned().unwrap();
        let last = words.word(99);
        drop(words);
        last.store(7, Relaxed);
        drop(last);
        let words = SharedWords::of(copy).unwrap();
        assert_eq!((words.words().len(), words.words()[99].load(Relaxed)), (100, 7));
    }

    #[test]
    fn file_that_may_shrink_is_refused() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 4096).unwrap();
        let error = SharedWords::of(file).unwrap_err().to_string();
        assert_eq!(error, "not memory of a fixed size");
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(SharedWords::of(null.into()).is_err());
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(SharedWords::of_array(null.into(), 1).is_err());
    }
}
