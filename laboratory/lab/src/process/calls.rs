//! System calls between fork and exec.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::Arc;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};

use crate::NetworkNamespace;

/// Makes the command's process enter `namespace`, and die when the thread that starts it ends.
pub(crate) fn tie(command: &mut Command, namespace: Arc<NetworkNamespace>) {
    let parent = getpid();
    let child = move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A parent that died before that call sends no signal.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec the closure makes system calls only, and allocates nothing. It
    // owns the namespace, so its descriptor is open for as long as the command can be started.
    unsafe { command.pre_exec(child) };
}

/// Makes the command's process, and all its threads that do not move away, run on one CPU.
pub(crate) fn pin(command: &mut Command, cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    let child = move || Ok(sched_setaffinity(None, &cpus)?);
    // SAFETY: between fork and exec the closure makes one system call, and allocates nothing.
    unsafe { command.pre_exec(child) };
}

/// Moves the command's process into the control group whose `cgroup.procs` is `processes`.
pub(crate) fn join_group(command: &mut Command, processes: File) {
    // A process that writes 0 moves itself (cgroups(7)).
    let child = move || (&processes).write_all(b"0");
    // SAFETY: between fork and exec the closure makes one system call, and allocates nothing.
    unsafe { command.pre_exec(child) };
}

/// Makes the command's process see an empty folder in place of `folder`, with the folders `inside`
/// created in it. Its contents are in memory, private to the process, and gone with it.
pub(crate) fn mount_tmpfs(
    command: &mut Command,
    folder: &'static CStr,
    inside: &'static [&'static CStr],
) {
    let done = |result: libc::c_int| match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    };
    let child = move || {
        let (none, tmpfs) = (ptr::null(), c"tmpfs".as_ptr());
        // Mounts must be private, or the machine would see them too.
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let flags = libc::MS_NOSUID | libc::MS_NODEV;
        // SAFETY: system calls on strings that live as long as the program; a null pointer stands
        // for an argument that the kernel ignores.
        unsafe {
            done(libc::unshare(libc::CLONE_NEWNS))?;
            done(libc::mount(none, c"/".as_ptr(), none, private, ptr::null()))?;
            done(libc::mount(tmpfs, folder.as_ptr(), tmpfs, flags, ptr::null()))?;
            inside.iter().try_for_each(|folder| done(libc::mkdir(folder.as_ptr(), 0o755)))
        }
    };
    // SAFETY: between fork and exec the closure makes system calls only, and allocates nothing.
    unsafe { command.pre_exec(child) };
}
