//! The switch: its configuration ([`config`]), the stations it has learned ([`table`]), its
//! counters ([`counters`]), and its interface while it runs ([`api`], [`client`]).
//!
//! Control and data are separate. The workers that move frames look up the table and add to
//! counters; everything else here runs on control threads and reaches the workers only through
//! [`Engine`].
#![deny(unsafe_code)]

pub mod api;
pub mod client;
pub mod config;
pub mod counters;
mod engine;
mod path;
pub mod table;

pub use config::{ConfigError, Flow, Mode, PortConfig, SwitchConfig};
pub use counters::{Counters, DropReason};
pub use engine::{
    Engine, EngineError, PortState, PortStats, PortStatus, Status, TableEntry, WorkerStatus,
};
pub use path::{InlineSwitch, Switch};
pub use table::Table;
