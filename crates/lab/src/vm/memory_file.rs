//! Files without a name, by which QEMU and we exchange text: nothing of them is left when both
//! are gone, however they went.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

use rustix::fs::{MemfdFlags, memfd_create};

/// A file in memory that other processes of this user can open while we hold it.
#[derive(Debug)]
pub(super) struct MemoryFile(File);

impl MemoryFile {
    pub(super) fn new(name: &str) -> io::Result<Self> {
        Ok(Self(memfd_create(name, MemfdFlags::CLOEXEC)?.into()))
    }

    /// Where another process opens it.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    pub(super) fn as_stdio(&self) -> io::Result<Stdio> {
        Ok(self.0.try_clone()?.into())
    }

    pub(super) fn write(&self, text: &str) -> io::Result<()> {
        self.0.write_all_at(text.as_bytes(), 0)
    }

    /// What is in it so far.
    pub(super) fn text(&self) -> io::Result<String> {
        let mut bytes = vec![0; self.0.metadata()?.len() as usize];
        self.0.read_exact_at(&mut bytes, 0)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
