//! Link kinds, each probed by creating one in a scratch namespace.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::LazyLock;

use netlink_packet_route::link::InfoKind;
use rustix::io::Errno;

use dray_results::HostFacts;

use super::finding::{Finding, State, needs_root};
use crate::link::address::EndId;
use crate::link::netmap::{REMEDY, has_netmap};
use crate::link::wire::Tunnel;
use crate::modules::{Module, Modules};
use crate::namespace::NetworkNamespace;
use crate::netlink::Netlink;

const GROUP: &str = "links";

/// A kind of link to probe.
struct Kind {
    name: &'static str,
    module: &'static str,
    option: &'static str,
    make: Make,
    /// Cost of its absence; `None` if no measurement needs it.
    cost: Option<&'static str>,
}

/// Method of creating a link.
enum Make {
    /// By its kind alone. Others can be created on top of it.
    Alone(InfoKind),
    /// On top of another interface.
    Above(InfoKind),
    /// Between two hosts.
    Tunnel(Tunnel),
    Tap,
    /// The BPF program of pods of kind `tap`, at the loopback interface.
    Bypass,
}

const KINDS: [Kind; 14] = [
    Kind {
        name: "veth",
        module: "veth",
        option: "CONFIG_VETH",
        make: Make::Alone(InfoKind::Veth),
        cost: Some("veth pairs, with or without a bridge, cannot be measured"),
    },
    Kind {
        name: "bridge",
        module: "bridge",
        option: "CONFIG_BRIDGE",
        make: Make::Alone(InfoKind::Bridge),
        cost: Some("Docker's default network cannot be measured"),
    },
    Kind {
        name: "dummy",
        module: "dummy",
        option: "CONFIG_DUMMY",
        make: Make::Alone(InfoKind::Dummy),
        cost: None,
    },
    Kind {
        name: "netkit",
        module: "netkit",
        option: "CONFIG_NETKIT (6.7 or later)",
        make: Make::Alone(InfoKind::Netkit),
        cost: Some("netkit pairs cannot be measured"),
    },
    Kind {
        name: "macvlan",
        module: "macvlan",
        option: "CONFIG_MACVLAN",
        make: Make::Above(InfoKind::MacVlan),
        cost: Some("containers that share a NIC by MAC address cannot be measured"),
    },
    Kind {
        name: "macvtap",
        module: "macvtap",
        option: "CONFIG_MACVTAP",
        make: Make::Above(InfoKind::MacVtap),
        cost: Some("virtual machines that share a NIC by MAC address cannot be measured"),
    },
    Kind {
        name: "ipvlan",
        module: "ipvlan",
        option: "CONFIG_IPVLAN",
        make: Make::Above(InfoKind::IpVlan),
        cost: Some("containers that share a NIC by IP address cannot be measured"),
    },
    Kind::tunnel(Tunnel::Vxlan, "overlays, as in Docker Swarm and Kubernetes, cannot be measured"),
    Kind::tunnel(Tunnel::Geneve, "Geneve tunnels, as in OVN, cannot be measured"),
    Kind::tunnel(Tunnel::Gre, "GRE tunnels cannot be measured"),
    Kind::tunnel(Tunnel::Ipip, "IP-in-IP tunnels, as in Calico, cannot be measured"),
    Kind::tunnel(Tunnel::Wireguard, "WireGuard tunnels cannot be measured"),
    Kind {
        name: "tun/tap",
        module: "tun",
        option: "CONFIG_TUN",
        make: Make::Tap,
        cost: Some("user-space switches and virtual machines cannot reach the kernel's network"),
    },
    Kind {
        name: "bypass",
        module: "cls_bpf",
        option: "CONFIG_NET_CLS_BPF and CONFIG_NET_SCH_INGRESS (5.10 or later)",
        make: Make::Bypass,
        cost: Some("pods of kind tap, as in the link switch-pod, cannot be made"),
    },
];

/// Scratch namespace; it is deleted with everything in it.
struct Scratch {
    namespace: NetworkNamespace,
    netlink: Netlink,
    /// Interface on which others can be created.
    parent: Option<u32>,
}

pub(super) fn examine(host: &HostFacts) -> Vec<Finding> {
    let modules = Modules::of_kernel(&host.kernel);
    let mut findings: Vec<_> = match Scratch::new() {
        Ok(mut scratch) => KINDS.iter().map(|kind| kind.examine(&mut scratch, &modules)).collect(),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            KINDS.iter().map(|kind| needs_root(GROUP, kind.name)).collect()
        }
        Err(error) => {
            let detail = format!("cannot create a scratch network namespace: {error}");
            let finding = |kind: &Kind| Finding::new(GROUP, kind.name, State::Unknown, &*detail);
            KINDS.iter().map(finding).collect()
        }
    };
    findings.push(open_vswitch(&modules));
    findings.push(netmap());
    findings
}

/// Returns the names of the kinds that the kernel does not support, as found by the first call.
pub(crate) fn unsupported() -> &'static [String] {
    static UNSUPPORTED: LazyLock<Vec<String>> = LazyLock::new(|| {
        let findings = examine(&crate::host::facts());
        let is_missing = |finding: &Finding| finding.state == State::Missing;
        findings.into_iter().filter(is_missing).map(|finding| finding.item).collect()
    });
    &UNSUPPORTED
}

impl Scratch {
    fn new() -> io::Result<Self> {
        let namespace = NetworkNamespace::scratch()?;
        let netlink = Netlink::open(&namespace)?;
        Ok(Self { namespace, netlink, parent: None })
    }

    fn make(&mut self, kind: &Kind) -> io::Result<()> {
        match &kind.make {
            Make::Alone(info) => {
                self.netlink.create_named(kind.name, info.clone(), None, None)?;
                if self.parent.is_none() {
                    self.parent = Some(self.netlink.interface(kind.name)?.index);
                }
            }
            Make::Above(info) => {
                self.netlink.create_named(kind.name, info.clone(), None, self.parent)?;
                // An interface can be the parent of only one kind of link at a time.
                self.netlink.delete(self.netlink.interface(kind.name)?.index)?;
            }
            Make::Tunnel(tunnel) => {
                // The namespace has one interface from the start.
                let card = self.netlink.interface("lo")?.index;
                let (info, settings) = tunnel.settings(1, card, EndId::both(1));
                self.netlink.create_named(kind.name, info, settings, None)?;
            }
            Make::Tap => self.namespace.enter(|| {
                let device = File::options().read(true).write(true).open("/dev/net/tun")?;
                dray_netdev::attach_tap(device.as_fd(), "", Default::default())
            })?,
            Make::Bypass => {
                let made = self.namespace.enter(dray_cni::check_kernel);
                made.map_err(|error| match error.kind() {
                    io::ErrorKind::PermissionDenied => error,
                    _ => Errno::OPNOTSUPP.into(),
                })?;
            }
        }
        Ok(())
    }
}

impl Kind {
    const fn tunnel(tunnel: Tunnel, cost: &'static str) -> Self {
        let (module, option) = tunnel.module();
        let make = Make::Tunnel(tunnel);
        Self { name: tunnel.item(), module, option, make, cost: Some(cost) }
    }

    fn examine(&self, scratch: &mut Scratch, modules: &Modules) -> Finding {
        let finding = |state, detail: &str| Finding::new(GROUP, self.name, state, detail);
        if modules.state(self.module) == Module::Loadable {
            let detail =
                format!("not tested: kernel module {} is loaded on first use", self.module);
            return finding(State::Ok, &detail);
        }
        if matches!(self.make, Make::Above(_)) && scratch.parent.is_none() {
            return finding(
                State::Unknown,
                "not tested: no veth, bridge or dummy interface as parent",
            );
        }
        let Err(error) = scratch.make(self) else {
            return finding(State::Ok, "created one in a scratch namespace");
        };
        let lacks = |detail: &str, how: &str| self.advise(finding(State::Missing, detail), how);
        match Errno::from_io_error(&error) {
            Some(Errno::PERM | Errno::ACCESS) => needs_root(GROUP, self.name),
            Some(Errno::NOENT) if Path::new("/sys/class/misc/tun").exists() => {
                lacks("no /dev/net/tun", "mkdir -p /dev/net; mknod /dev/net/tun c 10 200")
            }
            Some(Errno::OPNOTSUPP | Errno::NODEV | Errno::NXIO | Errno::NOENT) => {
                lacks("not supported by this kernel", &modules.remedy(self.module, self.option))
            }
            _ => self.advise(
                finding(State::Warning, &error.to_string()),
                "see the kernel's log (dmesg)",
            ),
        }
    }

    fn advise(&self, finding: Finding, how: &str) -> Finding {
        match self.cost {
            Some(cost) => finding.advise(format!("{cost}; {how}")),
            None => finding,
        }
    }
}

/// Checks netmap, which is not part of Linux.
fn netmap() -> Finding {
    let finding = |state, detail: &str| Finding::new(GROUP, "netmap", state, detail);
    if has_netmap() {
        return finding(State::Ok, "kernel module loaded");
    }
    finding(State::Missing, "no /dev/netmap")
        .advise(format!("VALE switches and netmap pipes cannot be measured; {REMEDY}"))
}

/// Checks Open vSwitch. Its datapath is not an rtnetlink kind, but a generic netlink family shows
/// it.
fn open_vswitch(modules: &Modules) -> Finding {
    let finding = |state, detail: &str| Finding::new(GROUP, "openvswitch", state, detail);
    let has_family = dray_netdev::families()
        .is_ok_and(|families| families.iter().any(|family| family.name == "ovs_datapath"));
    if has_family || Path::new("/sys/module/openvswitch").exists() {
        return finding(State::Ok, "kernel datapath available");
    }
    let detail = match modules.state("openvswitch") {
        Module::Loadable => "kernel module not loaded",
        _ => "not supported by this kernel",
    };
    let remedy = modules.remedy("openvswitch", "CONFIG_OPENVSWITCH");
    let cost = "Open vSwitch can switch only in user space";
    finding(State::Missing, detail).advise(format!("{cost}; {remedy}"))
}
