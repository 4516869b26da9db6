//! Switches, ours and other people's, and other people's endpoints: started, configured, stopped and
//! cleaned up by the lab.
//!
//! A peer is a process of the host, in a network namespace that the peers of a run share. All that it
//! writes is in their [`PeerDir`]; its huge pages are reserved for as long as it runs. It dies with the
//! thread that started it. What it had to be given is in its [`Needs`].

mod adapter;
pub(crate) mod calls;
mod dir;
mod dray;
mod endpoint;
mod hugepages;
mod ovs;
mod port;
pub(crate) mod process;
mod program;
mod record;
mod snabb;
mod switch;
mod telemetry;
mod testpmd;
mod vpp;

pub use adapter::Found;
pub use dir::PeerDir;
pub(crate) use dir::{PARENT, remove_stale};
pub use endpoint::{EndpointRole, EndpointSettings, OnInterface, PeerEndpoint};
pub use ovs::{Bridge, BridgePort, Datapath};
pub use port::{Driver, EndpointPort, PeerPort, PortCounters, Protocol};
pub use process::CpuTime;
pub use record::{Record, command_line};
pub use switch::{PeerSwitch, SwitchKind, SwitchSettings, Wiring};

/// How a peer that lets one choose gets its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// Huge pages of 2 MiB, reserved while it runs: what gives its best figures.
    #[default]
    HugePages,
    /// Ordinary pages. Open vSwitch does not start with them.
    OrdinaryPages,
}

/// What a peer had to be given before it ran.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Huge pages reserved for it, in MiB.
    pub hugepages_mib: u32,
    /// Privileges, in words.
    pub privileges: &'static str,
    /// Anything else, a few words each.
    pub others: &'static [&'static str],
}

impl Needs {
    const NOTHING: Self = Self { hugepages_mib: 0, privileges: "none", others: &[] };
}
