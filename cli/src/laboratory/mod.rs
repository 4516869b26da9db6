//! Commands of the laboratory: measurements, reports, and labs by hand. A build without the feature
//! `laboratory` has the switch, the user plane function and the roles only.

mod bench;
mod doctor;
mod inside;
pub(crate) mod lab;
mod measuring;
mod output;
mod papers;
mod report;
mod selfcheck;
mod values;

use std::process::ExitCode;

use clap::Subcommand;

pub(crate) use bench::is_experiment;
#[cfg(feature = "install")]
pub(crate) use bench::with_names;

use crate::common::{CheckCommand, Failure};

#[derive(Subcommand)]
pub(crate) enum Command {
    Bench(Box<bench::Arguments>),
    Report(report::ReportArguments),
    Compare(report::CompareArguments),
    Doctor(doctor::Arguments),
    Lab(lab::Arguments),
    #[command(hide = true, name = dray_lab::container::INSIDE_COMMAND)]
    Inside(inside::Arguments),
}

/// Runs a command; `dray lab exec` ends with the status of its program. `check` checks commands for
/// `dray` in the containers of a lab.
pub(crate) fn run(command: Command, check: CheckCommand) -> Result<ExitCode, Failure> {
    match command {
        Command::Bench(arguments) => bench::run(*arguments),
        Command::Report(arguments) => report::report(&arguments),
        Command::Compare(arguments) => report::compare(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Lab(arguments) => return lab::run(arguments, check),
        Command::Inside(arguments) => inside::run(&arguments),
    }
    .map(|()| ExitCode::SUCCESS)
}
