//! `dray doctor`: what this host offers.

use crate::common::{Failure, print, print_json};

/// Show what this host offers, what it lacks, what that costs and how to get it.
///
/// Link kinds are probed by creating one of each in a temporary namespace; no module is loaded and
/// nothing is changed.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dray doctor
  dray doctor --json | jq '.[] | select(.state == \"missing\")'")]
pub(crate) struct Arguments {
    /// Write JSON instead of text.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let findings = dray_lab::doctor::examine();
    if arguments.json { print_json(&findings) } else { print(&dray_lab::doctor::render(&findings)) }
}
