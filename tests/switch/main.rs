//! The switch and its ports: interoperation, hostile peers, VLANs, AF_XDP, the sandbox.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;
#[path = "../../dataplane/switch/tests/ends/mod.rs"]
mod ends;

mod afxdp;
mod apply;
mod capture;
mod console;
mod counters;
mod crash;
#[cfg(target_arch = "x86_64")]
mod escape;
mod exchange;
mod hostile;
mod links;
mod log;
mod manager;
mod metrics;
mod offload;
mod rates;
mod reconnect;
mod safety;
mod soak;
mod takeover;
mod top;
mod user;
mod violations;
mod vlan;
mod vxlan;
mod with_dpdk;
mod with_vm;
