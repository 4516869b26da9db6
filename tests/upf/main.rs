//! The user plane function between gNBs and a data network: a separate process, real links, and a
//! load that checks every packet.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod accounts;
mod bench;
mod crash;
mod fixture;
mod forwarding;
mod hostile;
mod kernels;
mod neighbours;
mod peers;
mod program;
mod rates;
mod takeover;
