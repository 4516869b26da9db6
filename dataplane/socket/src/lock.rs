//! A lock between processes of one user.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::place::Place;

/// Time that another process may hold the lock. Work under the lock takes milliseconds, or seconds
/// if the kernel has to find huge pages.
const PATIENCE: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(5);

/// A held lock file. Dropping it removes the file.
#[derive(Debug)]
pub struct Lock {
    place: Place,
    file: File,
}

impl Lock {
    /// Takes the lock whose file is `path`.
    ///
    /// Any process that can open a file can lock it and hold the lock forever. So only the owner
    /// can open this file: a file of that name that belongs to another user, or that others can
    /// open, is refused. Waiting for the lock ends after half a minute.
    pub fn take(path: &Path) -> io::Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(lock) = Self::try_take(path)? {
                return Ok(lock);
            }
            if Instant::now() > deadline {
                let (path, seconds) = (path.display(), PATIENCE.as_secs());
                let what = format!("another process has held the lock {path} for {seconds} s");
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            thread::sleep(AGAIN);
        }
    }

    /// Like [`take`](Self::take), without waiting: `None` if another process holds the lock.
    pub fn try_take(path: &Path) -> io::Result<Option<Self>> {
        let place = Place::of(path)?;
        loop {
            let file = open(&place)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Not if its last holder has removed the file meanwhile.
                Ok(()) if is_at(&file, &place) => {
                    return Ok(Some(Self { place, file }));
                }
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if is_at(&self.file, &self.place) {
            let _ = self.place.unlink(self.place.name());
        }
    }
}

fn open(place: &Place) -> io::Result<File> {
    let file = place.open(OFlags::RDWR | OFlags::CREATE, 0o600)?;
    let metadata = file.metadata()?;
    if metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
        let (path, owner, mode) = (place.path().display(), metadata.uid(), metadata.mode() & 0o777);
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "lock file {path}: owner {owner}, mode {mode:03o}; only you may have access: remove it"
            ),
        ));
    }
    Ok(file)
}

fn is_at(file: &File, place: &Place) -> bool {
    let there = place.stat().map(|stat| (stat.st_dev, stat.st_ino));
    let own = file.metadata().map(|file| (file.dev(), file.ino()));
    own.is_ok_and(|own| there.is_ok_and(|there| there == own))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::new_folder;

    #[test]
    fn lock_has_one_holder_at_a_time() {
        let dir = new_folder();
        let (path, inside) = (dir.path().join("lock"), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let lock = Lock::take(&path).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert!(!path.exists());
    }

    #[test]
    fn lock_rejects_file_that_others_can_open() {
        let dir = new_folder();
        let path = dir.path().join("lock");
        File::create(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let error = Lock::take(&path).unwrap_err().to_string();
        assert!(error.contains("mode 644") && error.contains("remove it"), "{error}");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        assert!(Lock::take(&link).is_err());
    }
}
