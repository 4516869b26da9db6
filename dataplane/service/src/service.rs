//! A data plane, as its host sees it.

use dray_daemon::Metrics;

use crate::port_log::LoggedPort;

/// A data plane that runs.
pub trait Service {
    /// Checks that all data threads publish; the error names those that do not (`/livez`).
    fn check_alive(&self) -> Result<(), String>;

    /// Checks that the data plane can do its work (`/readyz`).
    fn check_ready(&self) -> Result<(), String>;

    /// Returns the metrics of this moment (`/metrics`).
    fn metrics(&self) -> Metrics;

    /// Returns the ports as the log shows them.
    fn logged_ports(&self) -> Vec<LoggedPort>;
}
