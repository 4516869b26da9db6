//! Resources that a process holds, as the kernel reports them.

use std::fs;
use std::io;
use std::iter::Sum;
use std::path::Path;

use rustix::process::Pid;

/// Resources that a process holds at some moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Memory in bytes, with a proportional share of shared memory (`Pss` of proc_pid_smaps(5)).
    /// Excludes huge pages and memory that the kernel holds for the process, such as socket
    /// buffers.
    pub memory_bytes: u64,
    /// Number of open files, sockets and other descriptors.
    pub file_descriptors: usize,
    /// Reason why the process's memory is not locked; `None` if it is locked.
    pub unlocked: Option<String>,
}

impl Holdings {
    /// Reads a process's resources from the kernel.
    pub(crate) fn of(pid: Pid) -> io::Result<Self> {
        let process = format!("/proc/{}", pid.as_raw_nonzero());
        let process = Path::new(&process);
        let read = |file: &str| fs::read_to_string(process.join(file));
        let number = |file: &str, name: &str| {
            let text = read(file)?;
            kilobytes(&text, name).ok_or_else(|| io::Error::other(format!("{file} has no {name}")))
        };
        let unlocked = match number("status", "VmLck")? {
            0 => Some(lack(&read("limits")?)),
            _ => None,
        };
        Ok(Self {
            memory_bytes: number("smaps_rollup", "Pss")? * 1024,
            file_descriptors: fs::read_dir(process.join("fd"))?.count(),
            unlocked,
        })
    }
}

impl Sum for Holdings {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |sum, part| Self {
            memory_bytes: sum.memory_bytes + part.memory_bytes,
            file_descriptors: sum.file_descriptors + part.file_descriptors,
            unlocked: sum.unlocked.or(part.unlocked),
        })
    }
}

/// Parses the kilobytes of a line such as `Pss:    12 kB`.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Reason why memory is not locked, from proc_pid_limits(5).
fn lack(limits: &str) -> String {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let hard = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    match hard {
        Some(bytes) => {
            format!("RLIMIT_MEMLOCK is {} KiB, and CAP_IPC_LOCK is missing", bytes / 1024)
        }
        None => "refused by the kernel".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_status_and_limits() {
        let rollup =
            "5-7f [rollup]\nRss:             100 kB\nPss:              12 kB\nPss_Dirty: 3 kB\n";
        assert_eq!(kilobytes(rollup, "Pss"), Some(12));
        assert_eq!(kilobytes(rollup, "VmLck"), None);
        let limits = "Limit  Soft Limit  Hard Limit  Units\n\
                      Max locked memory         65536                8388608              bytes\n";
        assert!(lack(limits).contains("8192 KiB"), "{}", lack(limits));
        let limits = limits.replace("8388608", "unlimited");
        assert_eq!(lack(&limits), "refused by the kernel");
    }

    #[test]
    fn own_holdings_are_not_zero() {
        let holdings = Holdings::of(rustix::process::getpid()).unwrap();
        assert!(holdings.memory_bytes > 1 << 16 && holdings.file_descriptors > 2, "{holdings:?}");
    }
}
