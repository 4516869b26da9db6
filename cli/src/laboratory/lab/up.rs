//! `dray lab up`: a lab in a process of its own, the keeper, which outlives the command.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, anyhow};
use dray_lab::standing::{self, Order};
use dray_lab::topology::{Topology, TopologyError, check_name};
use dray_lab::{Cancel, LabError, placement};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{CheckCommand, Failure, cancel_on_signals, print};

/// Command with which the program starts itself as a keeper.
pub(super) const KEEP_COMMAND: &str = "keep";

/// First line of a keeper once everything is up. Any other line is an error.
const UP: &str = "up";

/// Interval at which a wait checks if it was cancelled.
const INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Topology file.
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Name for the lab, instead of the one in the file.
    #[arg(long, value_parser = name)]
    name: Option<String>,
}

/// Arguments of the keeper, which reads the file's text from standard input.
#[derive(clap::Args)]
pub(super) struct KeepArguments {
    file: PathBuf,
    #[arg(long, value_parser = name)]
    name: String,
}

fn name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned())
}

pub(super) fn run(arguments: Arguments, check: CheckCommand) -> Result<(), Failure> {
    let (topology, text) = load(&arguments.file, check).map_err(Failure::usage)?;
    let name = arguments.name.unwrap_or(topology.name);
    if standing::find_all()?.iter().any(|lab| lab.name() == name) {
        return Err(LabError::NameTaken { name }.into());
    }
    let cancel = cancel_on_signals()?;
    let mut keeper = Command::new(std::env::current_exe()?)
        .args(["lab", KEEP_COMMAND, "--name", &name, "--"])
        .arg(&arguments.file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // The keeper outlives this command and must not hold its standard error open.
        .stderr(Stdio::null())
        .spawn()
        .context("starting the lab's keeper")?;
    let mut stdin = keeper.stdin.take().expect("piped");
    // If the keeper does not read, it reports the reason.
    let _ = stdin.write_all(text.as_bytes());
    drop(stdin);
    let reply = wait_for_word(&mut keeper, &cancel)?;
    if reply == UP {
        let count = |count, what| match count {
            1 => format!("1 {what}"),
            count => format!("{count} {what}s"),
        };
        let containers = count(topology.containers.len(), "container");
        let links = count(topology.links.len(), "link");
        let hint = match topology.containers.iter().any(|container| container.run.is_some()) {
            true => {
                "its commands run: `dray lab logs` shows what they write, `dray lab down` ends them\n"
            }
            false => "",
        };
        return print(&format!("lab {name} is up: {containers}, {links}\n{hint}"));
    }
    let status = keeper.wait()?;
    Err(match reply.as_str() {
        "" => anyhow!("the keeper of lab {name} ended without an error message ({status})"),
        reply => anyhow!("{reply}"),
    }
    .into())
}

/// Returns the keeper's first line. A signal to this command is passed on to the keeper, which then
/// cleans up.
fn wait_for_word(keeper: &mut Child, cancel: &Cancel) -> anyhow::Result<String> {
    let mut stdout = keeper.stdout.take().expect("piped");
    let (mut reply, mut chunk, mut cancelled) = (Vec::new(), [0; 4096], false);
    while !reply.ends_with(b"\n") {
        if cancel.check().is_err() && !cancelled {
            cancelled = kill_process(Pid::from_child(keeper), Signal::TERM).is_ok();
        }
        let mut ready = [PollFd::new(&stdout, PollFlags::IN)];
        if !matches!(poll(&mut ready, Some(&INTERVAL)), Ok(1..)) {
            continue;
        }
        match stdout.read(&mut chunk)? {
            0 => break,
            len => reply.extend_from_slice(&chunk[..len]),
        }
    }
    if cancelled {
        // Cancelled even if the lab was up already: the keeper has taken it down.
        keeper.wait()?;
        return Err(LabError::Cancelled.into());
    }
    Ok(String::from_utf8_lossy(&reply).trim_end().to_owned())
}

pub(super) fn keep(arguments: &KeepArguments) -> Result<(), Failure> {
    let cancel = cancel_on_signals()?;
    // The end of the caller's session must not end the lab.
    rustix::process::setsid()?;
    let result = read_and_keep(arguments, &cancel);
    if let Err(error) = &result {
        // The caller may be gone.
        let _ = writeln!(io::stdout(), "{error:#}");
    }
    Ok(result?)
}

fn read_and_keep(arguments: &KeepArguments, cancel: &Cancel) -> anyhow::Result<()> {
    let text = io::read_to_string(io::stdin())?;
    let (file, name) = (arguments.file.clone(), arguments.name.clone());
    // The caller has checked the commands.
    let topology =
        Topology::read(&file.display().to_string(), &text, &placement::reachable(), &|_| Ok(()))?;
    let program = std::env::current_exe()?;
    let order = Order { program, name, file, text, topology };
    let on_up = || {
        let mut stdout = io::stdout();
        writeln!(stdout, "{UP}")?;
        stdout.flush()
    };
    Ok(standing::keep(&order, cancel, on_up)?)
}

/// Reads a topology and returns its file's text too.
pub(super) fn load(file: &Path, check: CheckCommand) -> Result<(Topology, String), TopologyError> {
    Topology::load(file, &placement::reachable(), &check)
}
