//! `dray inside`: the first process of a container that a lab made. Not for people.

use std::io::{stdin, stdout};

use dray_lab::container;
use dray_traffic::agent;

use crate::Failure;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of the container.
    name: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    container::enter(&arguments.name)?;
    Ok(agent::serve(stdin().lock(), stdout())?)
}
