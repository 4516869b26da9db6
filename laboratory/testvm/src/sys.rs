//! Starts a process that does not outlive this one.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Starts a process that is killed when the calling thread ends.
pub(crate) fn spawn(command: &mut Command) -> io::Result<Child> {
    let us = getpid();
    let die_with_parent = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // No signal is sent if the parent died before that call.
        if getppid() == Some(us) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and execve the closure makes two system calls and nothing else.
    unsafe { command.pre_exec(die_with_parent) };
    command.spawn()
}
