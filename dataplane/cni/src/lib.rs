//! A plugin for the Container Network Interface (CNI), versions 0.4.0 to 1.1.0: a container gets a
//! port of a running switch, without privileges and without a mount.
//!
//! The plugin creates an interface in the container, whose other end is the switch's, or opens a
//! listening abstract Unix socket in the container's network namespace, and passes the descriptors
//! to the switch, which need not enter any namespace. It runs for the duration of one request. It
//! records each attachment in a directory below `/run` before it creates any part of it. The next
//! request thus cleans up after one that was killed, a switch that starts again gets its ports back
//! ([`restore`]), and nothing outlives a reboot.
//!
//! * [`run`]: one request of a container runtime.
//! * `call`: its parameters; `network`: the network configuration; `reply`: result and error.
//! * `kind`: the kinds of attachment; `attachment`: what one consists of; `plan`: the attachment
//!   that a request describes; `records`: their files; `ends`: the switch's ends of interfaces.
//! * [`cdi`]: attachments and other ports as devices of container runtimes.
//! * [`claim`]: ports of containers that do not exist yet.
//! * `operations`: ADD, CHECK, DEL, GC, STATUS, VERSION.
//! * `engine`: the same ports for container engines that do not speak CNI: [`Docker`],
//!   [`netavark()`].
#![forbid(unsafe_code)]

mod addresses;
mod attachment;
mod call;
pub mod cdi;
pub mod claim;
mod ends;
mod engine;
mod ipam;
mod kind;
mod namespace;
mod network;
mod operations;
mod plan;
mod records;
mod reply;
mod restore;

pub use attachment::Attachment;
pub use ends::check_kernel;
pub use engine::docker::Docker;
pub use engine::netavark::{Netavark, netavark};
pub use kind::Kind;
pub use namespace::within;
pub use operations::run;
pub use records::Records;
pub use reply::Output;
pub use restore::{Opened, Restored, reopen, restore};
