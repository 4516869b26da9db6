//! Links that this host lacks, found without a lab.

use super::LinkKind;
use super::netmap::has_netmap;
use super::wire::Wire;
use crate::doctor::links::unsupported;
use crate::peer::{Datapath, SwitchKind};

/// Returns those of `kinds` that this host cannot make, because its kernel does not support them or
/// a program is not installed. A kind that cannot be tested, as without root, is not returned.
pub fn missing(mut kinds: Vec<LinkKind>) -> Vec<LinkKind> {
    let kernel_lacks = |name: &str| unsupported().iter().any(|kind| kind == name);
    kinds.retain(|kind| match kind.wire {
        Wire::Veth | Wire::Xdp(_) => kernel_lacks("veth"),
        Wire::Bridge => kernel_lacks("bridge"),
        Wire::FilteredBridge(filter) => kernel_lacks("bridge") || !filter.is_installed(),
        Wire::Macvlan(_) | Wire::MacvlanHairpin => kernel_lacks("macvlan"),
        Wire::Macvtap => kernel_lacks("macvtap"),
        Wire::Ipvlan(..) => kernel_lacks("ipvlan"),
        Wire::Hosts(uplink) => kernel_lacks(uplink.item()),
        Wire::Tunnel(tunnel) => kernel_lacks(tunnel.item()),
        Wire::Netkit(_) => kernel_lacks("netkit"),
        Wire::OvsVxlan(Datapath::Kernel) if kernel_lacks("vxlan") => true,
        Wire::Ovs(datapath) | Wire::OvsVxlan(datapath) => {
            let lacks_datapath = datapath == Datapath::Kernel && kernel_lacks("openvswitch");
            lacks_datapath || SwitchKind::Ovs.find().is_err()
        }
        Wire::Switch(switch, ..) => switch.find().is_err(),
        Wire::SwitchTap(_) => kernel_lacks("tun/tap"),
        Wire::SwitchPod => ["veth", "tun/tap", "bypass"].into_iter().any(kernel_lacks),
        Wire::Engine(runtime, _) => runtime.find().is_err(),
        Wire::SwitchVxlan => kernel_lacks("veth"),
        Wire::Netmap(_) => !has_netmap(),
        Wire::Sriov | Wire::Direct | Wire::Unix => false,
    });
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_without_kernel_support_are_never_missing() {
        let missing = missing(LinkKind::every());
        for kind in [LinkKind::DIRECT, LinkKind::UNIX, LinkKind::PATCH, LinkKind::SRIOV] {
            assert!(!missing.contains(&kind), "{kind}");
        }
        let lacks_snabb = SwitchKind::Snabb.find().is_err();
        assert_eq!(missing.contains(&LinkKind::SNABB), lacks_snabb);
    }
}
