//! Measurements of the five papers: the paper, its name for the technique, and the technique here,
//! or where it is shown.

type Row = (&'static str, &'static str, Here);

/// Counterpart of a paper's technique.
pub(crate) enum Here {
    /// A technique of `dray bench`.
    Technique(&'static str),
    /// Not a technique of `dray bench`, but shown in a virtual machine: where.
    Shown(&'static str),
}

use Here::{Shown, Technique};

const NETMAP: &str = "`vale/netmap`, chains and fans of forwarders included: `tests/vm/netmap.rs`, \
                      `containers_are_joined_by_netmap`. To be measured it needs the netmap \
                      module, which no kernel of Debian's has";
const NS3: &str = "`vale/ns3-netmap`, chains of up to 6 forwarders: `tests/vm/netmap.rs`, \
                   `simulations_exchange_packets_over_vale`. To be measured it needs the netmap \
                   module";
pub(crate) const PAPERS: &[Row] = &[
    ("ara2019", "UDP sockets over a bridge, send and recv", Technique("bridge/udp")),
    ("ara2019", "the same with sendmmsg and recvmmsg", Technique("bridge/udp-mmsg")),
    ("ara2019", "raw sockets, send and recv", Technique("bridge/raw")),
    ("ara2019", "the same with sendmmsg and recvmmsg", Technique("bridge/raw-mmsg")),
    ("ara2019", "DPDK's virtio-user through testpmd", Technique("testpmd/pairs/dpdk")),
    ("ara2019", "through OVS with DPDK", Technique("ovs-dpdk/learning/dpdk")),
    ("ara2019", "through VPP", Technique("vpp/learning/dpdk")),
    ("ara2019", "through Snabb", Technique("snabb/pairs/dpdk")),
    ("ara2019", "virtio-user through the kernel's vhost-net", Technique("veth/dpdk-vhost-net")),
    ("ara2019", "DPDK on virtual functions of a card", Technique("sriov/dpdk")),
    ("shyamkumar2022", "an L2 bridge and the Linux stack", Technique("bridge/udp")),
    ("shyamkumar2022", "the same with rules of netfilter", Technique("bridge-iptables/udp")),
    ("shyamkumar2022", "overlays: IP in IP", Technique("ipip/udp")),
    ("shyamkumar2022", "macvlan", Technique("macvlan/bridge/udp")),
    ("shyamkumar2022", "ipvlan", Technique("ipvlan/l2/udp")),
    ("shyamkumar2022", "virtual functions and the Linux stack", Technique("sriov/udp")),
    (
        "shyamkumar2022",
        "AF_XDP behind a virtual function's driver",
        Technique("sriov/afxdp-generic"),
    ),
    ("shyamkumar2022", "AF_XDP without copies on virtual functions", Technique("sriov/afxdp")),
    ("claassen2016", "veth pairs and a bridge, TCP", Technique("bridge/tcp")),
    ("claassen2016", "the same, UDP", Technique("bridge/udp-mmsg")),
    ("claassen2016", "macvlan in bridge mode, TCP", Technique("macvlan/bridge/tcp")),
    ("claassen2016", "the same, UDP", Technique("macvlan/bridge/udp-mmsg")),
    ("claassen2016", "macvlan in private mode", Technique("macvlan/private/raw-mmsg")),
    ("claassen2016", "macvlan in VEPA mode", Technique("macvlan/vepa/raw-mmsg")),
    ("claassen2016", "macvlan in passthru mode, TCP", Technique("macvlan/passthru/tcp")),
    ("claassen2016", "ipvlan in L2 mode, TCP", Technique("ipvlan/l2/tcp")),
    ("claassen2016", "ipvlan in L3 mode, TCP", Technique("ipvlan/l3/tcp")),
    ("claassen2016", "the same, UDP", Technique("ipvlan/l3/udp-mmsg")),
    ("claassen2016", "Open vSwitch, TCP", Technique("ovs/kernel/tcp")),
    (
        "claassen2016",
        "containers of two hosts, veth pairs and bridges",
        Technique("hosts/bridge/tcp"),
    ),
    ("claassen2016", "the same, macvlan", Technique("hosts/macvlan/tcp")),
    ("claassen2016", "the same, ipvlan in L3 mode", Technique("hosts/ipvlan-l3/tcp")),
    ("claassen2016", "the same, UDP", Technique("hosts/bridge/udp-mmsg")),
    ("claassen2016", "VEPA with a switch that sends frames back", Technique("macvlan/hairpin/tcp")),
    ("claassen2016", "iperf3", Technique("bridge/iperf3")),
    ("claassen2016", "overlays: VXLAN", Technique("vxlan/tcp")),
    ("claassen2016", "overlays: Geneve", Technique("geneve/tcp")),
    ("claassen2016", "overlays: GRE", Technique("gre/tcp")),
    ("claassen2016", "overlays: WireGuard", Technique("wireguard/tcp")),
    (
        "claassen2016",
        "overlays: Open vSwitch's VXLAN, in the kernel",
        Technique("ovs-vxlan/kernel/tcp"),
    ),
    ("claassen2016", "the same in user space", Technique("ovs-vxlan/userspace/tcp")),
    ("casoni2013", "veth pairs", Technique("veth/raw-mmsg")),
    ("casoni2013", "veth pairs and a bridge", Technique("bridge/raw-mmsg")),
    ("casoni2013", "netmap's VALE", Shown(NETMAP)),
    ("casoni2013", "ns-3 at both ends, by sockets", Technique("veth/ns3-fd")),
    ("casoni2013", "ns-3 at both ends, by netmap's VALE", Shown(NS3)),
    ("liang2016", "virtio-user through a vhost-user switch", Technique("ovs-dpdk/learning/dpdk")),
    ("liang2016", "DPDK on virtual functions of a card", Technique("sriov/dpdk")),
    ("liang2016", "the kernel's stack", Technique("bridge/udp")),
];
