//! DPDK's drivers, in its program testpmd.

use dray_bpf::Mode;
use dray_lab::link::EndKind;

use super::facts::{Facts, RUNS_ON_HOST, Requirement};
use super::memory::Rings;

/// Driver of a testpmd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dpdk {
    /// AF_XDP, with one testpmd at each end.
    Afxdp,
    /// virtio-user to the kernel's vhost-net, with one testpmd at each end.
    VhostNet,
    /// That of a function of a network card, with one testpmd at each end.
    Function,
    /// Shared memory, with one testpmd that is both ends.
    Memory(Rings),
}

impl Dpdk {
    pub(super) fn facts(self) -> Facts {
        let port = match self {
            Self::Afxdp => Facts { xdp: Some(Mode::Native), ..Facts::of(EndKind::Interface) },
            Self::VhostNet => Facts::of(EndKind::Machine),
            Self::Function => Facts::of(EndKind::Function),
            Self::Memory(rings) => rings.facts(),
        };
        let requires = Some(match self {
            Self::VhostNet => Requirement::VhostNet,
            _ => Requirement::Testpmd,
        });
        Facts { engine_obstacle: RUNS_ON_HOST, requires, ..port }
    }
}
