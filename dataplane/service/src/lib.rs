//! Host of a data plane, the switch or the user plane function: what both need to run for months, apart
//! from their data paths.
//!
//! The state of a program outlives its process, in one form ([`Snapshot`]): after a crash or a restart it
//! comes from the supervisor's store, where the [`Recorder`] keeps it; at a take-over the running process
//! sends it ([`Outgoing`]). Data threads know nothing of it. [`run`] is the loop of the process.
#![forbid(unsafe_code)]

mod end;
mod handover;
mod port_log;
mod recorder;
mod routes;
mod run;
mod snapshot;
mod sockets;

use dray_daemon::Metrics;

pub use end::{PortEnd, hold_all};
pub use handover::{Outgoing, Program, TakeoverError};
pub use port_log::{LoggedPort, PortLog, total};
pub use recorder::{Recorded, Recorder, Recording, Unrecorded};
pub use routes::{answer_monitor, no_such_resource, observe, serve, serve_monitors};
pub use run::{begin, run};
pub use snapshot::{Page, PortPage, Snapshot, monotonic_s};
pub use sockets::Sockets;

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
