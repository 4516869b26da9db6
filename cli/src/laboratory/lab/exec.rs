//! `dray lab exec`: runs a command in a container.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::anyhow;
use dray_daemon::CONTROL_DIR;
use dray_lab::join::{JoinError, run_in};
use dray_lab::standing::path_with;
use rustix::process::Pid;
use signal_hook::consts::{SIGINT, SIGQUIT};

use super::find::{container, find};
use crate::common::{Failure, report_error};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Name of the lab; not needed if one lab is up.
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// Name of the container, or `host`.
    container: String,
    /// Command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let state = find(arguments.lab.as_deref())?.state()?;
    let name = &arguments.container;
    let container = container(&state, name)?;
    let gone = || Failure::from(anyhow!("container {name} of lab {} has ended", state.name));
    let pid = Pid::from_raw(container.pid).filter(|_| container.running).ok_or_else(gone)?;
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]).env("PATH", path_with(&std::env::current_exe()?));
    command.envs(container.ports.iter().flat_map(|port| port.environment.clone()));
    command.env(CONTROL_DIR, &container.control);
    // The terminal signals the command as well, which decides what happens. A handler, unlike an
    // ignored signal, is not inherited by the command.
    for signal in [SIGINT, SIGQUIT] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    match run_in(pid, &mut command, |mut child| child.wait()) {
        Ok(status) => Ok(ExitCode::from(code(status?))),
        // Exit statuses as in shells.
        Err(JoinError::Start { program, error }) => {
            let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
            Ok(report_error(&format!("{program}: {error}"), code))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns an exit status, with signals encoded as in shells.
fn code(status: ExitStatus) -> u8 {
    let signal = || 128 + status.signal().unwrap_or_default();
    u8::try_from(status.code().unwrap_or_else(signal)).unwrap_or(u8::MAX)
}
