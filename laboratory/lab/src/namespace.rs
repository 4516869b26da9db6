//! Starts processes in new namespaces and enters those namespaces from outside.

use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr;

pub use dray_netdev::NetworkNamespace;
use dray_netdev::on_a_thread;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{
    ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces, unshare_unsafe,
};

/// A container's namespaces: network, mount, PID, IPC and UTS.
const NEW_NAMESPACES: libc::c_int = libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

/// The first process of its namespaces: when it ends, the kernel kills everything in them.
pub(crate) struct Init {
    pub(crate) pid: Pid,
    pidfd: OwnedFd,
}

/// Number of the descriptor by which a container's first process holds the "host"'s network
/// namespace.
const HOST_FD: libc::c_int = 3;

/// The "host"'s network namespace, as every program in a container can open it.
pub(crate) const HOST_NETWORK: &str = "/proc/1/fd/3";

/// Starts `argv` as the first process of new namespaces, with `stdio` as its standard input and
/// output, and `host` as [`HOST_NETWORK`]. It is killed when the calling thread ends, and inherits
/// none of our other descriptors, which are all close-on-exec.
pub(crate) fn spawn(
    argv: &[CString],
    stdio: BorrowedFd<'_>,
    host: Option<&NetworkNamespace>,
) -> io::Result<Init> {
    let mut pointers: Vec<*const libc::c_char> = argv.iter().map(|arg| arg.as_ptr()).collect();
    pointers.push(ptr::null());
    let environment = [ptr::null()];
    let stdio = stdio.as_raw_fd();
    let host = host.map(|host| host.as_fd().as_raw_fd());
    let mut pidfd: libc::c_int = -1;
    // SAFETY: an all-zero clone_args is a valid value.
    let mut args: libc::clone_args = unsafe { mem::zeroed() };
    args.flags = (NEW_NAMESPACES | libc::CLONE_PIDFD) as u64;
    args.pidfd = (&raw mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    // SAFETY: without CLONE_VM this is fork(2): the child has a copy of our memory. Until execve it
    // only makes system calls, which is all that a child of a multithreaded process may do, and it
    // never returns.
    unsafe {
        match libc::syscall(libc::SYS_clone3, &raw const args, mem::size_of_val(&args)) {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::dup2(stdio, libc::STDIN_FILENO);
                libc::dup2(stdio, libc::STDOUT_FILENO);
                if let Some(host) = host {
                    // A copy onto itself would stay close-on-exec.
                    libc::dup2(host, HOST_FD);
                    libc::fcntl(HOST_FD, libc::F_SETFD, 0);
                }
                libc::execve(pointers[0], pointers.as_ptr(), environment.as_ptr());
                libc::_exit(127)
            }
            pid => Ok(Init {
                pid: Pid::from_raw(pid as i32).expect("clone3 gives the parent a PID above zero"),
                pidfd: OwnedFd::from_raw_fd(pidfd),
            }),
        }
    }
}

/// Lets the kernel reap the children of this process, which does not wait for them.
pub(crate) fn ignore_children() {
    // SAFETY: SIG_IGN runs no code of ours.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

impl Init {
    /// Refers to a process that was started by other code.
    pub(crate) fn of(pid: Pid) -> io::Result<Self> {
        Ok(Self { pid, pidfd: pidfd_open(pid, PidfdFlags::empty())? })
    }

    /// Runs `work` on a thread in the process's namespaces. Processes started by `work` belong to
    /// the PID namespace too and are killed with its first process; the caller must wait for them
    /// before it waits for the first process.
    pub(crate) fn enter<T: Send>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        let all = ThreadNameSpaceType::NETWORK
            | ThreadNameSpaceType::MOUNT
            | ThreadNameSpaceType::PROCESS_ID
            | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION
            | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME;
        on_a_thread(|| {
            // A thread that shares its working directory with others cannot enter a mount
            // namespace.
            // SAFETY: CLONE_FS unshares only that from this thread, which ends here.
            if unsafe { libc::unshare(libc::CLONE_FS) } == -1 {
                return Err(io::Error::last_os_error());
            }
            move_into_thread_name_spaces(self.pidfd.as_fd(), all)?;
            work()
        })
    }

    /// The process's network namespace.
    pub(crate) fn network(&self) -> io::Result<NetworkNamespace> {
        let path = format!("/proc/{}/ns/net", self.pid.as_raw_nonzero());
        NetworkNamespace::open(Path::new(&path))
    }

    /// Kills the process and with it everything in its PID namespace. Can be called again.
    pub(crate) fn kill(&self) {
        // The process may be gone already, which is fine.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, rustix::process::Signal::KILL);
    }

    /// Returns true while the process runs.
    pub(crate) fn is_running(&self) -> bool {
        !has_ended(&self.pidfd)
    }

    /// Descriptor that becomes readable when the process has ended.
    pub(crate) fn sign(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Waits until the process is gone, if it is our child. Its namespaces are emptied before it
    /// becomes waitable.
    pub(crate) fn wait(&self) {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        while let Err(rustix::io::Errno::INTR) =
            waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED)
        {}
    }
}

/// Runs `work` on a thread with a mount namespace of its own: what it mounts is gone when it ends,
/// or the process is killed.
pub(crate) fn with_own_mounts<T: Send>(
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    on_a_thread(|| {
        // SAFETY: the flag changes no memory, and no other thread's namespace. This thread ends
        // here.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS)? };
        mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
        work()
    })
}

/// Returns true if the descriptor's process has ended; the descriptor is readable then
/// (pidfd_open(2)).
pub(crate) fn has_ended(pidfd: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut ended = [PollFd::new(pidfd, PollFlags::IN)];
    matches!(poll(&mut ended, Some(&Timespec::default())), Ok(1))
}

impl Drop for Init {
    fn drop(&mut self) {
        self.kill();
        self.wait();
    }
}
