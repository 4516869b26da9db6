//! Memory as a file descriptor.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    FileType, MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
    memfd_create,
};

/// A file that can be mapped by more than one process.
#[derive(Debug)]
pub struct MemoryFile {
    fd: OwnedFd,
    len: u64,
    from_peer: bool,
}

/// Page size of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSize {
    /// The system's ordinary pages.
    Normal,
    /// Huge pages of the system's default size, which must be reserved beforehand.
    Huge,
}

/// A file cannot serve as shared memory.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages document the variants")]
pub enum FileError {
    #[error("shared memory of {len} bytes: {error}")]
    Create { len: u64, error: io::Error },
    #[error("shared memory from a peer: {0}")]
    Inspect(io::Error),
    #[error(
        "shared memory from a peer is {0}: allowed is a memfd, or a regular file in tmpfs or hugetlbfs"
    )]
    NotMemory(String),
}

impl MemoryFile {
    /// Creates memory of `len` bytes, all zero. It is sealed: no process that it is passed to can
    /// change its size. `name` shows up in `/proc/PID/maps`.
    pub fn create(name: &str, len: u64, pages: PageSize) -> Result<Self, FileError> {
        let flags = match pages {
            PageSize::Normal => MemfdFlags::empty(),
            PageSize::Huge => MemfdFlags::HUGETLB,
        };
        let create = || -> rustix::io::Result<OwnedFd> {
            let fd = memfd_create(name, flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            ftruncate(&fd, len)?;
            fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            Ok(fd)
        };
        let fd = create().map_err(|errno| FileError::Create { len, error: errno.into() })?;
        Ok(Self { fd, len, from_peer: false })
    }

    /// Wraps memory that another process of this program has [created](Self::create).
    ///
    /// # Errors
    /// If the descriptor is not of such memory.
    pub fn of(fd: OwnedFd) -> io::Result<Self> {
        // A file that may shrink would end this process at an access.
        let is_fixed = fcntl_get_seals(&fd)
            .is_ok_and(|seals| seals.contains(SealFlags::SHRINK | SealFlags::GROW));
        if !is_fixed {
            return Err(io::Error::other("not memory of a fixed size"));
        }
        let len = u64::try_from(fstat(&fd)?.st_size).unwrap_or(0);
        Ok(Self { fd, len, from_peer: false })
    }

    /// Wraps the first `len` bytes of an array of BPF, which never shrinks; the kernel refuses to
    /// map more than it has.
    ///
    /// # Errors
    /// If the descriptor is of a file that has a name, and so is not of such an array.
    pub fn of_array(fd: OwnedFd, len: u64) -> io::Result<Self> {
        match FileType::from_raw_mode(fstat(&fd)?.st_mode) {
            FileType::Unknown => Ok(Self { fd, len, from_peer: false }),
            _ => Err(io::Error::other("not an array of BPF")),
        }
    }

    /// Allocates all of its pages, so that no later access fails for lack of memory.
    pub fn allocate(&self) -> Result<(), FileError> {
        rustix::fs::fallocate(&self.fd, rustix::fs::FallocateFlags::empty(), 0, self.len)
            .map_err(|errno| FileError::Create { len: self.len, error: errno.into() })
    }

    /// Wraps memory that a peer passed to us, of whatever size it is now.
    pub fn from_peer(fd: OwnedFd) -> Result<Self, FileError> {
        // Only files of memory have seals. A page of any other file may have to come from a disk,
        // or from a file system that the peer itself provides, and a thread that touches it waits
        // for it. This call asks no file system, as fstat would.
        if fcntl_get_seals(&fd).is_err() {
            return Err(FileError::NotMemory(name_of(&fd)));
        }
        let stat = fstat(&fd).map_err(|errno| FileError::Inspect(errno.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(FileError::NotMemory("a directory".to_owned()));
        }
        let len = u64::try_from(stat.st_size).unwrap_or(0);
        Ok(Self { fd, len, from_peer: true })
    }

    /// Returns the size in bytes; of a peer's file, the size when it was received.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if there is nothing to map.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if a peer created the file. Any access may then hit a missing page: the peer
    /// can truncate the file, and even if a seal forbids that, a file of huge pages or of a full
    /// tmpfs has pages that were never allocated and cannot be.
    pub fn is_from_peer(&self) -> bool {
        self.from_peer
    }
}

/// Returns the name of the file behind `fd`, for messages. A peer chooses the names of its files:
/// characters that a terminal would interpret are escaped, and a long name is cut.
pub fn name_of(fd: &impl AsFd) -> String {
    const MAX: usize = 80;
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()));
    let Ok(link) = link else { return "an unknown file".to_owned() };
    let link = link.to_string_lossy();
    let mut characters = link.chars();
    let mut name: String = characters.by_ref().take(MAX).flat_map(char::escape_debug).collect();
    if characters.next().is_some() {
        name.push_str("...");
    }
    name
}

impl AsFd for MemoryFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_file_cannot_be_resized() {
        let file = MemoryFile::create("test", 8192, PageSize::Normal).unwrap();
        for len in [0, 4096, 1 << 20] {
            assert_eq!(ftruncate(&file, len), Err(rustix::io::Errno::PERM), "{len}");
        }
        let theirs = MemoryFile::from_peer(file.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!((theirs.len(), theirs.is_from_peer()), (8192, true));
    }

    #[test]
    fn error_names_file_that_is_not_memory() {
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        let error = MemoryFile::from_peer(pipe).unwrap_err().to_string();
        assert!(error.contains("pipe:") && error.contains("memfd"), "{error}");
        for path in ["/", "/dev/null", "/proc/self/exe"] {
            let file = std::fs::File::open(path).unwrap();
            assert!(MemoryFile::from_peer(file.into()).is_err(), "{path}");
        }
    }

    #[test]
    fn file_names_are_escaped_and_cut() {
        let red = memfd_create("\x1b[31mred\nnext\u{202e}", MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(name_of(&red), "/memfd:\\u{1b}[31mred\\nnext\\u{202e} (deleted)");
        let long = memfd_create("x".repeat(249), MemfdFlags::CLOEXEC).unwrap();
        let name = name_of(&long);
        assert!(name.len() == 83 && name.ends_with("xxx..."), "{name}");
    }
}
