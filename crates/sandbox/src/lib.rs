//! What a program that talks to hostile peers gives up once it is set up.
//!
//! [`enter`] takes from the calling thread, and from every thread that it starts later:
//!
//! * all capabilities, and the way to get any back (`no_new_privs`);
//! * the file system, but for making and removing sockets in a few directories (Landlock);
//! * every system call that control threads have no use for (seccomp).
//!
//! [`enter_data_thread`] then takes the calling data thread further: it can move frames, connect
//! the socket that it has, sleep and end, and no longer make a socket, listen or start a thread.
//!
//! Everything is refused by the kernel. A system call that is not on the list does not happen, and ends
//! the process with status 1 and one line that names the thread and the call: it is a mistake of
//! ours, or somebody else runs in our place.

mod calls;
mod capabilities;
mod paths;
mod trap;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

pub use paths::landlock_version;

/// Set once the sandbox is there.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// The kernel has no such sandbox.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it all")]
pub enum SandboxError {
    #[error("sandbox: capabilities: {0}")]
    Capabilities(io::Error),
    #[error(
        "sandbox: Landlock: {0}; it takes Linux 5.13 with CONFIG_SECURITY_LANDLOCK and \
         landlock among its security modules (lsm=), or --sandbox off"
    )]
    Landlock(String),
    #[error("sandbox: seccomp: {0}; it takes CONFIG_SECCOMP_FILTER, or --sandbox off")]
    Seccomp(String),
}

/// Confines the calling thread and all threads that it starts from now on; threads that were
/// started before stay as they are. In `directories`, all of which must exist, sockets can be made
/// and removed. Confinement is for good.
///
/// Where the kernel lacks a part, an error is returned and the thread may be confined in other parts: the
/// program is expected to end.
pub fn enter<'p>(directories: impl IntoIterator<Item = &'p Path>) -> Result<(), SandboxError> {
    // Before the list of calls holds, which has none of these.
    trap::install().map_err(|error| SandboxError::Seccomp(error.to_string()))?;
    capabilities::drop_all().map_err(SandboxError::Capabilities)?;
    paths::restrict(directories).map_err(SandboxError::Landlock)?;
    calls::restrict(calls::CONTROL).map_err(SandboxError::Seccomp)?;
    ENTERED.store(true, Ordering::Release);
    Ok(())
}

/// True after [`enter`].
pub fn is_entered() -> bool {
    ENTERED.load(Ordering::Acquire)
}

/// Confines the calling thread to what a data thread does. Does nothing where the process has no
/// sandbox.
pub fn enter_data_thread() -> Result<(), SandboxError> {
    if !is_entered() {
        return Ok(());
    }
    calls::restrict(&[]).map_err(SandboxError::Seccomp)
}
