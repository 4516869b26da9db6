//! Options of commands that send requests to a running `dray switch` or `dray upf`.

use std::path::PathBuf;

use dray_daemon::{ClientError, default_control};
use serde::Serialize;

use crate::common::{Failure, print, print_json};

/// Options of the commands that talk to a running program.
#[derive(clap::Args)]
pub(crate) struct Control {
    /// Control socket [default: the usual one in /run/dray; in a lab, the container's own].
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Talk to the program that runs in this lab, and in this container if several have one.
    #[cfg(feature = "laboratory")]
    #[arg(long, value_name = "LAB[/CONTAINER]", conflicts_with = "control")]
    lab: Option<String>,
}

impl Control {
    /// Returns true if the options select a socket.
    pub(crate) fn is_given(&self) -> bool {
        #[cfg(feature = "laboratory")]
        if self.lab.is_some() {
            return true;
        }
        self.control.is_some()
    }

    /// Returns a client of the selected switch.
    pub(crate) fn switch(&self) -> Result<dray_switch::client::Client, Failure> {
        let socket = self.socket(dray_switch::config::CONTROL, "dray switch")?;
        Ok(dray_switch::client::Client::new(&socket))
    }

    /// Returns a client of the selected user plane function.
    pub(crate) fn upf(&self) -> Result<dray_upf::api::Client, Failure> {
        let socket = self.socket(dray_upf::api::CONTROL, "dray upf")?;
        Ok(dray_upf::api::Client::new(&socket))
    }

    /// Returns the path of the selected socket. `usual` is the default, `program` the command line
    /// that starts the program.
    #[cfg_attr(
        not(feature = "laboratory"),
        expect(unused_variables, reason = "labs need the laboratory")
    )]
    pub(crate) fn socket(&self, usual: &str, program: &str) -> Result<PathBuf, Failure> {
        #[cfg(feature = "laboratory")]
        if let Some(lab) = &self.lab {
            return crate::laboratory::lab::find::control_in_lab(lab, usual, program);
        }
        Ok(self.control.clone().unwrap_or_else(|| default_control(usual)))
    }
}

/// Options of a command that shows what the program replies.
#[derive(clap::Args)]
pub(crate) struct Query {
    #[command(flatten)]
    pub(crate) control: Control,
    /// Write JSON instead of text.
    #[arg(long)]
    json: bool,
}

impl Query {
    /// Prints a reply: as JSON, or as the text that `text` returns.
    pub(crate) fn show<T: Serialize>(
        &self,
        reply: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        if self.json { print_json(reply) } else { print(&text(reply)) }
    }
}

/// Options of the command that reports health, for probes of container runtimes.
#[derive(clap::Args)]
pub(crate) struct Health {
    #[command(flatten)]
    pub(crate) control: Control,
    /// Fail also while a port is not open, or has failed.
    #[arg(long)]
    pub(crate) ready: bool,
}

/// Converts the error of a request: one that the program refuses as invalid is wrong usage.
pub(crate) fn refused(error: ClientError) -> Failure {
    match error {
        ClientError::Refused { status: 400, .. } => Failure::usage(error),
        other => other.into(),
    }
}
