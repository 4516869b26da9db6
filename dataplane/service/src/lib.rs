//! Host of a data plane, the switch or the user plane function: what both need to run for months,
//! apart from their data paths.
//!
//! The state of a program outlives its process, in one form ([`Snapshot`]): after a crash or a
//! restart it comes from the supervisor's store, where the [`Recorder`] puts it; at a take-over the
//! running process sends it ([`Outgoing`]). Data threads know nothing of it. [`run`] is the loop of
//! the process.
#![forbid(unsafe_code)]

mod end;
mod handover;
mod page;
mod port_log;
mod program;
mod recorder;
mod routes;
mod run;
mod service;
mod snapshot;
mod sockets;

pub use end::{PortEnd, RecordTimeout, freeze_all};
pub use handover::Outgoing;
pub use page::Page;
pub use port_log::{LoggedPort, PortLog, total};
pub use program::{Program, TakeoverError};
pub use recorder::{Recorded, Recorder, Recording, Unrecorded};
pub use routes::{answer_monitor, no_such_resource, observe, serve, serve_monitors};
pub use run::{begin, run};
pub use service::Service;
pub use snapshot::{PortPage, Snapshot, monotonic_s};
pub use sockets::Sockets;
