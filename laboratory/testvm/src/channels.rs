//! Channels between a machine and the lab: files without a name, which disappear when both
//! processes are gone, however they ended.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

use rustix::fs::{MemfdFlags, memfd_create};

/// All channels of a machine.
#[derive(Debug)]
pub(crate) struct Channels {
    /// Script that the guest runs.
    pub(crate) script: MemoryFile,
    /// Output of the script.
    pub(crate) output: MemoryFile,
    /// `exit` and the script's exit status, once it has ended.
    pub(crate) status: MemoryFile,
    /// Output of the guest's kernel.
    pub(crate) console: MemoryFile,
    /// Standard error of QEMU.
    pub(crate) errors: MemoryFile,
}

impl Channels {
    pub(crate) fn new(script: &str) -> io::Result<Self> {
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

    /// Returns the script's exit status if it has ended.
    pub(crate) fn exit_status(&self) -> io::Result<Option<u8>> {
        let text = self.status.text()?;
        Ok(text.trim().strip_prefix("exit ").and_then(|status| status.parse().ok()))
    }

    /// Returns the last line of each part of the machine that has written anything.
    pub(crate) fn last_words(&self) -> String {
        let parts =
            [("QEMU", &self.errors), ("its kernel", &self.console), ("its script", &self.output)];
        let last_words = |(part, file): (&str, &MemoryFile)| {
            let text = file.text().ok()?;
            let panic = text.lines().rfind(|line| line.contains("Kernel panic"));
            let line = panic.or_else(|| text.lines().rfind(|line| !line.trim().is_empty()))?;
            Some(format!("; last output of {part}: {}", line.trim()))
        };
        parts.into_iter().filter_map(last_words).collect()
    }
}

/// File in memory that other processes of this user can open while this process holds it.
#[derive(Debug)]
pub(crate) struct MemoryFile(File);

impl MemoryFile {
    fn new(name: &str) -> io::Result<Self> {
        Ok(Self(memfd_create(name, MemfdFlags::CLOEXEC)?.into()))
    }

    /// Path at which another process can open the file.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    pub(crate) fn as_stdio(&self) -> io::Result<Stdio> {
        Ok(self.0.try_clone()?.into())
    }

    /// Returns the current contents.
    pub(crate) fn text(&self) -> io::Result<String> {
        let mut bytes = vec![0; self.0.metadata()?.len() as usize];
        self.0.read_exact_at(&mut bytes, 0)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_reads_while_others_write() {
        let channels = Channels::new("true").unwrap();
        assert_eq!(std::fs::read_to_string(channels.script.path()).unwrap(), "true");
        assert_eq!(channels.last_words(), "");
        std::fs::write(channels.output.path(), "one\ntwo\n\n").unwrap();
        assert_eq!(channels.output.text().unwrap(), "one\ntwo\n\n");
        assert_eq!(channels.last_words(), "; last output of its script: two");
        std::fs::write(channels.console.path(), "Kernel panic - why\nits stack\n").unwrap();
        let last_words = channels.last_words();
        assert!(last_words.starts_with("; last output of its kernel: Kernel panic - why; "));
        for (text, status) in [("", None), ("exit 7\n", Some(7)), ("exit x\n", None)] {
            std::fs::write(channels.status.path(), text).unwrap();
            assert_eq!(channels.exit_status().unwrap(), status, "{text}");
        }
    }
}
