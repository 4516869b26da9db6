//! Selects the control socket of a running `dray switch` or `dray upf`.

use std::path::PathBuf;

use dray_daemon::default_control;

use crate::common::Failure;

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
    /// Returns the path of the selected socket. `usual` is the default, `program` the command line
    /// that starts the program.
    #[cfg_attr(
        not(feature = "laboratory"),
        expect(unused_variables, reason = "labs need the laboratory")
    )]
    pub(crate) fn socket(&self, usual: &str, program: &str) -> Result<PathBuf, Failure> {
        #[cfg(feature = "laboratory")]
        if let Some(lab) = &self.lab {
            return crate::laboratory::control_in_lab(lab, usual, program);
        }
        Ok(self.control.clone().unwrap_or_else(|| default_control(usual)))
    }
}
