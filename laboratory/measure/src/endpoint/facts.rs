//! Facts about endpoints that others depend on. Each family states those of its endpoints.

use std::path::Path;

use dray_bpf::Mode;
use dray_lab::link::EndKind;
use dray_lab::peer::{SwitchKind, VHOST_NET, find_ns3, has_iperf3};
use dray_lab::runtime::Privileges;
use dray_traffic::stream::Family;

/// Facts about an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Object that it opens at the end of a link.
    pub opens: EndKind,
    /// Unit of what the program writes.
    pub writes: Unit,
    /// Requested mode of the XDP program that it attaches to its interface, if it attaches one.
    pub xdp: Option<Mode>,
    /// Privileges that it needs in a container whose engine grants no others.
    pub privileges: Privileges,
    /// Reason why it cannot run inside the containers of an engine, if there is one.
    pub(super) engine_obstacle: Option<&'static str>,
    /// Optional part of the host that it needs.
    pub(crate) requires: Option<Requirement>,
}

/// Unit of what a program writes to its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Whole frames.
    Frame,
    /// Payload of UDP packets, whose headers the kernel writes.
    Payload,
    /// Byte streams.
    Stream,
}

/// Part of a host without which an endpoint cannot run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
    Testpmd,
    /// testpmd and the kernel's vhost-net.
    VhostNet,
    Ns3,
    Iperf3,
    /// SMC sockets in the kernel.
    Smc,
}

/// Engine obstacle of programs that the lab runs on the host.
pub(super) const RUNS_ON_HOST: Option<&str> = Some(
    "its program runs on the host, in the network namespace of a container, so its figure would \
     not be one of an engine's container",
);

impl Facts {
    /// Default facts about programs that open this kind of end: frames, and no requirements.
    pub(super) const fn of(opens: EndKind) -> Self {
        let (writes, xdp, privileges): (_, _, Privileges) = (Unit::Frame, None, &[]);
        Self { opens, writes, xdp, privileges, engine_obstacle: None, requires: None }
    }
}

impl Requirement {
    /// Returns true if this host has the part.
    pub(crate) fn is_met(self) -> bool {
        match self {
            Self::Testpmd => SwitchKind::Testpmd.find().is_ok(),
            Self::VhostNet => Self::Testpmd.is_met() && Path::new(VHOST_NET).exists(),
            Self::Iperf3 => has_iperf3(),
            Self::Ns3 => find_ns3().is_some(),
            Self::Smc => Family::Smc.is_supported(),
        }
    }
}
