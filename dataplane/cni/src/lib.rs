//! A plugin for the Container Network Interface (CNI), versions 0.4.0 to 1.1.0: a container gets a
//! port of a running switch, without privileges and without a mount.
//!
//! The plugin makes an interface in the container, whose other end is the switch's, or opens a listening
//! abstract Unix socket in the container's network namespace, and passes the descriptors to the switch,
//! which need not enter any namespace. It runs for the duration of one request. What it has made is
//! recorded in a directory below `/run`, before it is made: so a request that was killed is cleaned
//! up by the next one, a switch that starts again gets its ports back ([`restore`]), and nothing
//! outlives a reboot.
//!
//! * [`run`]: one request of a container runtime.
//! * `call`: its parameters; `network`: the network configuration; `reply`: result and error.
//! * `kind`: the kinds of attachment; `attachment`: what one consists of; `store`: their records; `ends`: the
//!   switch's ends of interfaces.
//! * [`cdi`]: attachments and other ports as devices of container runtimes.
//! * [`claim`]: ports of containers that do not exist yet.
//! * `verbs`: ADD, CHECK, DEL, GC, STATUS, VERSION.
//! * `engine`: the same ports for container engines that do not speak CNI: [`Docker`], [`netavark()`].
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
mod reply;
mod restore;
mod store;
mod verbs;

pub use attachment::Attachment;
pub use ends::check_kernel;
pub use engine::docker::Docker;
pub use engine::netavark::{Netavark, netavark};
pub use kind::Kind;
pub use namespace::within;
pub use restore::{Opened, Restored, reopen, restore};
pub use store::Store;
pub use verbs::{Output, run};

/// Versions of the specification that the plugin implements, the newest last.
pub const VERSIONS: [&str; 3] = ["0.4.0", "1.0.0", "1.1.0"];
