//! Records of attachments: one file each, in a directory that only root can read.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use dray_daemon::{Lock, Place};

use crate::attachment::Attachment;
use crate::ends::Ends;

/// Directory of the records.
#[derive(Clone, Debug)]
pub struct Store(PathBuf);

/// Default directory.
const FOLDER: &str = "/run/dray/cni";
const SUFFIX: &str = ".json";

impl Default for Store {
    /// Returns the directory that plugin and switch use: `/run/dray/cni`, or `cni` beside the control
    /// sockets of a lab.
    fn default() -> Self {
        Self(dray_daemon::default_control(FOLDER))
    }
}

impl Store {
    /// Returns the records in `folder`, which need not exist.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// Returns the switch's ends of the interfaces of these containers.
    pub(crate) fn ends(&self) -> Ends {
        Ends::in_folder(&self.0)
    }

    /// Returns the name of an attachment in the directory. Neither part can contain a colon.
    pub(crate) fn key(container: &str, interface: &str) -> String {
        format!("{container}:{interface}")
    }

    /// Waits until no other process works on the attachment `key`.
    pub(crate) fn lock(&self, key: &str) -> io::Result<Lock> {
        self.create()?;
        Lock::take(&self.lock_path(key))
    }

    /// Like [`lock`](Self::lock), without waiting: `None` if another process works on it.
    pub(crate) fn try_lock(&self, key: &str) -> io::Result<Option<Lock>> {
        Lock::try_take(&self.lock_path(key))
    }

    fn lock_path(&self, key: &str) -> PathBuf {
        self.0.join(format!("{key}.lock"))
    }

    /// Makes the directory, or checks that no other user can write there: root acts on what records say.
    fn create(&self) -> io::Result<()> {
        dray_daemon::own_directory(&self.0, 0o700).map(drop)
    }

    /// Returns true if there is a directory, in which no other user can write.
    fn exists(&self) -> io::Result<bool> {
        dray_daemon::find_own_directory(&self.0).map(|found| found.is_some())
    }

    fn path(&self, key: &str) -> PathBuf {
        self.0.join(format!("{key}{SUFFIX}"))
    }

    /// Writes a record, replacing an earlier one at once.
    pub(crate) fn save(&self, attachment: &Attachment) -> io::Result<()> {
        let key = attachment.key();
        let text = serde_json::to_vec_pretty(attachment).map_err(io::Error::other)?;
        Place::of(&self.path(&key))?.replace(&text, 0o600)
    }

    /// Reads the record `key`; returns `None` if it does not exist.
    pub(crate) fn load(&self, key: &str) -> io::Result<Option<Attachment>> {
        let path = self.path(key);
        if !self.exists()? {
            return Ok(None);
        }
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| {
                let what = format!("{}: {error}; remove this file", path.display());
                io::Error::new(io::ErrorKind::InvalidData, what)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the time since the record `key` was written; zero if that is unknown.
    pub(crate) fn age(&self, key: &str) -> Duration {
        let written = fs::metadata(self.path(key)).and_then(|file| file.modified());
        written.ok().and_then(|time| time.elapsed().ok()).unwrap_or_default()
    }

    /// Removes the record `key`, if there is one.
    pub(crate) fn remove(&self, key: &str) -> io::Result<()> {
        Place::of(&self.path(key))?.remove()
    }

    /// Returns the keys of all records, sorted.
    pub(crate) fn keys(&self) -> io::Result<Vec<String>> {
        if !self.exists()? {
            return Ok(Vec::new());
        }
        let entries = match fs::read_dir(&self.0) {
            Err(error) => {
                let what = format!("{}: {error}", self.0.display());
                return Err(io::Error::new(error.kind(), what));
            }
            Ok(entries) => entries,
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut keys: Vec<_> =
            names.filter_map(|name| Some(name.strip_suffix(SUFFIX)?.to_owned())).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// Returns all records that can be read.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn all(&self) -> io::Result<Vec<Attachment>> {
        let keys = self.keys()?.into_iter();
        Ok(keys.filter_map(|key| self.load(&key).ok().flatten()).collect())
    }
}
