//! Kinds of links.

use std::fmt;

use crate::peer::{SwitchKind, Wiring};

/// A kind of link. All that there is to say of one is in its constant; how one is made is in the file
/// that its wire names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkKind {
    /// The word for it on the command line and in results.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Whether somebody has to learn who is where before frames find their way.
    pub learns: bool,
    pub(super) wire: Wire,
}

/// What lies between the ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Veth,
    Bridge,
    Xdp(Wiring),
    Direct,
    Switch(SwitchKind, Wiring),
}

impl LinkKind {
    /// A veth pair with one end in each container.
    pub const VETH: Self = Self { about: "a veth pair", ..Self::of("veth", Wire::Veth) };

    /// A Linux bridge on the "host", and a veth pair from it to each container.
    pub const BRIDGE: Self = Self {
        about: "a Linux bridge, and a veth pair to each container",
        ..Self::of("bridge", Wire::Bridge)
    };

    /// An XDP program on the "host", which passes frames on between veth pairs to two containers.
    pub const XDP_PAIRS: Self = Self {
        about: "an XDP program that passes frames on between two veth pairs",
        ..Self::of("xdp/pairs", Wire::Xdp(Wiring::Pairs))
    };

    /// The same among all containers, by addresses that it learns.
    pub const XDP_LEARNING: Self = Self {
        about: "an XDP program that learns addresses, and a veth pair to each container",
        learns: true,
        ..Self::of("xdp/learning", Wire::Xdp(Wiring::Learning))
    };

    /// Memory that the first end shares with the second.
    pub const DIRECT: Self = Self {
        about: "memory that one end shares with the other",
        ..Self::of("direct", Wire::Direct)
    };

    /// Our switch, ports in pairs.
    pub const PATCH: Self = Self {
        about: "our switch, ports in pairs",
        ..Self::switch_of("switch/patch", SwitchKind::Dray, Wiring::Pairs)
    };

    /// Our switch, learning addresses.
    pub const LEARNING: Self = Self {
        about: "our switch, learning addresses",
        ..Self::switch_of("switch/learning", SwitchKind::Dray, Wiring::Learning)
    };

    /// DPDK's testpmd as a switch.
    pub const TESTPMD: Self = Self {
        about: "DPDK's testpmd, ports in pairs",
        ..Self::switch_of("testpmd/pairs", SwitchKind::Testpmd, Wiring::Pairs)
    };

    /// Open vSwitch with DPDK's user-space datapath, ports in pairs.
    pub const OVS_DPDK_PAIRS: Self = Self {
        about: "Open vSwitch with DPDK, ports in pairs",
        ..Self::switch_of("ovs-dpdk/pairs", SwitchKind::OvsDpdk, Wiring::Pairs)
    };

    /// The same, learning addresses.
    pub const OVS_DPDK_LEARNING: Self = Self {
        about: "Open vSwitch with DPDK, learning addresses",
        ..Self::switch_of("ovs-dpdk/learning", SwitchKind::OvsDpdk, Wiring::Learning)
    };

    /// FD.io's Vector Packet Processor.
    pub const VPP: Self = Self {
        about: "FD.io's VPP, learning addresses",
        ..Self::switch_of("vpp/learning", SwitchKind::Vpp, Wiring::Learning)
    };

    /// Snabb.
    pub const SNABB: Self = Self {
        about: "Snabb, ports in pairs",
        ..Self::switch_of("snabb/pairs", SwitchKind::Snabb, Wiring::Pairs)
    };

    /// Every kind, but for other people's switches.
    pub const ALL: [Self; 7] = [
        Self::VETH,
        Self::BRIDGE,
        Self::XDP_PAIRS,
        Self::XDP_LEARNING,
        Self::DIRECT,
        Self::PATCH,
        Self::LEARNING,
    ];

    /// Other people's switches.
    pub const PEERS: [Self; 5] =
        [Self::TESTPMD, Self::OVS_DPDK_PAIRS, Self::OVS_DPDK_LEARNING, Self::VPP, Self::SNABB];

    /// What most kinds have in common: a kind says where it differs.
    const fn of(name: &'static str, wire: Wire) -> Self {
        Self { name, about: "", learns: false, wire }
    }

    const fn switch_of(name: &'static str, switch: SwitchKind, wiring: Wiring) -> Self {
        let learns = matches!(wiring, Wiring::Learning);
        Self { learns, ..Self::of(name, Wire::Switch(switch, wiring)) }
    }

    /// Whether its ends share memory, without the kernel between them.
    pub fn shares_memory(self) -> bool {
        matches!(self.wire, Wire::Direct | Wire::Switch(..))
    }

    /// Whether there has to be an XDP program in the driver of each interface at its ends.
    pub fn needs_xdp_programs(self) -> bool {
        matches!(self.wire, Wire::Xdp(_))
    }

    /// Its switch in user space, which polls, where it has one.
    pub fn switch(self) -> Option<SwitchKind> {
        match self.wire {
            Wire::Switch(switch, _) => Some(switch),
            _ => None,
        }
    }
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_name_of_its_own_and_says_what_it_is() {
        let kinds = [&LinkKind::ALL[..], &LinkKind::PEERS].concat();
        for (number, kind) in kinds.iter().enumerate() {
            assert!(!kind.about.is_empty(), "{kind}");
            assert_eq!(kinds.iter().position(|other| other.name == kind.name), Some(number));
        }
    }
}
