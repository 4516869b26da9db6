//! `dray doctor`: what this host offers.

use crate::Failure;

/// Show what this host offers, what it lacks, what that costs and how to get it.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Write JSON instead of text.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let _ = arguments.json;
    Ok(())
}
