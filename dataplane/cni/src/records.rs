//! Records of attachments: one file each, in a directory that only root can read.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use dray_socket::{Lock, Place};

use crate::attachment::Attachment;
use crate::ends::Ends;
use crate::reply::CniError;

/// Directory of the records.
#[derive(Clone, Debug)]
pub struct Records(PathBuf);

/// Default directory.
const FOLDER: &str = "/run/dray/cni";
const SUFFIX: &str = ".json";

impl Default for Records {
    /// Returns the directory that plugin and switch use: `/run/dray/cni`, or `cni` beside the
    /// control sockets of a lab.
    fn default() -> Self {
        Self(dray_daemon::default_control(FOLDER))
    }
}

impl Records {
    /// Returns the records in `folder`, which need not exist.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// Returns the switch's ends of the interfaces of these containers.
    pub(crate) fn ends(&self) -> Ends {
        Ends::in_folder(&self.0)
    }

    /// Waits until no other process works on the attachment `key`.
    pub(crate) fn lock(&self, key: &str) -> Result<Lock, CniError> {
        // Root acts on what records say, so no other user may write there.
        dray_socket::own_directory(&self.0, 0o700)
            .and_then(|_| Lock::take(&self.lock_path(key)))
            .map_err(named(key))
    }

    /// Locks the attachment `key` without waiting; returns `None` if another process works on it.
    pub(crate) fn try_lock(&self, key: &str) -> Result<Option<Lock>, CniError> {
        Lock::try_take(&self.lock_path(key)).map_err(named(key))
    }

    fn lock_path(&self, key: &str) -> PathBuf {
        self.0.join(format!("{key}.lock"))
    }

    /// Returns true if there is a directory, in which no other user can write.
    fn exists(&self) -> io::Result<bool> {
        dray_socket::find_own_directory(&self.0).map(|found| found.is_some())
    }

    fn path(&self, key: &str) -> PathBuf {
        self.0.join(format!("{key}{SUFFIX}"))
    }

    /// Writes a record, replacing an earlier one atomically.
    pub(crate) fn save(&self, attachment: &Attachment) -> Result<(), CniError> {
        let key = attachment.key();
        let saved = serde_json::to_vec_pretty(attachment)
            .map_err(io::Error::other)
            .and_then(|text| Place::of(&self.path(&key))?.replace(&text, 0o600));
        saved.map_err(named(&key))
    }

    /// Reads the record `key`; returns `None` if it does not exist.
    pub(crate) fn load(&self, key: &str) -> Result<Option<Attachment>, CniError> {
        let path = self.path(key);
        if !self.exists().map_err(named(key))? {
            return Ok(None);
        }
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| {
                let what = format!("{}: {error}; remove this file", path.display());
                CniError::io(&key, &what)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(named(key)(error)),
        }
    }

    /// Returns the time since the record `key` was written; zero if that is unknown.
    pub(crate) fn age(&self, key: &str) -> Duration {
        let written = fs::metadata(self.path(key)).and_then(|file| file.modified());
        written.ok().and_then(|time| time.elapsed().ok()).unwrap_or_default()
    }

    /// Removes the record `key`, if there is one.
    pub(crate) fn remove(&self, key: &str) -> Result<(), CniError> {
        Place::of(&self.path(key)).and_then(|place| place.remove()).map_err(named(key))
    }

    /// Returns the keys of all records, also of unfinished ones, sorted.
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
        let key = |name: String| {
            let name = name.strip_suffix(Place::UNFINISHED).unwrap_or(&name);
            Some(name.strip_suffix(SUFFIX)?.to_owned())
        };
        let mut keys: Vec<_> = names.filter_map(key).collect();
        keys.sort_unstable();
        keys.dedup();
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

/// Names the attachment of an error.
fn named(key: &str) -> impl Fn(io::Error) -> CniError {
    move |error| CniError::io(&key, &error)
}
