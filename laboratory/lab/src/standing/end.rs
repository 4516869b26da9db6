//! The end of a lab's processes: SIGTERM, time to end in good order, then SIGKILL.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::CommandEnd;
use super::program::{Program, is_role};
use crate::namespace::has_ended;

/// Time for processes to end after SIGTERM. A role waits up to 2 s until what it has transmitted is
/// taken.
const GRACE: Duration = Duration::from_secs(3);
/// Time limit for killed processes to be gone.
const KILLED: Duration = Duration::from_secs(1);
/// Interval between checks.
const INTERVAL: Duration = Duration::from_millis(5);
/// Maximum number of lines that are quoted of what a command writes as it ends.
const LINES_MAX: usize = 12;

/// A process inside a container.
struct Inner {
    pid: Pid,
    pidfd: OwnedFd,
}

/// Ends all processes in the PID namespaces of `firsts` but these, and describes how the commands
/// ended.
pub(super) fn end(firsts: &[Pid], programs: &[Program]) -> Vec<CommandEnd> {
    let lengths: Vec<_> =
        programs.iter().map(|program| (program.ended().is_none(), program.output_len())).collect();
    let mut inner = inside(firsts);
    signal(&inner, Signal::TERM);
    wait_until(GRACE, || inner.iter().all(|inner| has_ended(&inner.pidfd)));
    // A process that was started after the signal has not received it.
    inner.retain(|inner| !has_ended(&inner.pidfd));
    inner.extend(inside(firsts));
    signal(&inner, Signal::KILL);
    wait_until(KILLED, || {
        inner.iter().all(|inner| has_ended(&inner.pidfd))
            && programs.iter().all(|program| program.ended().is_some())
    });
    let end = |(program, (was_running, length)): (&Program, (bool, u64))| {
        let killed = program.pid().is_some_and(|pid| inner.iter().any(|inner| inner.pid == pid));
        let ended = program.ended().unwrap_or("still running").to_owned();
        CommandEnd {
            container: program.container.clone(),
            run: program.run.clone(),
            ended: match was_running && killed {
                true => format!("killed: still running {} s after SIGTERM", GRACE.as_secs()),
                false => ended,
            },
            killed: was_running && killed,
            summary: summary(
                &program.output_from(0),
                &program.output_from(if was_running { length } else { u64::MAX }),
                is_role(&program.run),
            ),
        }
    };
    programs.iter().zip(lengths).map(end).collect()
}

/// Returns the lines that a command wrote as it ended, or else its last line. The indented lines
/// that a role writes for each interval are left out.
fn summary(all: &str, at_end: &str, is_role: bool) -> Vec<String> {
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().map(str::trim_end);
        let lines = lines.filter(|line| !(line.is_empty() || is_role && line.starts_with(' ')));
        lines.map(str::to_owned).collect()
    };
    let mut summary = lines(at_end);
    if summary.is_empty() {
        summary.extend(lines(all).pop());
    }
    summary.split_off(summary.len().saturating_sub(LINES_MAX))
}

/// Returns the processes in the PID namespaces of `firsts`, without these.
fn inside(firsts: &[Pid]) -> Vec<Inner> {
    let namespace = |pid: Pid| -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/ns/pid", pid.as_raw_nonzero())).ok()
    };
    let namespaces: Vec<_> = firsts.iter().filter_map(|&first| namespace(first)).collect();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    let inner = pids.filter(|pid| !firsts.contains(pid)).filter_map(|pid| {
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // It still runs after its namespace was read, so its PID was not reused in between.
        let is_inside = namespace(pid).is_some_and(|found| namespaces.contains(&found));
        (is_inside && !has_ended(&pidfd)).then_some(Inner { pid, pidfd })
    });
    inner.collect()
}

fn signal(processes: &[Inner], signal: Signal) {
    for process in processes {
        // It may have ended meanwhile.
        let _ = pidfd_send_signal(&process.pidfd, signal);
    }
}

fn wait_until(limit: Duration, done: impl Fn() -> bool) {
    let deadline = Instant::now() + limit;
    while !done() && Instant::now() < deadline {
        thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_has_output_of_the_end() {
        let all = "   1.0 s  1 kpps\n   1.2 s  1 kpps\nsent 7\n\n";
        assert_eq!(summary(all, "   1.2 s  1 kpps\nsent 7\n\n", true), ["sent 7"]);
        assert_eq!(summary(all, "", true), ["sent 7"]);
        assert_eq!(summary("a\nup\n  full: 1\n", "up\n  full: 1\n", false), ["up", "  full: 1"]);
        assert_eq!(summary("a\nb\n", "", false), ["b"]);
        assert_eq!(summary("\n", "", false), [""; 0]);
        let many: String = (0..20).map(|line| format!("{line}\n")).collect();
        assert_eq!(summary(&many, &many, false)[0], "8");
    }
}
