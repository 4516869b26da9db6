//! Options of the log of daemons: `--log-level`.

use dray_daemon::LogLevel;

use crate::common::{Failure, usage};

/// Options of the log.
#[derive(Default, clap::Args)]
pub(crate) struct LogArguments {
    /// Log events of this level and of those before it: off, error, warn, info, debug or trace
    /// [env: DRAY_LOG] [default: info].
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<LogLevel>,
}

impl LogArguments {
    /// Starts the log of the process.
    pub(crate) fn start(self) -> Result<(), Failure> {
        let level = self.log_level.map_or_else(LogLevel::from_environment, Ok);
        dray_daemon::log::start(level.map_err(|what| usage!("{what}"))?);
        Ok(())
    }
}
