//! Techniques that a host cannot run.

use dray_lab::LinkKind;
use dray_lab::link::missing;
use dray_lab::peer::{SwitchKind, find_ns3};
use dray_traffic::stream::Family;

use crate::endpoint::Endpoint;
use crate::technique::Technique;

/// Parts that a host is known to lack; by default none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Absent {
    links: Vec<LinkKind>,
    /// True if DPDK's testpmd is not installed.
    dpdk: bool,
    /// True if the program of ns-3 is not built.
    ns3: bool,
    /// True if the kernel has no SMC sockets.
    smc: bool,
}

impl Absent {
    /// Finds what this host lacks of what `techniques` need. Programs that none of them needs are
    /// not started.
    pub(super) fn of(techniques: &[Technique]) -> Self {
        let has = |is: fn(Endpoint) -> bool| techniques.iter().any(|it| is(it.endpoint));
        Self {
            links: missing(techniques.iter().map(|technique| technique.link).collect()),
            dpdk: has(Endpoint::is_dpdk) && SwitchKind::Testpmd.find().is_err(),
            ns3: has(Endpoint::is_ns3) && find_ns3().is_none(),
            smc: has(|endpoint| endpoint == Endpoint::SMC) && !Family::Smc.is_supported(),
        }
    }

    /// Returns true if a technique needs something that the host lacks.
    pub(super) fn has(&self, technique: Technique) -> bool {
        let Technique { link, endpoint } = technique;
        let lacks_endpoint =
            (self.dpdk && endpoint.is_dpdk()) || (self.smc && endpoint == Endpoint::SMC);
        let lacks_endpoint = lacks_endpoint || (self.ns3 && endpoint.is_ns3());
        lacks_endpoint || self.links.contains(&link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::find;
    use crate::plan::{Choices, Plan};

    #[test]
    fn absent_techniques_take_no_time() {
        let plan = |technique: &str| {
            let techniques = Some(vec![technique.to_owned()]);
            let choices = Choices { techniques, ..Choices::default() };
            Plan::new(find("all").unwrap(), &choices).unwrap()
        };
        let lacks_veth = Absent { links: vec![LinkKind::VETH], ..Absent::default() };
        let veth = plan("veth/udp");
        assert_eq!(veth.techniques(), [1, 0]);
        assert!(!veth.duration().is_zero());
        let veth = veth.without(lacks_veth.clone());
        assert_eq!((veth.techniques(), veth.duration()), ([0, 1], std::time::Duration::ZERO));
        let bridge = plan("bridge/udp");
        assert_eq!(bridge.clone().without(lacks_veth).duration(), bridge.duration());
        // Without --parent there is no card.
        assert_eq!(plan("sriov").techniques()[0], 0);
    }
}
