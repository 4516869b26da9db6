//! `dray inside`: the first process of a container that a lab created. Not for users.

use std::io::{BufReader, stdin, stdout};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::Context;
use dray_lab::container;
use dray_traffic::agent;

use crate::common::Failure;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of the container.
    name: String,
    /// Socket on which the lab listens, if a container engine has set up the container.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    dray_daemon::watch_threads();
    match &arguments.socket {
        None => {
            container::enter(&arguments.name)?;
            Ok(agent::serve(stdin().lock(), stdout())?)
        }
        Some(path) => {
            let events = UnixStream::connect(path).with_context(|| path.display().to_string())?;
            let requests = BufReader::new(events.try_clone()?);
            Ok(agent::serve(requests, events)?)
        }
    }
}
