//! Requests to a running user plane function.

use std::path::PathBuf;

use clap::Subcommand;
use dray_daemon::ClientError;
use dray_upf::api::Transaction;
use dray_upf::config::{SessionConfig, SessionsFile};

use super::show;
use crate::common::{Failure, usage};
use crate::control::{Control, Query, refused};

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
        query: Query,
    },
    /// List sessions and their usage.
    #[command(after_help = "Examples:\n  dray upf sessions ls\n  dray upf sessions ls --json")]
    Ls(Query),
}

#[derive(clap::Args)]
pub(super) struct File {
    /// File of sessions as in the configuration, in TOML, or in JSON if the name ends in .json.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    control: Control,
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
        Sessions::Show { seid, query } => {
            let session = query.control.upf()?.session(seid).map_err(refused)?;
            return query.show(&session, show::session);
        }
        Sessions::Ls(query) => {
            let sessions = query.control.upf()?.sessions().map_err(refused)?;
            return query.show(&sessions, |sessions| show::sessions(sessions));
        }
    };
    control.upf()?.change(&transaction).map_err(|error| match (error, file) {
        (ClientError::Refused { status: 400, what }, Some(file)) => {
            usage!("{}: {what}", file.display())
        }
        (error, _) => refused(error),
    })
}
