//! The lab: containers on this host, joined by links, and facts about the host.
//!
//! A container is a process in its own network, mount, PID, IPC and UTS namespaces and its own
//! control group, made by the lab or by a container engine. One empty container stands for "the
//! host" and holds the bridges, so that the user's own network is never touched. Everything is
//! removed with the [`Lab`].

mod cache;
pub mod capability;
mod cgroup;
pub mod container;
pub mod doctor;
mod error;
mod holdings;
pub mod host;
pub mod join;
mod lab;
pub mod link;
mod modules;
mod namespace;
pub mod netlink;
pub mod peer;
mod process;
pub mod runtime;
pub mod standing;
pub mod topology;
mod wait;

pub use cache::DividedCache;
pub use container::{Container, ContainerId};
pub use dray_datapath::{Cancel, Placement, placement};
pub use error::LabError;
pub use holdings::Holdings;
pub use lab::{Lab, clean};
pub use link::{Attachment, End, Link, LinkKind};
pub use namespace::NetworkNamespace;
pub use netlink::InterfaceCounters;
pub use process::{Record, command_line};
pub use runtime::Runtime;
