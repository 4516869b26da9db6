//! What Shyamkumar et al. 2022 left open, measured.

use dray_lab::LinkKind;

use crate::experiments::{Experiment, MachineLimit};
use crate::{Endpoint, Technique};

/// The paper ran AF_XDP without `XDP_USE_NEED_WAKEUP`, saw the softirq side use a whole CPU, and
/// supposes that the flag would spare it (section on caveats).
pub(super) const NEED_WAKEUP: Experiment = Experiment {
    name: "shyamkumar2022-needwakeup",
    about: "AF_XDP with and without need-wakeup: softirq time at 100 kpps and at full rate",
    techniques: || {
        Technique::by_link(
            &[LinkKind::VETH],
            &[
                Endpoint::AFXDP,
                Endpoint::AFXDP_NO_WAKEUP,
                Endpoint::AFXDP_DEFERRED,
                Endpoint::AFXDP_GENERIC,
            ],
        )
    },
    rates: &[Some(100e3), None],
    // A prime, so that bursts do not keep step with the clock tick at which most kernels look what a
    // CPU is doing.
    burst: 61,
    trials: 3,
    machine_limit: MachineLimit::Never,
    ..Experiment::USUAL
};
