//! Runs commands in existing containers, as nsenter(1) does.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread;

use rustix::process::{Pid, chdir, chroot, fchdir};
use rustix::thread::{
    UnshareFlags, move_into_link_name_space, sched_getaffinity, sched_setaffinity, unshare_unsafe,
};

/// A container's namespaces. The mount namespace comes last, because it determines the paths of the
/// others.
const NAMESPACES: [&str; 5] = ["net", "uts", "ipc", "pid", "mnt"];

/// Reason why a command was not run in a container.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The container could not be entered.
    #[error("cannot enter the container: {0}")]
    Enter(io::Error),
    /// The command could not be started in the container.
    #[error("{program}: {error}")]
    Start {
        /// The command's first word.
        program: String,
        /// The system's error.
        error: io::Error,
    },
}

/// Starts a command in the container whose first process is `pid`, on the container's CPUs, and
/// returns the result of `work`. The command is killed when the container ends or `work` returns.
///
/// It starts in the caller's working directory, or in `/` if the container has no such directory.
pub fn run_in<T: Send>(
    pid: Pid,
    command: &mut Command,
    work: impl FnOnce(Child) -> T + Send,
) -> Result<T, JoinError> {
    // The thread that enters the container cannot leave it again: it ends with the command.
    let run = || {
        enter(pid).map_err(JoinError::Enter)?;
        die_with_caller(command);
        let child = command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            JoinError::Start { program, error }
        })?;
        Ok(work(child))
    };
    thread::scope(|scope| {
        scope.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Moves the calling thread, and the processes that it starts, into the container.
fn enter(pid: Pid) -> io::Result<()> {
    let process = format!("/proc/{}", pid.as_raw_nonzero());
    let open = |name: &str| File::open(format!("{process}/ns/{name}"));
    let namespaces = NAMESPACES.into_iter().map(open).collect::<io::Result<Vec<_>>>()?;
    let root = File::open(format!("{process}/root"))?;
    let directory = std::env::current_dir();
    let cpus = sched_getaffinity(Some(pid))?;

    // SAFETY: the flag changes no memory. It gives this thread, which the caller lets end, a root
    // and a working directory of its own.
    unsafe { unshare_unsafe(UnshareFlags::FS)? };
    for namespace in &namespaces {
        move_into_link_name_space(namespace.as_fd(), None)?;
    }
    // The container's root may differ from the root of its mount namespace.
    fchdir(&root)?;
    chroot(".")?;
    if directory.is_err() || directory.is_ok_and(|directory| chdir(directory).is_err()) {
        chdir("/")?;
    }
    sched_setaffinity(None, &cpus)?;
    Ok(())
}

fn die_with_caller(command: &mut Command) {
    let child = || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes one system call, and allocates nothing.
    unsafe { command.pre_exec(child) };
}
