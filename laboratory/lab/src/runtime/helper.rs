//! Processes that an engine starts for its containers. The lab does not own them but depends on
//! them.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::namespace::has_ended;

/// Process started by an engine, such as `containerd-shim` or `conmon`.
pub(crate) struct Helper {
    pid: Pid,
    name: String,
    pidfd: OwnedFd,
}

impl Helper {
    /// Returns the parent of a process; `None` if it is not visible from this PID namespace.
    pub(crate) fn parent_of(pid: Pid) -> io::Result<Option<Self>> {
        let Some(of_it) = parent(pid)? else { return Ok(None) };
        let helper = Self::open(of_it)?;
        // The parent may have ended and its PID been reused before the pidfd was opened.
        Ok((parent(pid)? == Some(of_it)).then_some(helper))
    }

    fn open(pid: Pid) -> io::Result<Self> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()))?;
        Ok(Self { pid, name: name.trim_end().to_owned(), pidfd })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns a file descriptor that becomes readable when the process ends.
    pub(crate) fn sign(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Returns a message if the process has ended.
    pub(crate) fn end(&self) -> Option<String> {
        has_ended(&self.pidfd).then(|| format!("{}, which runs it, ended", self.name))
    }
}

/// Returns the parent of a process (field 4 of proc_pid_stat(5)); `None` if it is not visible from
/// this PID namespace.
fn parent(pid: Pid) -> io::Result<Option<Pid>> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))?;
    // The second field, the name in parentheses, may hold spaces and parentheses.
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    Ok(rest.split(' ').nth(1).and_then(parse_pid))
}

fn parse_pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{getpid, getppid};
    use std::process::{Command, Stdio};

    #[test]
    fn helper_is_the_parent_and_its_end_is_seen() {
        let parent = Helper::parent_of(getpid()).unwrap();
        assert_eq!(parent.map(|parent| parent.pid), getppid());
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let helper = Helper::open(Pid::from_child(&child)).unwrap();
        assert_eq!(helper.end(), None);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(helper.end().unwrap().ends_with(", which runs it, ended"));
    }
}
