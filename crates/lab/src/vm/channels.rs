//! What a machine and we tell each other, by files without a name: nothing of them is left when
//! both are gone, however they went.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

use rustix::fs::{MemfdFlags, memfd_create};

/// All channels of one machine.
#[derive(Debug)]
pub(super) struct Channels {
    /// What the guest runs.
    pub(super) script: MemoryFile,
    /// What that writes.
    pub(super) output: MemoryFile,
    /// `exit` and its exit status, once it has ended.
    pub(super) status: MemoryFile,
    /// What the guest's kernel writes.
    pub(super) console: MemoryFile,
    /// What QEMU writes to its standard error.
    pub(super) errors: MemoryFile,
}

impl Channels {
    pub(super) fn new(script: &str) -> io::Result<Self> {
        let channels = Self {
            script: MemoryFile::new("script")?,
            output: MemoryFile::new("output")?,
            status: MemoryFile::new("status")?,
            console: MemoryFile::new("console")?,
            errors: MemoryFile::new("errors")?,
        };
        channels.script.0.write_all_at(script.as_bytes(), 0)?;
        Ok(channels)
    }

    /// The script's exit status, where it has ended.
    pub(super) fn exit_status(&self) -> io::Result<Option<u8>> {
        let text = self.status.text()?;
        Ok(text.trim().strip_prefix("exit ").and_then(|status| status.parse().ok()))
    }

    /// The last line of each part of the machine that said anything.
    pub(super) fn last_words(&self) -> String {
        let parts =
            [("QEMU", &self.errors), ("its kernel", &self.console), ("its script", &self.output)];
        let last_words = |(part, file): (&str, &MemoryFile)| {
            let text = file.text().ok()?;
            let line = text.lines().rfind(|line| !line.trim().is_empty())?;
            Some(format!("; {part} said last: {}", line.trim()))
        };
        parts.into_iter().filter_map(last_words).collect()
    }
}

/// A file in memory that other processes of this user can open while we hold it.
#[derive(Debug)]
pub(super) struct MemoryFile(File);

impl MemoryFile {
    fn new(name: &str) -> io::Result<Self> {
        Ok(Self(memfd_create(name, MemfdFlags::CLOEXEC)?.into()))
    }

    /// Where another process opens it.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    pub(super) fn as_stdio(&self) -> io::Result<Stdio> {
        Ok(self.0.try_clone()?.into())
    }

    /// What is in it so far.
    pub(super) fn text(&self) -> io::Result<String> {
        let mut bytes = vec![0; self.0.metadata()?.len() as usize];
        self.0.read_exact_at(&mut bytes, 0)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_write_is_read_while_they_write() {
        let channels = Channels::new("true").unwrap();
        assert_eq!(std::fs::read_to_string(channels.script.path()).unwrap(), "true");
        assert_eq!(channels.last_words(), "");
        std::fs::write(channels.output.path(), "one\ntwo\n\n").unwrap();
        assert_eq!(channels.output.text().unwrap(), "one\ntwo\n\n");
        assert_eq!(channels.last_words(), "; its script said last: two");
        for (text, status) in [("", None), ("exit 7\n", Some(7)), ("exit x\n", None)] {
            std::fs::write(channels.status.path(), text).unwrap();
            assert_eq!(channels.exit_status().unwrap(), status, "{text}");
        }
    }
}
