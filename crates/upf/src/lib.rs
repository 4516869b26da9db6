//! The user plane function of a 5G core: what carries users' packets between the gNBs (N3, in GTP-U
//! tunnels) and the data network (N6), by the rules of their sessions.
//!
//! Control and data are apart. Each direction has one or several workers, data threads who have all
//! sessions in plain memory that nobody else touches; a control thread makes a changed session ready and
//! sends it there as a whole ([`Upf::apply`]). What packets use up, rates and volumes, is shared.
#![forbid(unsafe_code)]

mod account;
pub mod api;
mod compile;
pub mod config;
pub mod counters;
mod direction;
mod event;
mod interface;
mod ledger;
pub mod load;
mod matcher;
mod meter;
mod model;
mod neighbours;
mod path;
mod running;
mod session;
mod table;
mod tunnels;
mod upf;
mod usage;

pub use config::{ConfigError, UpfConfig};
pub use counters::{Counters, DropReason};
pub use direction::Direction;
pub use event::{Event, EventsLost};
pub use model::{Operation, SessionStatus, UsageStatus};
pub use running::Running;
pub use upf::Upf;
pub use usage::Counted;
