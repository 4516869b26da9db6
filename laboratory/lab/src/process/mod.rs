//! Processes of programs that the lab runs, peers and container engines, and the directory that
//! they share.

pub(crate) mod calls;
mod dir;
pub(crate) mod installed;
mod record;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::iter::Sum;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::namespace::{Init, has_ended};
use crate::{Cancel, LabError};

pub use dir::PeerDir;
pub(crate) use dir::{PARENT, own_entries, remove_stale};
pub use record::{Record, command_line};

/// Time limit for a program to come up.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Polling interval of waits.
const INTERVAL: Duration = Duration::from_millis(2);

/// Time limit for the processes that a peer has started to end with it.
const GRACE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Number of last log lines quoted in an error.
const LAST_LINES: usize = 8;

/// CPU time of a thread since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// CPU time in its own code.
    pub user: Duration,
    /// CPU time in the kernel on its behalf.
    pub system: Duration,
}

impl Sum for CpuTime {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        let add = |a: Self, b: Self| Self { user: a.user + b.user, system: a.system + b.system };
        times.fold(Self::default(), add)
    }
}

/// A running program. Dropping this value kills it and all processes that it has started.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    pidfd: OwnedFd,
    log: PathBuf,
    started: Instant,
}

impl Process {
    /// Starts a program that logs to a file in the peers' directory. It is also killed when the
    /// calling thread ends.
    pub(crate) fn start(
        dir: &PeerDir,
        name: &str,
        command: &mut Command,
    ) -> Result<Self, LabError> {
        calls::tie(command, dir.namespace());
        Self::launch(dir, name, command, Command::spawn)
    }

    /// Starts a program in the namespaces of another process, and kills it when that process ends.
    pub(crate) fn start_within(
        init: &Init,
        dir: &PeerDir,
        name: &str,
        command: &mut Command,
    ) -> Result<Self, LabError> {
        Self::launch(dir, name, command, |command| init.enter(|| command.spawn()))
    }

    fn launch(
        dir: &PeerDir,
        name: &str,
        command: &mut Command,
        spawn: impl FnOnce(&mut Command) -> io::Result<Child>,
    ) -> Result<Self, LabError> {
        let what = format!("starting {name} ({})", command.get_program().to_string_lossy());
        let doing = || LabError::doing(what.clone());
        let log = dir.join(&format!("{name}.log"));
        let file = File::create(&log).map_err(doing())?;
        let copy = file.try_clone().map_err(doing())?;
        command
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stdout(file)
            .stderr(copy)
            .process_group(0);
        dir.note_command(command);
        let started = Instant::now();
        let mut child = spawn(command).map_err(doing())?;
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Self { name: name.to_owned(), child, pidfd, log, started }),
            Err(errno) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(doing()(errno.into()))
            }
        }
    }

    /// Name of the program in errors.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// PID of the program.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Descriptor that becomes readable when the program has ended.
    pub(crate) fn sign(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Start time of the program.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// All output of the program.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Writes a line to the program's standard input.
    pub(crate) fn write_line(&mut self, line: &str) -> Result<(), LabError> {
        let stdin = self.child.stdin.as_mut().expect("piped");
        let result = stdin.write_all(format!("{line}\n").as_bytes());
        result.map_err(|error| self.failed(&format!("command '{line}': {error}")))
    }

    /// Waits until `is_ready` returns true; fails if the program ends first or takes too long.
    pub(crate) fn wait_until(
        &mut self,
        cancel: &Cancel,
        what: &str,
        mut is_ready: impl FnMut(&Self) -> bool,
    ) -> Result<(), LabError> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            cancel.check()?;
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(self.failed(&format!("ended before {what} ({status})")));
            }
            if is_ready(self) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(self.failed(&format!(
                    "timed out after {} s waiting for {what}",
                    TIMEOUT.as_secs()
                )));
            }
            thread::sleep(INTERVAL);
        }
    }

    /// Waits until the program's log contains `words`.
    pub(crate) fn wait_until_logged(
        &mut self,
        cancel: &Cancel,
        what: &str,
        words: &str,
    ) -> Result<(), LabError> {
        self.wait_until(cancel, what, |process| process.log().contains(words))
    }

    /// Waits until the program accepts connections at a socket.
    pub(crate) fn wait_until_listening(
        &mut self,
        cancel: &Cancel,
        what: &str,
        socket: &Path,
    ) -> Result<(), LabError> {
        self.wait_until(cancel, what, |_| takes_connections(socket))
    }

    /// Waits until the program has ended; fails if it failed.
    pub(crate) fn wait_until_done(&mut self, cancel: &Cancel) -> Result<(), LabError> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            cancel.check()?;
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(self.failed(&format!("failed ({status})"))),
                _ if Instant::now() > deadline => {
                    return Err(self.failed(&format!("not finished after {} s", TIMEOUT.as_secs())));
                }
                _ => thread::sleep(INTERVAL),
            }
        }
    }

    /// Exit status and last log lines of the program, if it has ended.
    pub(crate) fn end(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(format!("ended ({status}); last output: {}", last_lines(&self.log())))
    }

    /// Fails if the program has ended, which it should not have.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        if has_ended(&self.pidfd) { Err(self.failed("ended unexpectedly")) } else { Ok(()) }
    }

    /// Makes an error with the last lines of the log.
    pub(crate) fn failed(&self, what: &str) -> LabError {
        let last = last_lines(&self.log());
        LabError::peer(&self.name, format!("{what}; last output: {last}"))
    }

    /// Makes the error for a request without a reply. The program may have ended: its sockets close
    /// a moment before the process ends.
    pub(crate) fn unanswered(&self, error: &impl std::fmt::Display) -> LabError {
        thread::sleep(INTERVAL);
        self.check().err().unwrap_or_else(|| self.failed(&error.to_string()))
    }

    /// CPU time of the threads whose name begins with `prefix`; fails if there are none.
    pub(crate) fn cpu_time(&self, prefix: &str) -> Result<CpuTime, LabError> {
        let sum = self.sum_cpu_time(prefix, |name| name.starts_with(prefix))?;
        sum.ok_or_else(|| self.failed(&format!("no thread {prefix}*")))
    }

    /// CPU time of all other threads.
    pub(crate) fn cpu_time_but(&self, prefix: &str) -> Result<CpuTime, LabError> {
        let sum = self.sum_cpu_time(prefix, |name| !name.starts_with(prefix))?;
        Ok(sum.unwrap_or_default())
    }

    /// CPU time of the threads whose names satisfy `counted`; `None` if there are none.
    fn sum_cpu_time(
        &self,
        prefix: &str,
        counted: impl Fn(&str) -> bool,
    ) -> Result<Option<CpuTime>, LabError> {
        let doing = || LabError::doing(format!("CPU time of {} thread {prefix}", self.name));
        let mut sum: Option<CpuTime> = None;
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).map_err(doing())?;
        for task in threads.flatten().map(|entry| entry.path()) {
            let Ok(name) = fs::read_to_string(task.join("comm")) else { continue };
            if counted(&name) {
                let stat = fs::read_to_string(task.join("stat")).map_err(doing())?;
                let schedstat = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
                let time = parse_cpu_time(&stat, &schedstat).unwrap_or_default();
                let sum = sum.get_or_insert_default();
                sum.user += time.user;
                sum.system += time.system;
            }
        }
        Ok(sum)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let stdin = self.child.stdin.take();
        // After it has been waited for, its PID may belong to another process.
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process_group(self.pid(), Signal::KILL);
            let _ = self.child.wait();
        }
        // The standard input has no reader once all processes that it started are gone.
        if let Some(stdin) = stdin {
            let _ = poll(&mut [PollFd::new(&stdin, PollFlags::empty())], Some(&GRACE));
        }
    }
}

/// Makes a command that inherits nothing of our environment.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// Runs a short-lived program that sets something up, to its end; returns its output.
pub(crate) fn run(dir: &PeerDir, command: &mut Command) -> Result<String, LabError> {
    dir.note_command(command);
    query(dir, command)
}

/// Runs a short-lived program that changes nothing, to its end; returns its output.
pub(crate) fn query(dir: &PeerDir, command: &mut Command) -> Result<String, LabError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy());
    let what = arguments.fold(program, |line, argument| line + " " + &argument);
    calls::tie(command, dir.namespace());
    let output = command.stdin(Stdio::null()).output().map_err(LabError::doing(what.clone()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let output = String::from_utf8_lossy(&output.stderr);
    Err(LabError::System { what, error: io::Error::other(last_lines(&output)) })
}

/// Joins the last non-empty lines into one.
fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.as_slice() {
        [] => "none".to_owned(),
        lines => lines[lines.len().saturating_sub(LAST_LINES)..].join(" | "),
    }
}

/// Computes CPU time: the total is exact (nanoseconds, the first field of `schedstat`); the
/// division into user and system time has the resolution of clock ticks (fields 14 and 15 of
/// `stat`, proc_pid_stat(5)).
fn parse_cpu_time(stat: &str, schedstat: &str) -> Option<CpuTime> {
    // The second field, the name in parentheses, may contain spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split(' ').skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    let (user, system) = (ticks()?, ticks()?);
    let tick = Duration::from_secs(1) / rustix::param::clock_ticks_per_second() as u32;
    let exact = schedstat.split(' ').next().and_then(|field| field.parse().ok());
    let sum = exact.map_or(tick * (user + system), Duration::from_nanos);
    let share = f64::from(system) / f64::from((user + system).max(1));
    let system = sum.mul_f64(share);
    Some(CpuTime { user: sum.saturating_sub(system), system })
}

/// Returns true if a socket accepts connections. The existence of its file is not enough: it exists
/// from bind(2) on, and connections before listen(2) are refused.
fn takes_connections(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_file_appears_before_listening() {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        assert!(path.exists() && !takes_connections(&path));
        listen(&listener, 1).unwrap();
        assert!(takes_connections(&path));
    }

    #[test]
    fn cpu_time_of_a_thread() {
        let stat = "7 (a) b (c) R 1 7 7 0 -1 4194304 9 0 0 0 300 100 0 0 20 0 1 0 5 0 0\n";
        let time = parse_cpu_time(stat, "8000000000 5 6\n").unwrap();
        assert_eq!((time.user.as_secs(), time.system.as_secs()), (6, 2));
        let by_ticks = parse_cpu_time(stat, "").unwrap();
        assert_eq!(by_ticks.user + by_ticks.system, Duration::from_secs(4));
        assert_eq!(parse_cpu_time("", ""), None);
    }

    #[test]
    fn last_lines_of_log_are_reported() {
        assert_eq!(last_lines(" \n\n"), "none");
        assert_eq!(last_lines("EAL: no\n\n  Cause: x\n"), "EAL: no | Cause: x");
        let many: String = (0..20).map(|line| format!("{line}\n")).collect();
        assert_eq!(last_lines(&many), "12 | 13 | 14 | 15 | 16 | 17 | 18 | 19");
    }
}
