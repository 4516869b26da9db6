//! What the five papers measure: the paper, what it calls it, and the technique here, or what that would
//! need.

type Row = (&'static str, &'static str, Result<&'static str, &'static str>);

const NETMAP: &str = "needs the netmap module, which no kernel of Debian's has";
const NS3: &str = "needs ns-3, whose own cost was what it measured: it is a simulator";
const VFIO: &str = "needs a network card with SR-IOV, and an IOMMU, for DPDK's own driver";
const ZERO_COPY: &str = "needs a network card whose virtual functions' driver has XDP; on whole cards \
                         AF_XDP without copies is proven in the VM \
                         (`tests/vm.rs`, `af_xdp_without_copies_and_behind_a_virtual_function`)";

pub(crate) const PAPERS: &[Row] = &[
    ("ara2019", "UDP sockets over a bridge, send and recv", Ok("bridge/udp")),
    ("ara2019", "the same with sendmmsg and recvmmsg", Ok("bridge/udp-mmsg")),
    ("ara2019", "raw sockets, send and recv", Ok("bridge/raw")),
    ("ara2019", "the same with sendmmsg and recvmmsg", Ok("bridge/raw-mmsg")),
    ("ara2019", "DPDK's virtio-user through testpmd", Ok("testpmd/pairs/dpdk")),
    ("ara2019", "through OVS with DPDK", Ok("ovs-dpdk/learning/dpdk")),
    ("ara2019", "through VPP", Ok("vpp/learning/dpdk")),
    ("ara2019", "through Snabb", Ok("snabb/pairs/dpdk")),
    ("ara2019", "DPDK on virtual functions of a card", Err(VFIO)),
    ("shyamkumar2022", "an L2 bridge and the Linux stack", Ok("bridge/udp")),
    ("shyamkumar2022", "macvlan", Ok("macvlan/bridge/udp")),
    ("shyamkumar2022", "ipvlan", Ok("ipvlan/l2/udp")),
    ("shyamkumar2022", "virtual functions and the Linux stack", Ok("sriov/udp")),
    ("shyamkumar2022", "AF_XDP behind a virtual function's driver", Ok("sriov/afxdp-generic")),
    ("shyamkumar2022", "AF_XDP without copies on virtual functions", Err(ZERO_COPY)),
    ("claassen2016", "veth pairs and a bridge, TCP", Ok("bridge/tcp")),
    ("claassen2016", "the same, UDP", Ok("bridge/udp-mmsg")),
    ("claassen2016", "macvlan in bridge mode, TCP", Ok("macvlan/bridge/tcp")),
    ("claassen2016", "the same, UDP", Ok("macvlan/bridge/udp-mmsg")),
    ("claassen2016", "macvlan in private mode", Ok("macvlan/private/raw-mmsg")),
    ("claassen2016", "macvlan in VEPA mode", Ok("macvlan/vepa/raw-mmsg")),
    ("claassen2016", "macvlan in passthru mode, TCP", Ok("macvlan/passthru/tcp")),
    ("claassen2016", "ipvlan in L2 mode, TCP", Ok("ipvlan/l2/tcp")),
    ("claassen2016", "ipvlan in L3 mode, TCP", Ok("ipvlan/l3/tcp")),
    ("claassen2016", "the same, UDP", Ok("ipvlan/l3/udp-mmsg")),
    ("claassen2016", "Open vSwitch, TCP", Ok("ovs/kernel/tcp")),
    ("claassen2016", "containers of two hosts, TCP", Ok("vxlan/tcp")),
    ("claassen2016", "the same, UDP", Ok("vxlan/udp-mmsg")),
    ("casoni2013", "veth pairs", Ok("veth/raw-mmsg")),
    ("casoni2013", "veth pairs and a bridge", Ok("bridge/raw-mmsg")),
    ("casoni2013", "netmap's VALE", Err(NETMAP)),
    ("casoni2013", "ns-3 at both ends, by sockets or VALE", Err(NS3)),
    ("liang2016", "virtio-user through a vhost-user switch", Ok("ovs-dpdk/learning/dpdk")),
    ("liang2016", "DPDK on virtual functions of a card", Err(VFIO)),
    ("liang2016", "the kernel's stack", Ok("bridge/udp")),
];
