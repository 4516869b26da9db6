//! User plane function of a 5G core: forwards users' packets between the gNBs (N3, in GTP-U
//! tunnels) and the data network (N6), by the rules of their sessions.
//!
//! Control and data are separate. Each direction has one or several workers; a worker has all
//! sessions in plain memory that no other thread accesses. A control thread compiles a changed
//! session and sends it to the workers as a whole ([`Upf::apply`]). Only the accounts that packets
//! use up, rates and volumes, are shared.
#![forbid(unsafe_code)]

mod account;
pub mod api;
mod compile;
pub mod config;
pub mod counters;
mod event;
mod interface;
mod journal;
mod leaving;
pub mod load;
mod matcher;
mod meter;
mod model;
mod neighbours;
mod packet;
mod path;
mod restored;
mod rule_accounts;
mod running;
mod session;
mod status;
mod table;
mod takeover;
mod tunnels;
mod upf;
mod usage;
mod worker;

pub use config::{ConfigError, UpfConfig};
pub use counters::{Counters, DropReason};
pub use event::{Event, EventsLost};
pub use leaving::State;
pub use model::Operation;
pub use restored::RestoredState;
pub use running::RunningUpf;
pub use status::{SessionState, SessionStatus, UsageStatus};
pub use upf::Upf;
pub use usage::Counted;
pub use worker::Worker;
