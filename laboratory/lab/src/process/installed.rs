//! Programs installed on this host: where they are, and their first line of output.

use std::env;
use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

/// Folders of programs that are not in an ordinary user's PATH.
const SYSTEM_PATH: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

fn search_path(path: Option<OsString>) -> Vec<PathBuf> {
    let path = path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    // An empty or relative entry would run a program from the working directory.
    let absolute = env::split_paths(&path).filter(|directory| directory.is_absolute());
    absolute.chain(SYSTEM_PATH.map(PathBuf::from)).collect()
}

/// Finds a program in `folder`, if given, and then in PATH and the folders of the system.
pub(crate) fn find(name: &str, folder: Option<&str>) -> Option<PathBuf> {
    let is_program = |file: &PathBuf| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let folders = folder.map(PathBuf::from).into_iter().chain(search_path(env::var_os("PATH")));
    folders.map(|directory| directory.join(name)).find(is_program)
}

/// Returns the first line that a program prints. The program and everything that it started are
/// killed after that line or after `timeout`.
pub(crate) fn first_answer(command: &mut Command, timeout: Duration) -> Option<String> {
    let deadline = Instant::now() + timeout;
    let mut child = command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .ok()?;
    let line = child.stdout.take().and_then(|output| first_line(output, deadline));
    // Before the wait, the PID cannot have been reused.
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
    line
}

/// Reads until the end of the first line, the end of the output, or the deadline.
fn first_line(mut output: impl Read + AsFd, deadline: Instant) -> Option<String> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 512];
    while bytes.len() < 4096 && !bytes.contains(&b'\n') {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs().try_into().ok()?,
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&output, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return None,
        }
        match output.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => bytes.extend(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    clean(&String::from_utf8_lossy(&bytes))
}

/// Returns the first line, without control characters.
fn clean(text: &str) -> Option<String> {
    let line = text.lines().next()?;
    let line: String = line.chars().filter(|c| !c.is_control()).take(80).collect();
    let line = line.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn version_query_has_a_time_limit() {
        let within = |timeout, script| {
            first_answer(Command::new("sh").args(["-c", script]), Duration::from_millis(timeout))
        };
        // A long limit for programs that answer, even on a busy machine; a short one for the
        // others.
        let (ask, ask_in_vain) = (|script| within(5000, script), |script| within(300, script));
        let start = Instant::now();
        assert_eq!(ask("echo runc version 1.1; echo more").as_deref(), Some("runc version 1.1"));
        assert_eq!(ask("exit 1"), None);
        assert_eq!(ask_in_vain("sleep 60"), None);
        assert_eq!(ask_in_vain("sleep 60 & exit 0"), None, "the child holds the output open");
        assert_eq!(ask("while :; do printf x; done").map(|line| line.len()), Some(80));
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }

    #[test]
    fn only_absolute_directories_are_searched() {
        let path = search_path(Some("bin::/usr/bin:./x".into()));
        assert_eq!(path[0], Path::new("/usr/bin"));
        assert!(path.iter().all(|directory| directory.is_absolute()));
        assert!(search_path(None).contains(&PathBuf::from("/usr/bin")));
    }

    #[test]
    fn given_folder_is_searched_first() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("sh");
        symlink("/bin/sh", &own).unwrap();
        assert_eq!(find("sh", folder.path().to_str()), Some(own));
        assert!(find("sh", None).is_some_and(|found| !found.starts_with(folder.path())));
        assert_eq!(find("no-such-program", None), None);
    }

    #[test]
    fn versions_lose_control_characters() {
        assert_eq!(clean("\u{1b}[31mrunc\tversion 1.1\n2"), Some("[31mruncversion 1.1".to_owned()));
        assert_eq!(clean("\n\n"), None);
        assert_eq!(clean(""), None);
    }
}
