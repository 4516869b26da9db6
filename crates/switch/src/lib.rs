//! The switch: what it is told ([`config`]), what it has learned ([`table`]), what it counts
//! ([`counters`]), and how it is talked to while it runs ([`api`], [`client`]).
//!
//! Control and data are apart. The workers that move frames look up the table and add to counters;
//! everything else here runs on control threads and reaches the workers through [`Engine`] alone.
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
