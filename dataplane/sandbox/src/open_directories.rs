//! Directories that the process has open while its root directory changes.
//!
//! `..` leads from an open directory to its parents in the old root directory, as far as they are
//! on the same mount: from `/run/dray` to other sockets in `/run`. So each is opened anew by its
//! path; and one that was passed to the program at its start, and leads elsewhere, becomes an empty
//! one. Those that it has opened itself and that have no path, in which containers create their
//! sockets, stay: they are roots of mounts of their own.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, open, stat};

/// An open directory: its descriptor, its path, and its device and inode.
struct OpenDirectory {
    descriptor: RawFd,
    path: PathBuf,
    id: (u64, u64),
    /// True if the program was started with it.
    is_inherited: bool,
}

/// The open directories of this process.
pub(crate) struct OpenDirectories(Vec<OpenDirectory>);

impl OpenDirectories {
    /// Finds the directories that are open now.
    pub(crate) fn now() -> io::Result<Self> {
        let mut directories = Vec::new();
        for entry in fs::read_dir("/proc/self/fd")? {
            let link = entry?.path();
            let number = link.file_name().and_then(|name| name.to_str()?.parse().ok());
            // The listing itself is closed by the time that the link is read, or soon after.
            let (Some(descriptor), Ok(path), Ok(stat)) =
                (number, fs::read_link(&link), stat(&link))
            else {
                continue;
            };
            if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
                let id = (stat.st_dev, stat.st_ino);
                directories.push(OpenDirectory {
                    descriptor,
                    path,
                    id,
                    is_inherited: is_inherited(descriptor),
                });
            }
        }
        Ok(Self(directories))
    }

    /// Replaces each descriptor by one of the same directory in the present root directory, if it
    /// is there, and inherited ones that are not by one of the root directory.
    pub(crate) fn reopen(self) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for OpenDirectory { descriptor, path, id, is_inherited } in self.0 {
            let same = open(&path, flags, Mode::empty()).ok().filter(|directory| {
                rustix::fs::fstat(directory).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == id)
            });
            match same {
                Some(directory) => replace(descriptor, &directory)?,
                None if is_inherited => {
                    replace(descriptor, &open("/", flags, Mode::empty())?)?;
                }
                None => {}
            }
        }
        Ok(())
    }
}

/// Returns true if a descriptor is passed to programs that this one starts: those that it opens
/// itself are not.
fn is_inherited(descriptor: RawFd) -> bool {
    // SAFETY: the call changes nothing.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFD) };
    flags != -1 && flags & libc::FD_CLOEXEC == 0
}

/// Makes `descriptor` refer to `directory`.
fn replace(descriptor: RawFd, directory: &OwnedFd) -> io::Result<()> {
    // SAFETY: the number stays open, and its owner's; it refers to the same directory as before, or
    // to one that the program knows nothing of.
    match unsafe { libc::dup3(directory.as_raw_fd(), descriptor, libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
