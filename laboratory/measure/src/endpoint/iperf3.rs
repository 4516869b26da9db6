//! iperf3 at both ends.

use dray_lab::link::EndKind;

use super::facts::{Facts, RUNS_ON_HOST, Requirement, Unit};

/// Transport of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Iperf3 {
    Tcp,
    Udp,
}

impl Iperf3 {
    pub(super) fn facts(self) -> Facts {
        let writes = match self {
            Self::Tcp => Unit::Stream,
            Self::Udp => Unit::Payload,
        };
        let requires = Some(Requirement::Iperf3);
        let interface = Facts::of(EndKind::Interface);
        Facts { writes, engine_obstacle: RUNS_ON_HOST, requires, ..interface }
    }
}
