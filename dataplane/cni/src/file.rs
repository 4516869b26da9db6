//! Files that other processes read at any time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Writes a file at once: a reader finds the old content or the new one.
pub(crate) fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = unfinished(path);
    fs::write(&new, text)?;
    fs::rename(&new, path)
}

/// Returns the path of a file that is being written.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

/// Removes a file, if there is one.
pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
