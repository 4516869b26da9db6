//! Peers: switches, ours and third-party, and third-party endpoints, which the lab starts,
//! configures, stops and cleans up.
//!
//! A peer is a process of the host, in a network namespace that the peers of a run share. It writes
//! only to their [`PeerDir`]; its huge pages are reserved while it runs. It dies with the thread
//! that started it. Its [`Needs`] list what it had to be given.

mod adapter;
mod dray;
mod endpoint;
mod hugepages;
mod iperf3;
mod netmap;
pub(crate) mod ns3;
mod ovs;
mod port;
mod program;
mod settings;
mod snabb;
mod switch;
mod telemetry;
mod testpmd;
mod vpp;

pub use crate::process::{CpuTime, PeerDir};
pub use adapter::Found;
pub(crate) use dray::{CONTROL as SWITCH_CONTROL, END_PORT, OwnPort, OwnSwitch};
pub use endpoint::{AtLinks, EndpointRole, EndpointSettings, PeerEndpoint, VHOST_NET};
pub(crate) use hugepages::release_all as release_hugepages;
pub use iperf3::{Iperf3, Iperf3Report, Iperf3Role, has_iperf3};
pub use netmap::{NetmapProgram, NetmapRole};
pub use ns3::{Ns3Count, Ns3End, Ns3Layer, Ns3Program, Ns3Sample, find_ns3};
pub use ovs::{Bridge, BridgePort, Datapath, Vxlan};
pub use port::{Driver, EndpointPort, PeerPort, PortCounters, Protocol};
pub use settings::{SwitchKind, SwitchSettings, Wiring};
pub use switch::PeerSwitch;

/// Kind of memory for a peer that supports several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// Huge pages of 2 MiB, reserved while it runs: gives its best figures.
    #[default]
    HugePages,
    /// Ordinary pages, with which Open vSwitch does not start.
    OrdinaryPages,
}

/// Resources and privileges that a peer had to be given before it ran.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Huge pages reserved for the peer, in MiB.
    pub hugepages_mib: u32,
    /// Privileges, in words.
    pub privileges: &'static str,
    /// Other needs, in a few words each.
    pub others: &'static [&'static str],
}

impl Needs {
    const NOTHING: Self = Self { hugepages_mib: 0, privileges: "none", others: &[] };
}
