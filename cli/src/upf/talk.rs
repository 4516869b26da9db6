//! Requests to a running user plane function.

use std::path::PathBuf;

use clap::Subcommand;
use dray_daemon::ClientError;
use dray_upf::api::{CONTROL, Client, Transaction};
use dray_upf::config::{SessionConfig, SessionsFile};

use super::show;
use crate::common::{Failure, print, usage};
use crate::control::{Ask, Control, Health, refused};

#[derive(Subcommand)]
pub(super) enum Sessions {
    /// Add the sessions of a file: all of them, or none.
    #[command(after_help = "Example:\n  dray upf sessions add more.toml")]
    Add(File),
    /// Replace the sessions with the SEIDs of a file by those in the file: all of them, or none.
    #[command(after_help = "Example:\n  dray upf sessions modify handover.json --end-marker")]
    Modify {
        #[command(flatten)]
        file: File,
        /// Send an end marker into tunnels that sessions leave.
        #[arg(long)]
        end_marker: bool,
    },
    /// Remove sessions: all of them, or none.
    #[command(after_help = "\
Examples:
  dray upf sessions remove 1 2 3
  dray upf sessions remove --file more.toml")]
    Remove {
        /// SEIDs of the sessions.
        #[arg(value_name = "SEID", required_unless_present = "file")]
        seids: Vec<u64>,
        /// Remove the sessions of this file.
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        #[command(flatten)]
        control: Control,
    },
    /// Show a session: its rules, tunnels, usage and buffered packets.
    #[command(
        after_help = "Examples:\n  dray upf sessions show 1\n  dray upf sessions show 1 --json"
    )]
    Show {
        /// SEID of the session.
        #[arg(value_name = "SEID")]
        seid: u64,
        #[command(flatten)]
        ask: Ask,
    },
    /// List sessions and their usage.
    #[command(after_help = "Examples:\n  dray upf sessions ls\n  dray upf sessions ls --json")]
    Ls(Ask),
}

#[derive(clap::Args)]
pub(super) struct File {
    /// File of sessions as in the configuration, in TOML, or in JSON if the name ends in .json.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    control: Control,
}

/// Returns a client of the user plane function that the options select.
fn client(control: &Control) -> Result<Client, Failure> {
    Ok(Client::new(&control.socket(CONTROL, "dray upf")?))
}

/// Reads the sessions of a file.
fn load(path: &std::path::Path) -> Result<Vec<SessionConfig>, Failure> {
    let sessions = SessionsFile::load(path).map_err(Failure::usage)?.into_sessions();
    sessions.map_err(|error| Failure::usage(error.in_file(path)))
}

pub(super) fn sessions(command: Sessions) -> Result<(), Failure> {
    let none = Transaction::default();
    // `file` is the source of the transaction, for error messages.
    let (control, transaction, file) = match command {
        Sessions::Add(File { file, control }) => {
            (control, Transaction { add: load(&file)?, ..none }, Some(file))
        }
        Sessions::Modify { file: File { file, control }, end_marker } => {
            (control, Transaction { modify: load(&file)?, end_marker, ..none }, Some(file))
        }
        Sessions::Remove { mut seids, file, control } => {
            let sessions = file.as_deref().map_or(Ok(Vec::new()), load)?;
            let file = file.filter(|_| seids.is_empty());
            seids.extend(sessions.iter().map(|session| session.seid));
            (control, Transaction { remove: seids, ..none }, file)
        }
        Sessions::Show { seid, ask } => {
            let session = client(&ask.control)?.session(seid).map_err(refused)?;
            return ask.show(&session, show::session);
        }
        Sessions::Ls(ask) => {
            let sessions = client(&ask.control)?.sessions().map_err(refused)?;
            return ask.show(&sessions, |sessions| show::sessions(sessions));
        }
    };
    client(&control)?.change(&transaction).map_err(|error| match (error, file) {
        (ClientError::Refused { status: 400, what }, Some(file)) => {
            usage!("{}: {what}", file.display())
        }
        (error, _) => refused(error),
    })
}

pub(super) fn stats(ask: &Ask) -> Result<(), Failure> {
    let stats = client(&ask.control)?.stats().map_err(refused)?;
    ask.show(&stats, show::stats)
}

pub(super) fn status(ask: &Ask) -> Result<(), Failure> {
    let status = client(&ask.control)?.status().map_err(refused)?;
    ask.show(&status, show::status)
}

pub(super) fn health(Health { control, ready }: &Health) -> Result<(), Failure> {
    client(control)?.health(*ready).map_err(refused)?;
    print("ok\n")
}

pub(super) fn metrics(control: &Control) -> Result<(), Failure> {
    print(&client(control)?.metrics().map_err(refused)?)
}
