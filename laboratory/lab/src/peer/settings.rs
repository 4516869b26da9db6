//! Settings of a switch.

use super::{Memory, PeerPort};

/// Program of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SwitchKind {
    /// DPDK's testpmd between ports of its vhost driver.
    Testpmd,
    /// Open vSwitch with DPDK's user-space datapath.
    OvsDpdk,
    /// Open vSwitch between network interfaces.
    Ovs,
    /// FD.io's Vector Packet Processor.
    Vpp,
    /// Snabb.
    Snabb,
    /// Our own switch.
    Dray,
}

/// Forwarding rule of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wiring {
    /// Between ports 0 and 1, 2 and 3 and so on, regardless of addresses.
    Pairs,
    /// By destination address, which the switch learns.
    Learning,
}

/// Settings of a switch.
#[derive(Clone, Debug)]
pub struct SwitchSettings {
    /// Program of the switch.
    pub kind: SwitchKind,
    /// CPU of the forwarding thread, which should have it exclusively.
    pub cpu: usize,
    /// True if our own switch sleeps while it is idle, and leaves the CPU to others.
    pub sleeps: bool,
    /// Forwarding rule.
    pub wiring: Wiring,
    /// Kind of memory it uses, if the program supports several.
    pub memory: Memory,
    /// Ports of the switch.
    pub ports: Vec<PeerPort>,
}

impl SwitchKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Testpmd, Self::OvsDpdk, Self::Ovs, Self::Vpp, Self::Snabb, Self::Dray];
}
