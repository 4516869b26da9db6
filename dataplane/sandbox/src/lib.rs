//! Privileges that a program facing hostile peers gives up after its setup.
//!
//! [`enter`] takes from the calling thread, and from every thread that it starts later:
//!
//! * all capabilities, and the way to get any back (`no_new_privs`);
//! * the file system, except for creating and removing sockets, and creating directories for them, in
//!   a few directories, and reading files in one (Landlock);
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
mod paths;
mod trap;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

pub use paths::landlock_version;

/// True once the sandbox is active.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// The kernel does not support such a sandbox.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the error messages describe the variants")]
pub enum SandboxError {
    #[error("sandbox: dropping capabilities: {0}")]
    Capabilities(io::Error),
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

/// Confines the calling thread and all threads that it starts from now on; threads that were
/// started before stay as they are. In `directories`, all of which must exist, sockets can be
/// created and removed, and directories created; in `readable` files can be read. Confinement cannot
/// be undone.
///
/// If the kernel lacks a part, an error is returned and the thread may be confined in other parts:
/// the program is expected to end.
pub fn enter<'p>(
    directories: impl IntoIterator<Item = &'p Path>,
    readable: Option<&'p Path>,
) -> Result<(), SandboxError> {
    // Must come before the list of calls takes effect, which has none of the calls below.
    trap::install().map_err(|error| SandboxError::Seccomp(error.to_string()))?;
    capabilities::drop_all().map_err(SandboxError::Capabilities)?;
    paths::restrict(directories, readable).map_err(SandboxError::Landlock)?;
    calls::restrict(calls::CONTROL).map_err(SandboxError::Seccomp)?;
    ENTERED.store(true, Ordering::Release);
    Ok(())
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
