//! Network namespaces of containers, by the path of their file.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dray_netdev::NetworkNamespace;

/// Device and inode of a namespace: a path can get another namespace when a container is replaced.
pub(crate) type Identity = (u64, u64);

/// Returns the identity of the namespace at `path`.
pub(crate) fn identity(path: &Path) -> io::Result<Identity> {
    fs::metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Returns true if `path` is no longer the namespace `identity`.
pub(crate) fn is_gone(path: &Path, known: Identity) -> bool {
    match identity(path) {
        Ok(found) => found != known,
        Err(error) => {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        }
    }
}

/// Returns true if it is the namespace of this process.
pub(crate) fn is_own(known: Identity) -> bool {
    identity(Path::new("/proc/self/ns/net")).is_ok_and(|own| own == known)
}

/// Runs `work` in the network namespace at `path`, on a thread that ends with it.
///
/// # Errors
/// The file cannot be opened, is no network namespace, or this process may not enter it.
pub fn within<T: Send>(path: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    NetworkNamespace::open(path)?.enter(|| Ok(work()))
}
