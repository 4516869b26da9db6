//! Privileges that a program facing hostile peers gives up after its setup.
//!
//! [`enter`] takes from the calling thread, and from every thread that it starts later:
//!
//! * all capabilities, and the way to get any back (`no_new_privs`);
//! * for a process that root has started, all directories but a few: other sockets have no name;
//!   and root's user number, if it [acts](act_as) as another user;
//! * the file system, except for creating and removing sockets, and creating directories for them,
//!   in a few directories, and reading files in one (Landlock);
//! * every system call that control threads do not need (seccomp).
//!
//! [`enter_data_thread`] then confines the calling data thread further: it can move frames, connect
//! the socket that it has, sleep and end, and can no longer create a socket, listen or start a
//! thread.
//!
//! The kernel enforces all of this. A system call that is not on the list is not executed, and ends
//! the process with status 1 and one line that names the thread and the call: either this code has
//! a bug, or an attacker controls the thread.

mod calls;
mod capabilities;
mod open_directories;
mod paths;
mod root;
mod trap;
mod user;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{geteuid, getuid};

pub use paths::landlock_version;
pub use rustix::thread::CapabilitySet;
pub use user::{act_as, become_user, join_groups};

/// True once the sandbox is active.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// The kernel does not support such a sandbox.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the error messages describe the variants")]
pub enum SandboxError {
    #[error("sandbox: dropping capabilities: {0}")]
    Capabilities(io::Error),
    #[error("sandbox: root directory: {0}; --sandbox off runs without a sandbox")]
    Root(io::Error),
    #[error("sandbox: user: {0}")]
    User(io::Error),
    #[error(
        "sandbox: Landlock: {0}; requires Linux 5.13 with CONFIG_SECURITY_LANDLOCK and \
         landlock among its security modules (lsm=); --sandbox off runs without a sandbox"
    )]
    Landlock(String),
    #[error(
        "sandbox: seccomp: {0}; requires CONFIG_SECCOMP_FILTER; --sandbox off runs without a sandbox"
    )]
    Seccomp(String),
}

/// Directories and sockets that a confined program still reaches.
#[derive(Debug, Default)]
pub struct Needs<'p> {
    /// Directories, all of which exist, in which sockets can be created and removed, and
    /// directories created.
    pub sockets: Vec<&'p Path>,
    /// Directories, all of which exist, with sockets of peers that the program connects to.
    pub peers: Vec<&'p Path>,
    /// Directory in which files can be read.
    pub readable: Option<&'p Path>,
    /// True if a peer's socket is an abstract one.
    pub abstract_peers: bool,
}

/// Confines the calling thread and all threads that it starts from now on to `needs`; threads that
/// were started before stay as they are. Confinement cannot be undone. Returns why a process of
/// root keeps all directories in sight, if it does: it may not make mount namespaces.
///
/// If the kernel lacks another part, an error is returned and the thread may be confined in other
/// parts: the program is expected to end.
pub fn enter(needs: &Needs<'_>) -> Result<Option<String>, SandboxError> {
    let Needs { sockets, peers, readable, abstract_peers } = needs;
    // Must come before the list of calls takes effect, which has none of the calls below.
    trap::install().map_err(|error| SandboxError::Seccomp(error.to_string()))?;
    let mut all_in_sight = None;
    if getuid().is_root() || geteuid().is_root() {
        let directories: Vec<_> = sockets.iter().chain(peers).chain(readable).copied().collect();
        all_in_sight = root::confine(&directories).map_err(SandboxError::Root)?;
    }
    // The user that the process becomes may not find them.
    let paths = paths::allow(sockets, *readable, *abstract_peers);
    let paths = paths.map_err(SandboxError::Landlock)?;
    let none = CapabilitySet::empty();
    capabilities::bound(none).map_err(SandboxError::Capabilities)?;
    user::become_user().map_err(SandboxError::User)?;
    capabilities::keep(none).map_err(SandboxError::Capabilities)?;
    paths::restrict(paths).map_err(SandboxError::Landlock)?;
    calls::restrict(calls::CONTROL).map_err(SandboxError::Seccomp)?;
    ENTERED.store(true, Ordering::Release);
    Ok(all_in_sight)
}

/// Drops all capabilities but `kept` from the calling thread and all threads that it starts from
/// now on: for a program that cannot have a sandbox.
pub fn keep_capabilities(kept: CapabilitySet) -> Result<(), SandboxError> {
    capabilities::bound(kept).map_err(SandboxError::Capabilities)?;
    capabilities::keep(kept).map_err(SandboxError::Capabilities)
}

/// Returns true after [`enter`].
pub fn is_entered() -> bool {
    ENTERED.load(Ordering::Acquire)
}

/// Confines the calling thread to the calls of a data thread. Does nothing if the process has no
/// sandbox.
pub fn enter_data_thread() -> Result<(), SandboxError> {
    if !is_entered() {
        return Ok(());
    }
    calls::restrict(&[]).map_err(SandboxError::Seccomp)
}
