//! Arguments of all roles.

use std::time::Duration;

use dray_daemon::ControlAddress;

use crate::parse::{self, Interval};

/// Arguments that all roles have in common.
#[derive(clap::Args)]
pub(super) struct Common {
    /// End after this time; without it, on Ctrl-C.
    #[arg(short = 't', long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse::duration)]
    pub(super) duration: Option<Duration>,
    /// Time between lines with rates on standard error, in seconds; 0: no lines.
    #[arg(short, long, value_name = "SECONDS", default_value = "1", allow_hyphen_values = true, value_parser = parse::interval)]
    pub(super) interval: Interval,
    /// Run on this CPU.
    #[arg(long)]
    pub(super) cpu: Option<usize>,
    /// Control socket, at which `dray capture --control PATH --all` gets copies of the frames.
    #[arg(long, value_name = "PATH")]
    pub(super) control: Option<ControlAddress>,
    /// Write the report as JSON.
    #[arg(short = 'J', long)]
    pub(super) json: bool,
}

impl Common {
    /// Returns the time between samples: the interval, or a part of it that is no longer than a
    /// second.
    pub(super) fn samples(&self) -> Duration {
        let interval = self.interval.0.unwrap_or(Duration::from_secs(1));
        interval / interval.as_secs_f64().ceil() as u32
    }
}
