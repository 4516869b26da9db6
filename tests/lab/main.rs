//! The laboratory: links, labs by hand, container engines, third-party switches, cleanup.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;
mod cleanup;
mod control;
mod links;
mod ns3;
mod peers;
mod results;
mod runtimes;
mod standing;
mod up;
