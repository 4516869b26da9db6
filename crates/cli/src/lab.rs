//! `dray lab`: what labs leave behind.

use clap::Subcommand;

use crate::{Failure, print};

/// Work with the lab's containers by hand.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Remove what a killed dray left behind, and only that. Every start of a lab does the same.
    Clean,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match arguments.command {
        Command::Clean => {
            let removed = dray_lab::clean()?;
            let lines: String = removed.iter().map(|lab| format!("removed {lab}\n")).collect();
            print(if lines.is_empty() { "nothing to remove\n" } else { &lines })
        }
    }
}
