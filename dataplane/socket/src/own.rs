//! Names of the sockets that this process has bound.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::Stat;

/// Identity of a bound socket's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Device and inode of its file.
    File(u64, u64),
    Abstract(String),
}

impl From<&Stat> for Identity {
    fn from(file: &Stat) -> Self {
        Self::File(file.st_dev, file.st_ino)
    }
}

static BOUND: Mutex<Vec<Identity>> = Mutex::new(Vec::new());

/// True in a daemon, whose ports belong to other programs.
static IS_CHECKED: AtomicBool = AtomicBool::new(false);

fn bound() -> MutexGuard<'static, Vec<Identity>> {
    BOUND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses ports, from now on, whose peer's socket is one of this process, or has several names:
/// two ports would be linked to each other, or a port to another one's peer, despite VLANs and
/// groups.
pub fn refuse_own_sockets() {
    IS_CHECKED.store(true, Ordering::Relaxed);
}

/// A name that a socket of this process has until this is dropped.
pub struct Own(Identity);

impl Own {
    /// Notes the name of an abstract socket that another process has bound, and hands over.
    pub fn inherit(name: &str) -> Self {
        Self::note(Identity::Abstract(name.to_owned()))
    }

    pub(crate) fn note(identity: Identity) -> Self {
        bound().push(identity.clone());
        Self(identity)
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.0
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let mut bound = bound();
        if let Some(at) = bound.iter().position(|identity| *identity == self.0) {
            bound.swap_remove(at);
        }
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Checks a peer's socket, whose file has `names` names.
pub(crate) fn check(identity: &Identity, names: u64) -> io::Result<()> {
    if !IS_CHECKED.load(Ordering::Relaxed) {
        return Ok(());
    }
    if bound().contains(identity) {
        return Err(io::Error::other("refused: this is a socket of this program itself"));
    }
    if names > 1 {
        return Err(io::Error::other("refused: the socket's file has several names (hard links)"));
    }
    Ok(())
}
