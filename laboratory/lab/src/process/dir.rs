//! The private directory of a run's peers.

use std::fs::{self, DirBuilder, DirEntry};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::geteuid;

use super::record::Record;
use crate::{LabError, NetworkNamespace, cgroup};

/// Parent of the directories of all peers. As with control groups, their names identify their
/// owners. The path is short, because a socket address holds only 107 bytes.
pub(crate) const PARENT: &str = "/run/dray";

/// Directory for sockets, logs and databases of the peers of one run, and a network namespace for
/// them. Every peer keeps a reference; the last one removes the directory.
#[derive(Clone, Debug)]
pub struct PeerDir {
    path: Arc<OwnPath>,
    namespace: Arc<NetworkNamespace>,
    record: Arc<Mutex<Record>>,
}

/// A directory that is removed on drop.
#[derive(Debug)]
struct OwnPath(PathBuf);

impl PeerDir {
    /// Makes a new, empty directory.
    pub fn new() -> Result<Self, LabError> {
        let doing = |what: &str| LabError::doing(format!("{what} in {PARENT}"));
        let namespace =
            NetworkNamespace::scratch().map_err(LabError::doing("network namespace of peers"))?;
        fs::create_dir_all(PARENT).map_err(doing("directory for peers"))?;
        let path = Path::new(PARENT).join(cgroup::new_name());
        DirBuilder::new().mode(0o700).create(&path).map_err(doing("directory for peers"))?;
        let dir = Self {
            path: Arc::new(OwnPath(path)),
            namespace: Arc::new(namespace),
            record: Arc::default(),
        };
        fs::create_dir(dir.sockets()).map_err(doing("directory for sockets"))?;
        Ok(dir)
    }

    /// Returns the same directory, for peers that use a container's network namespace.
    pub(crate) fn within(&self, namespace: &NetworkNamespace) -> io::Result<Self> {
        Ok(Self { namespace: Arc::new(namespace.try_clone()?), ..self.clone() })
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path.0
    }

    /// Path of a file in the directory.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// The subdirectory that containers see too, for the sockets of links and agents.
    pub fn sockets(&self) -> PathBuf {
        self.join("sockets")
    }

    /// Writes a file in the directory; returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, LabError> {
        let path = self.join(name);
        fs::write(&path, text).map_err(LabError::doing(format!("writing {}", path.display())))?;
        Ok(path)
    }

    /// The programs started here so far.
    pub fn record(&self) -> Record {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records the name and version of a program that is used.
    pub(crate) fn note_version(&self, version: &str) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.add_version(version);
    }

    /// Records the start of a command.
    pub(super) fn note_command(&self, command: &Command) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.add_command(command);
    }

    pub(super) fn namespace(&self) -> Arc<NetworkNamespace> {
        self.namespace.clone()
    }
}

impl Drop for OwnPath {
    fn drop(&mut self) {
        let result = fs::remove_dir_all(&self.0);
        if let Err(error) = result.or_else(ignore_missing) {
            let path = self.0.display();
            eprintln!("dray: {path} could not be removed: {error}; try `dray lab clean`");
        }
    }
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Returns the entries of [`PARENT`] that belong to this process's user. Entries of other users,
/// who may write there, too, are left out.
pub(crate) fn own_entries() -> impl Iterator<Item = DirEntry> {
    let entries = fs::read_dir(PARENT).into_iter().flatten().flatten();
    let is_own = |entry: &DirEntry| entry.metadata().is_ok_and(|it| it.uid() == geteuid().as_raw());
    entries.filter(is_own)
}

/// Removes the directories whose owner is gone, each after `restore` has returned the resources
/// that it records. Returns the names of the directories.
pub(crate) fn remove_stale(restore: impl Fn(&Path) -> io::Result<()>) -> io::Result<Vec<String>> {
    let mut removed = Vec::new();
    for entry in own_entries() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if cgroup::is_stale(&name) {
            restore(&entry.path())?;
            fs::remove_dir_all(entry.path()).or_else(ignore_missing)?;
            removed.push(name);
        }
    }
    Ok(removed)
}
