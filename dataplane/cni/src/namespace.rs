//! Network namespaces of containers, by the path of their file.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dray_netdev::NetworkNamespace;
use serde::{Deserialize, Serialize};

/// Identity of a namespace: a path can get another namespace when a container is replaced, and the
/// kernel gives the inode of one that is gone to the next one. A cookie is never given twice until
/// the next boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Recorded")]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    /// `None`: the kernel has no cookies (before Linux 5.14), or an earlier version has written
    /// the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    cookie: Option<Cookie>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Cookie {
    /// Identifier of the boot.
    boot: String,
    number: u64,
}

/// Identity in a record; earlier versions wrote device and inode alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Recorded {
    Inode(u64, u64),
    Full { device: u64, inode: u64, cookie: Option<Cookie> },
}

impl From<Recorded> for Identity {
    fn from(recorded: Recorded) -> Self {
        match recorded {
            Recorded::Inode(device, inode) => Self { device, inode, cookie: None },
            Recorded::Full { device, inode, cookie } => Self { device, inode, cookie },
        }
    }
}

impl Identity {
    fn has_file_of(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// Returns device and inode of the namespace at `path`.
fn file(path: &Path) -> io::Result<Identity> {
    let file = fs::metadata(path)?;
    Ok(Identity { device: file.dev(), inode: file.ino(), cookie: None })
}

/// Returns the cookie of the network namespace at `path`; `None` if the kernel has none.
fn cookie(path: &Path) -> io::Result<Option<Cookie>> {
    let Some(number) = NetworkNamespace::open(path)?.cookie()? else { return Ok(None) };
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(Some(Cookie { boot: boot.trim_end().to_owned(), number }))
}

/// Returns the identity of the network namespace at `path`.
pub(crate) fn identity(path: &Path) -> io::Result<Identity> {
    let file = file(path)?;
    // The code that enters the namespace refuses another kind of file, with a better reason.
    Ok(Identity { cookie: cookie(path).ok().flatten(), ..file })
}

/// Returns true if `path` is no longer the namespace `known`.
pub(crate) fn is_gone(path: &Path, known: &Identity) -> bool {
    match file(path) {
        Ok(found) if !found.has_file_of(known) => true,
        // A namespace that cannot be entered is not known to be another one.
        Ok(_) => {
            known.cookie.is_some() && matches!(cookie(path), Ok(found) if found != known.cookie)
        }
        Err(error) => {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        }
    }
}

/// Returns true if it is the namespace of this process.
pub(crate) fn is_own(known: &Identity) -> bool {
    file(Path::new("/proc/self/ns/net")).is_ok_and(|own| own.has_file_of(known))
}

/// Runs `work` in the network namespace at `path`, on a thread that ends with it.
///
/// # Errors
/// The file cannot be opened, is no network namespace, or this process may not enter it.
pub fn within<T: Send>(path: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    NetworkNamespace::open(path)?.enter(|| Ok(work()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_of_earlier_version_is_read() {
        let old: Identity = serde_json::from_str("[4, 4026532281]").unwrap();
        assert_eq!(old, Identity { device: 4, inode: 4_026_532_281, cookie: None });
        let cookie = Some(Cookie { boot: "b".to_owned(), number: 7 });
        for identity in [old.clone(), Identity { cookie, ..old }] {
            let text = serde_json::to_string(&identity).unwrap();
            assert_eq!(serde_json::from_str::<Identity>(&text).unwrap(), identity);
        }
    }

    #[test]
    fn namespace_with_used_inode_is_another_one() {
        let path = Path::new("/proc/self/ns/net");
        let own = identity(path).unwrap();
        assert!(!is_gone(path, &own));
        // An earlier version has recorded it like this.
        assert!(!is_gone(path, &Identity { cookie: None, ..own.clone() }));
        assert!(is_gone(path, &Identity { inode: own.inode + 1, ..own.clone() }));
        let Some(cookie) = own.cookie.clone() else { return };
        let next = Cookie { number: cookie.number + 1, ..cookie.clone() };
        let before = Cookie { boot: "another".to_owned(), ..cookie };
        for other in [next, before] {
            assert!(is_gone(path, &Identity { cookie: Some(other), ..own.clone() }));
        }
    }
}
