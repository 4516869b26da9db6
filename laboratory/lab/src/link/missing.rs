//! Links that this host lacks, found without a lab.

use super::LinkKind;
use super::kind::Wire;
use super::netmap::has_netmap;
use crate::doctor::links::unsupported;
use crate::peer::{Datapath, SwitchKind};

/// Returns the kinds of links that this host cannot make, because its kernel does not support them
/// or a program is not installed. A kind that cannot be tested, as without root, is not listed.
pub fn missing() -> Vec<LinkKind> {
    let unsupported = unsupported();
    let kernel_lacks = |name: &str| unsupported.iter().any(|kind| kind == name);
    // Each program is asked for its version once.
    let lacks_switch = SwitchKind::ALL.map(|switch| switch.find().is_err());
    let lacks_switch = |switch: SwitchKind| {
        let number = SwitchKind::ALL.iter().position(|kind| *kind == switch);
        number.is_some_and(|number| lacks_switch[number])
    };
    let is_missing = |kind: &LinkKind| match kind.wire {
        Wire::Veth | Wire::Xdp(_) => kernel_lacks("veth"),
        Wire::Bridge => kernel_lacks("bridge"),
        Wire::Macvlan(_) => kernel_lacks("macvlan"),
        Wire::Macvtap => kernel_lacks("macvtap"),
        Wire::Ipvlan(..) => kernel_lacks("ipvlan"),
        Wire::Vxlan => kernel_lacks("vxlan"),
        Wire::Netkit(_) => kernel_lacks("netkit"),
        Wire::Ovs(datapath) => {
            let lacks_datapath = datapath == Datapath::Kernel && kernel_lacks("openvswitch");
            lacks_datapath || lacks_switch(SwitchKind::Ovs)
        }
        Wire::Switch(switch, ..) => lacks_switch(switch),
        Wire::Engine(runtime, _) => runtime.find().is_err(),
        Wire::Netmap(_) => !has_netmap(),
        Wire::Sriov | Wire::Direct | Wire::Unix => false,
    };
    LinkKind::every().into_iter().filter(is_missing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_without_kernel_support_are_never_missing() {
        let missing = missing();
        for kind in [LinkKind::DIRECT, LinkKind::UNIX, LinkKind::PATCH, LinkKind::SRIOV] {
            assert!(!missing.contains(&kind), "{kind}");
        }
        let lacks_snabb = SwitchKind::Snabb.find().is_err();
        assert_eq!(missing.contains(&LinkKind::SNABB), lacks_snabb);
    }
}
