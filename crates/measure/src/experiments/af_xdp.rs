//! AF_XDP beside what it is chosen instead of.

use crate::experiments::{Experiment, MachineLimit, sets};
use crate::{Endpoint, Technique};

pub(super) const AF_XDP: Experiment = Experiment {
    name: "af-xdp",
    about: "our AF_XDP ports beside raw sockets and DPDK's AF_XDP driver",
    techniques: || {
        let [raw, dpdk] = [Endpoint::RAW_MMSG, Endpoint::DPDK_AFXDP];
        Technique::by_link(sets::KERNEL, &[&[raw][..], &Endpoint::AF_XDP, &[dpdk]].concat())
    },
    trials: 2,
    machine_limit: MachineLimit::Never,
    ..Experiment::USUAL
};
