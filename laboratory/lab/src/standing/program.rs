//! Commands that run in the containers of a standing lab.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::ProgramState;
use crate::join::run_in;
use crate::topology;
use crate::{Cancel, Container, LabError};

/// Time limit for `dray` commands to open their ports.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Time in which any other command is watched for a failure at its start.
const FIRST_MOMENT: Duration = Duration::from_millis(500);

/// Name of a role's thread.
const ROLE: &str = "role";
const SUCCESS: &str = "exit status 0";

/// A command started in a container.
pub(super) struct Program {
    pub(super) container: String,
    pub(super) run: String,
    log: PathBuf,
    started: Instant,
    pid: Arc<OnceLock<u32>>,
    ended: Arc<OnceLock<String>>,
}

impl Program {
    /// Starts `command`, whose text is `run`, with its output in `log`.
    pub(super) fn start(
        container: &Container,
        run: String,
        mut command: Command,
        log: PathBuf,
    ) -> Result<Self, LabError> {
        let doing = |error| LabError::doing(format!("log {}", log.display()))(error);
        // Standard output and error share the position in the file.
        let output = File::create(&log).map_err(doing)?;
        command.stdin(Stdio::null()).stderr(output.try_clone().map_err(doing)?).stdout(output);
        let (pid, ended) = (Arc::default(), Arc::default());
        start(container.pid(), command, &pid, &ended);
        let (container, started) = (container.name().to_owned(), Instant::now());
        Ok(Self { container, run, log, started, pid, ended })
    }

    pub(super) fn state(&self) -> ProgramState {
        ProgramState {
            run: self.run.clone(),
            ended: self.ended().map(str::to_owned),
            log: self.log.display().to_string(),
        }
    }

    /// PID of the command, or of its shell, outside of the container.
    pub(super) fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(*self.pid.get()?).ok()?)
    }

    /// Exit status or error, once the command has ended.
    pub(super) fn ended(&self) -> Option<&str> {
        self.ended.get().map(String::as_str)
    }

    /// Output of the command from a position in bytes on.
    pub(super) fn output_from(&self, position: u64) -> String {
        let output = fs::read(&self.log).unwrap_or_default();
        let rest = output.get(usize::try_from(position).unwrap_or(usize::MAX)..);
        String::from_utf8_lossy(rest.unwrap_or_default()).into_owned()
    }

    /// Length of the output in bytes.
    pub(super) fn output_len(&self) -> u64 {
        fs::metadata(&self.log).map_or(0, |log| log.len())
    }

    /// Returns true once the command seems to work; fails if it has failed.
    fn works(&self) -> Result<bool, LabError> {
        match self.ended() {
            Some(SUCCESS) => return Ok(true),
            Some(ended) => {
                let output = self.output_from(0);
                let last = output.lines().rfind(|line| !line.trim().is_empty());
                return Err(self.failed(&format!("{ended}: {}", last.unwrap_or("no output"))));
            }
            None => {}
        }
        let Some(thread) = working_thread(&self.run) else {
            return Ok(self.started.elapsed() > FIRST_MOMENT);
        };
        if self.pid.get().is_some_and(|&pid| has_thread(pid, thread)) {
            return Ok(true);
        }
        if self.started.elapsed() > TIMEOUT {
            let seconds = TIMEOUT.as_secs();
            return Err(self.failed(&format!("no port opened within {seconds} s")));
        }
        Ok(false)
    }

    fn failed(&self, what: &str) -> LabError {
        let what = format!("{}: {what}", self.run);
        LabError::Container { container: self.container.clone(), what }
    }
}

/// Waits until the `dray` commands have opened their ports, and no other command has failed at its
/// start.
pub(super) fn wait_until_working(programs: &[Program], cancel: &Cancel) -> Result<(), LabError> {
    for program in programs {
        while !program.works()? {
            cancel.sleep_until(Instant::now() + Duration::from_millis(2))?;
        }
    }
    // The first ones may have failed while others started.
    programs.iter().try_for_each(|program| program.works().map(drop))
}

/// Starts a command on its own thread, which waits for its end.
fn start(
    container: Pid,
    mut command: Command,
    pid: &Arc<OnceLock<u32>>,
    ended: &Arc<OnceLock<String>>,
) {
    let (pid, ended) = (pid.clone(), ended.clone());
    thread::spawn(move || {
        let outcome = run_in(container, &mut command, |mut child| {
            let _ = pid.set(child.id());
            child.wait()
        });
        let _ = ended.set(match outcome {
            Ok(Ok(status)) => describe(status),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        });
    });
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    }
}

/// Beginning of the name of the thread that exists once a plain `dray` call has opened its ports;
/// `None` for any other command line.
pub(super) fn working_thread(run: &str) -> Option<&'static str> {
    match topology::dray_call(run)?.get(1)?.as_str() {
        "send" | "receive" | "forward" | "echo" | "ping" | "upf-load" => Some(ROLE),
        "upf" => Some("upf-neighbours"),
        "switch" => Some("dray-worker"),
        _ => None,
    }
}

/// Returns true if the command is a plain call of a role.
pub(super) fn is_role(run: &str) -> bool {
    working_thread(run) == Some(ROLE)
}

fn has_thread(pid: u32, name: &str) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.any(|found| found.starts_with(name))
}
