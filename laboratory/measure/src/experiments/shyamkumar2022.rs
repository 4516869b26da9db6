//! Repeats what Shyamkumar et al. 2022 measured of a user plane function, and answers a question
//! they left open.

use dray_lab::LinkKind;
use dray_results::{Layout, UpfLoad, Way};

use super::experiment::{Experiment, MachineLimit};
use super::sets;
use crate::endpoint::Endpoint;
use crate::shape::Shape;
use crate::technique::Technique;
use crate::timing::Timing;

/// The paper ran AF_XDP without `XDP_USE_NEED_WAKEUP`, saw softirq processing use a whole CPU, and
/// supposes that the flag would avoid it (section on caveats).
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
    // A prime, so that bursts do not keep step with the clock tick at which most kernels sample
    // what a CPU does.
    burst: 61,
    trials: 3,
    machine_limit: MachineLimit::Never,
    ..Experiment::USUAL
};

/// Number of sessions in the paper, one flow each.
const SESSIONS: u32 = 8000;
/// Packet size in the paper in bytes, as frames of the data network.
const SIZE: usize = 512;

/// Figure 6 of the paper. SR-IOV is left out: it needs a network card that supports it.
pub(super) const FIG6: Experiment = Experiment {
    name: "shyamkumar2022-fig6",
    about: "a user plane function with 8000 sessions: Mb/s per core, each way, and without loss",
    shapes: &[
        Shape::Upf(UpfLoad::new(Way::Uplink, SESSIONS, 2)),
        Shape::Upf(UpfLoad::new(Way::Downlink, SESSIONS, 2)),
        Shape::Upf(UpfLoad::new(Way::Both, SESSIONS, 2)),
    ],
    techniques: || {
        let endpoints =
            [Endpoint::RAW_MMSG, Endpoint::AFXDP, Endpoint::AFXDP_DEFERRED, Endpoint::TAP];
        let kernel = Technique::by_link(&LinkKind::ALL, &endpoints).into_iter();
        let kernel = kernel.filter(|technique| !technique.link.isolates);
        let engines = Technique::by_link(&LinkKind::OF_ENGINES, &endpoints);
        kernel
            .chain(engines)
            .chain(sets::shared_memory())
            .filter(|technique| technique.check().is_ok())
            .collect()
    },
    usual: |technique| {
        let Technique { link, endpoint } = *technique;
        // AF_XDP in the network driver also needs an XDP program at the other end of a veth, which
        // exists only if the veth pair is the whole link.
        let has_xdp = link == LinkKind::VETH && endpoint.facts().xdp.is_some();
        let kernel = [
            LinkKind::BRIDGE,
            LinkKind::FILTERED[0],
            LinkKind::MACVLAN_BRIDGE,
            LinkKind::IPVLAN[0],
            LinkKind::IPVLAN_L3,
        ];
        let has_stack = kernel.contains(&link) && endpoint == Endpoint::RAW_MMSG;
        let is_ours = [LinkKind::DIRECT, LinkKind::PATCH, LinkKind::LEARNING].contains(&link);
        has_xdp || has_stack || is_ours
    },
    sizes: &[SIZE],
    // The rate that the paper offered, for both directions together and for each, that which it
    // carried without loss, and the loss-free rate found here.
    rates: &[Some(4.8e6), Some(2.4e6), Some(1.1e6), None],
    losses: &[0.0],
    // Rates of one technique were up to 50 % apart, so closer bounds make no figure more exact.
    coarse_searches: true,
    // The paper's runs took 50 s. Here trials are short, since virtual CPUs move within seconds,
    // and hardly one of 10 s has them near each other, or far, from beginning to end.
    timing: Timing::of_ms(500, 1000, 100),
    trials: 3,
    machine_limit: MachineLimit::Never,
    paper_pps: |technique, shape| {
        let is_uplink = matches!(shape, Shape::Upf(UpfLoad { way: Way::Uplink, .. }));
        // Per core, one direction.
        let mbps = match technique {
            _ if !is_uplink => return None,
            Technique { link: LinkKind::BRIDGE, endpoint: Endpoint::RAW_MMSG } => 1000.0,
            Technique { link: LinkKind::VETH, .. } => 10_000.0,
            _ => return None,
        };
        Some(mbps * 1e6 / (8 * SIZE) as f64)
    },
    paper: Some(
        "Shyamkumar et al. 2022, figure 6, Xeon Platinum 8260M, X710 cards: about 1 Gb/s per \
         core over a bridge, 1.1 Gb/s over SR-IOV and the kernel's stack, close to 10 Gb/s over \
         SR-IOV and zero-copy AF_XDP, compared here with AF_XDP over veth pairs; no loss up to \
         1.1 Mpps per core, below 0.1 % up to 2.4 Mpps",
    ),
    layout: Layout::UserPlane,
    ..Experiment::USUAL
};
