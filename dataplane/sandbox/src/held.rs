//! Directories that the process has open while its root directory changes.
//!
//! `..` leads from an open directory to its parents in the old root directory, as far as they are on
//! the same mount: from `/run/dray` to other sockets in `/run`. So each is opened anew by its path.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, open, stat};

/// An open directory: its descriptor, its path, and its device and inode.
struct Held {
    descriptor: RawFd,
    path: PathBuf,
    id: (u64, u64),
}

/// The open directories of this process.
pub(crate) struct HeldDirectories(Vec<Held>);

impl HeldDirectories {
    /// Finds the directories that are open now.
    pub(crate) fn now() -> io::Result<Self> {
        let mut held = Vec::new();
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
                held.push(Held { descriptor, path, id: (stat.st_dev, stat.st_ino) });
            }
        }
        Ok(Self(held))
    }

    /// Replaces each descriptor by one of the same directory in the present root directory, if it is
    /// there.
    pub(crate) fn open_anew(self) -> io::Result<()> {
        for Held { descriptor, path, id } in self.0 {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let Ok(directory) = open(&path, flags, Mode::empty()) else { continue };
            let stat = rustix::fs::fstat(&directory)?;
            if (stat.st_dev, stat.st_ino) == id {
                replace(descriptor, &directory)?;
            }
        }
        Ok(())
    }
}

/// Makes `descriptor` refer to `directory`.
fn replace(descriptor: RawFd, directory: &OwnedFd) -> io::Result<()> {
    // SAFETY: the number stays open, and its owner's; it refers to the same directory as before.
    match unsafe { libc::dup3(directory.as_raw_fd(), descriptor, libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
