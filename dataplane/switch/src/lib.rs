//! The switch: its configuration ([`config`]), the stations it has learned ([`table`]), its
//! counters ([`counters`]), and its interface while it runs ([`api`], [`client`]).
//!
//! Control and data are separate. The workers that move frames look up the table and add to
//! counters; everything else here runs on control threads and reaches the workers only through
//! [`SwitchControl`].
//!
//! A switch with two ports, for `virtio:` ports, QEMU or DPDK to connect to:
//!
//! ```no_run
//! use dray_switch::{SwitchControl, Switch, SwitchConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = SwitchConfig::from_toml(
//!     r#"
//!     mode = "learning"
//!     cpus = [2]
//!     [[ports]]
//!     name = "a"
//!     uri = "vhost:/run/dray/a.sock"
//!     [[ports]]
//!     name = "b"
//!     uri = "vhost:/run/dray/b.sock"
//!     "#,
//! )?;
//! config.check(&[0, 1, 2, 3])?;
//! let switch = Switch::start(&config)?;
//! for port in switch.ports() {
//!     println!("{}: {:?}", port.config.name, port.counters);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The data path in one thread, between ports in memory:
//!
//! ```
//! use dray_port::memory::Peer;
//! use dray_switch::{InlineSwitch, SwitchConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = SwitchConfig::from_toml(
//!     "ports = [{ name = 'a', uri = 'null:' }, { name = 'b', uri = 'null:' }]",
//! )?;
//! let peers = [Peer::default(), Peer::default()];
//! let mut switch = InlineSwitch::new(&config, peers.iter().map(Peer::port).collect())?;
//! // A broadcast from station 02:00:00:00:00:01 behind port a.
//! let mut frame = vec![0xff; 64];
//! frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
//! peers[0].send([frame.clone()]);
//! switch.step();
//! assert_eq!(peers[1].received(), [frame]);
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

pub mod api;
pub mod apply;
mod changes;
pub mod client;
pub mod config;
mod control;
pub mod counters;
mod error;
mod path;
mod snapshot;
pub mod table;
mod takeover;

pub use config::{ConfigError, Flow, Mode, PortConfig, SwitchConfig};
pub use control::{
    BypassStatus, PortState, PortStats, PortStatus, Status, SwitchControl, TableEntry, WorkerStatus,
};
pub use counters::{Counters, DropReason};
pub use error::SwitchError;
pub use path::{InlineSwitch, Switch};
pub use snapshot::OwnPort;
pub use table::Table;
pub use takeover::{RestoredState, TakeoverError};
