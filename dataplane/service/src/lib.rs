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
mod run;
mod snapshot;
mod sockets;

pub use end::{PortEnd, hold_all};
pub use handover::{Outgoing, Program, TakeoverError, TakeoverRoute};
pub use port_log::{LoggedPort, PortLog, total};
pub use recorder::{Recorded, Recorder, Recording, Unrecorded};
pub use run::{Service, begin, run};
pub use snapshot::{Page, PortPage, Snapshot, monotonic_s};
pub use sockets::Sockets;
