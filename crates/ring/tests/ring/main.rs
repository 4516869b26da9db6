//! Rings against an oracle, and against peers that do whatever they like.
//!
//! The bodies take their operations from bytes: the same ones are run by the fuzz targets
//! `ring_oracle`, `ring_device`, `ring_driver` and `ring_client`.
#![cfg(not(loom))]

mod batches;
mod bytes;
mod client;
mod device;
mod driver;
mod lies;
mod memory;
mod oracle;
mod threads;
