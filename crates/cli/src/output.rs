//! Where a command's result goes: a file is there whole, or as it was.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use tempfile::NamedTempFile;

use crate::{Failure, print};

/// Where a result goes.
pub(crate) struct Output {
    to: Destination,
    /// The option that named it, with what it said.
    named: String,
}

enum Destination {
    Stdout,
    /// A new file beside the one that it replaces once it is complete.
    New {
        new: NamedTempFile,
        path: PathBuf,
    },
    /// What is there and is no ordinary file (`/dev/null`, a pipe) stays and is written to.
    Special(File),
}

impl Output {
    /// Opens `path`, which `option` names; `-` is standard output. Better to hear now that a result
    /// cannot be written than when it is there.
    pub(crate) fn open(option: &str, path: &Path) -> anyhow::Result<Self> {
        let named = format!("{option} {}", path.display());
        let to = Destination::open(path).with_context(|| format!("{named}: cannot write there"))?;
        Ok(Self { to, named })
    }

    /// Standard output, which nobody named.
    pub(crate) fn stdout() -> Self {
        Self { to: Destination::Stdout, named: String::new() }
    }

    /// Whether it is standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self.to, Destination::Stdout)
    }

    /// Writes all there is.
    pub(crate) fn write(self, text: &str) -> Result<(), Failure> {
        match self.to {
            Destination::Stdout => print(text),
            Destination::Special(mut file) => {
                Ok(file.write_all(text.as_bytes()).context(self.named)?)
            }
            Destination::New { mut new, path } => {
                let write = || {
                    new.write_all(text.as_bytes())?;
                    make_readable(new.as_file())?;
                    new.persist(&path)?;
                    anyhow::Ok(())
                };
                Ok(write().context(self.named)?)
            }
        }
    }
}

impl Destination {
    fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        // What a link leads to is replaced, not the link.
        let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if path.exists() && !path.is_file() {
            return Ok(Self::Special(open_special(path)?));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let new = NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
        Ok(Self::New { new, path: path.to_owned() })
    }
}

/// Opens a device or a pipe. A pipe that nobody reads is an error, where an ordinary open would wait
/// for a reader for good.
fn open_special(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
    let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?;
    fcntl_setfl(&file, OFlags::empty())?;
    Ok(file.into())
}

/// Temporary files are private; results are for passing on.
fn make_readable(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}
