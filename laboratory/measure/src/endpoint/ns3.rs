//! Simulations of ns-3.

use dray_lab::End;
use dray_lab::peer::Ns3Layer;
use dray_port::Wait;

use super::facts::{Facts, RUNS_ON_HOST, Requirement};
use super::port::Port;
use super::sockets::{Calls, Socket};

/// Simulation at an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ns3 {
    pub(super) device: Device,
    pub(crate) layer: Ns3Layer,
}

/// Device of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// ns-3's own, on a packet socket.
    Fd,
    /// Ours, on a port.
    Ours(Port),
}

impl Ns3 {
    pub(super) fn facts(self) -> Facts {
        let Facts { opens, .. } = self.forwarder().facts();
        let requires = Some(Requirement::Ns3);
        Facts { engine_obstacle: RUNS_ON_HOST, requires, ..Facts::of(opens) }
    }

    /// Port of the forwarders between the simulations, which are ours.
    pub(super) fn forwarder(self) -> Port {
        match self.device {
            Device::Fd => Port::Socket(Socket::Raw(Calls::Burst)),
            Device::Ours(port) => port,
        }
    }

    /// Port of a simulation at `end` of a link whose other end is `peer`; `None` if the simulation
    /// does not open this kind of end.
    pub(crate) fn uri(self, end: &End, peer: &End, burst: usize) -> Option<String> {
        Some(match self.device {
            Device::Fd => format!("fd:{}", end.interface()?),
            // The simulation runs on the "host", where the port is.
            Device::Ours(Port::Netmap) => format!("netmap:{}", end.netmap()?),
            Device::Ours(port) => port.uri(end, peer, burst, Wait::Block)?.to_string(),
        })
    }
}
