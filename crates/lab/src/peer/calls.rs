//! What has to happen between fork and exec.

use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::NetworkNamespace;

/// Makes the command's process enter `namespace`, and die when the thread that starts it ends.
pub(super) fn tie(command: &mut Command, namespace: &NetworkNamespace) {
    let namespace = namespace.as_fd().as_raw_fd();
    let parent = std::process::id() as libc::pid_t;
    let child = move || {
        // SAFETY: system calls on plain numbers. The descriptor is the caller's, who starts the
        // command while it is open; a number that is closed or reused makes setns fail.
        unsafe {
            if libc::setns(namespace, libc::CLONE_NEWNET) == -1
                || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == -1
            {
                return Err(std::io::Error::last_os_error());
            }
            // A parent that died before the call sends no signal any more.
            if libc::getppid() != parent {
                libc::_exit(1);
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls only, and allocates nothing.
    unsafe { command.pre_exec(child) };
}
