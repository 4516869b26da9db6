//! Rings against an oracle, and against malicious peers.
//!
//! The test bodies take their operations from bytes: the fuzz targets `ring_oracle`, `ring_device`,
//! `ring_driver`, `ring_client` and `ring_server` run the same bodies.
#![cfg(not(loom))]

mod batches;
mod bytes;
mod client;
mod device;
mod driver;
mod killed;
mod memif;
mod memory;
mod oracle;
mod server;
mod threads;
mod violations;
