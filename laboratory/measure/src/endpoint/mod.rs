//! Endpoints: the I/O methods of programs in containers. Each family of endpoints is a file here,
//! which states the facts about them and how they open the ends of a link.

mod afxdp;
mod dpdk;
mod facts;
mod iperf3;
mod memory;
mod netmap;
mod ns3;
mod port;
mod sockets;
mod streams;
mod tap;

pub(crate) use dpdk::Dpdk;
pub(crate) use facts::Requirement;
pub use facts::{Facts, Unit};
pub(crate) use iperf3::Iperf3;
pub(crate) use memory::Rings;
pub(crate) use ns3::Ns3;
pub(crate) use port::Port;
pub(crate) use streams::Stream;

use std::fmt;

use dray_bpf::Mode;
use dray_lab::link::{EndKind, LinkOptions};
use dray_lab::peer::Ns3Layer;
use dray_lab::{End, LabError, Runtime};
use dray_port::{PortUri, Wait};
use dray_traffic::stream::Family;

use self::afxdp::Afxdp;
use self::ns3::Device;
use self::sockets::{Calls, Socket};

/// I/O method of a program in a container. Each constant describes one completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Name on the command line and in results.
    pub name: &'static str,
    /// Short description.
    pub about: &'static str,
    pub(crate) programs: Programs,
}

/// Programs at the ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Programs {
    /// Ours, with ports for frames.
    Frames(Port),
    /// Ours, with byte streams.
    Streams(Stream),
    /// DPDK's testpmd.
    Dpdk(Dpdk),
    /// Simulations of ns-3.
    Ns3(Ns3),
    /// netmap's pkt-gen and bridge.
    PktGen,
    /// iperf3.
    Iperf3(Iperf3),
}

const fn socket(socket: Socket) -> Programs {
    Programs::Frames(Port::Socket(socket))
}

const fn afxdp(afxdp: Afxdp) -> Programs {
    Programs::Frames(Port::Afxdp(afxdp))
}

const fn ns3(device: Device, layer: Ns3Layer) -> Programs {
    Programs::Ns3(Ns3 { device, layer })
}

impl Endpoint {
    /// UDP sockets, one frame per call.
    pub const UDP: Self =
        Self::new("udp", "UDP sockets, send/recv", socket(Socket::Udp(Calls::One)));

    /// UDP sockets, a burst per call.
    pub const UDP_MMSG: Self =
        Self::new("udp-mmsg", "UDP sockets, sendmmsg/recvmmsg", socket(Socket::Udp(Calls::Burst)));

    /// UDP sockets, a burst per call that the kernel does not copy.
    pub const UDP_ZEROCOPY: Self = Self::new(
        "udp-zerocopy",
        "UDP sockets with MSG_ZEROCOPY, sendmmsg/recvmmsg",
        socket(Socket::Udp(Calls::ZeroCopy)),
    );

    /// Packet sockets, one frame per call.
    pub const RAW: Self =
        Self::new("raw", "raw sockets, send/recv", socket(Socket::Raw(Calls::One)));

    /// Packet sockets, a burst per call.
    pub const RAW_MMSG: Self =
        Self::new("raw-mmsg", "raw sockets, sendmmsg/recvmmsg", socket(Socket::Raw(Calls::Burst)));

    /// Packet sockets, a burst per call in rings of mapped memory.
    pub const RAW_RING: Self = Self::new(
        "raw-ring",
        "raw sockets with packet rings (PACKET_MMAP)",
        socket(Socket::Raw(Calls::Ring)),
    );

    /// AF_XDP sockets, with XDP in the network driver if it supports that.
    pub const AFXDP: Self =
        Self::new("afxdp", "AF_XDP sockets, XDP in the driver if supported", afxdp(Afxdp::USUAL));

    /// [`AFXDP`](Self::AFXDP) with the interface's interrupts deferred by 50 us: a veth's ring of
    /// 256 frames lasts that long at 5 Mpps.
    pub const AFXDP_DEFERRED: Self = Self::new(
        "afxdp-deferred",
        "as afxdp, interrupts deferred by 50 us",
        afxdp(Afxdp { defer: Some(50), ..Afxdp::USUAL }),
    );

    /// [`AFXDP`](Self::AFXDP) without `XDP_USE_NEED_WAKEUP`.
    pub const AFXDP_NO_WAKEUP: Self = Self::new(
        "afxdp-no-wakeup",
        "AF_XDP sockets without XDP_USE_NEED_WAKEUP",
        afxdp(Afxdp { wakeup: false, ..Afxdp::USUAL }),
    );

    /// AF_XDP sockets with XDP behind the network driver, which works on any interface.
    pub const AFXDP_GENERIC: Self = Self::new(
        "afxdp-generic",
        "AF_XDP sockets, generic XDP (behind the driver)",
        afxdp(Afxdp { xdp: Some(Mode::Generic), ..Afxdp::USUAL }),
    );

    /// Device of a TAP interface, in the place of a virtual machine.
    pub const TAP: Self = Self::new(
        "tap",
        "a TAP device as in virtual machines, read/write",
        Programs::Frames(Port::Tap),
    );

    /// DPDK's AF_XDP driver.
    pub const DPDK_AFXDP: Self =
        Self::new("dpdk-afxdp", "DPDK's AF_XDP driver", Programs::Dpdk(Dpdk::Afxdp));

    /// DPDK's virtio driver, to the kernel's vhost-net.
    pub const DPDK_VHOST_NET: Self = Self::new(
        "dpdk-vhost-net",
        "DPDK's virtio-user, to the kernel's vhost-net",
        Programs::Dpdk(Dpdk::VhostNet),
    );

    /// One or more TCP streams of iperf3.
    pub const IPERF3: Self =
        Self::new("iperf3", "TCP streams of iperf3", Programs::Iperf3(Iperf3::Tcp));

    /// UDP datagrams of iperf3.
    pub const IPERF3_UDP: Self =
        Self::new("iperf3-udp", "UDP datagrams of iperf3", Programs::Iperf3(Iperf3::Udp));

    /// iperf3.
    pub const OF_IPERF3: [Self; 2] = [Self::IPERF3, Self::IPERF3_UDP];

    /// One or more TCP streams, 128 KiB per call.
    pub const TCP: Self = Self::new("tcp", "TCP streams", Programs::Streams(Stream::TCP));

    /// TCP streams with `MSG_ZEROCOPY`.
    pub const TCP_ZEROCOPY: Self = Self::new(
        "tcp-zerocopy",
        "TCP streams, sent with MSG_ZEROCOPY",
        Programs::Streams(Stream { zerocopy: true, ..Stream::TCP }),
    );

    /// TCP streams, short-cut by a BPF socket map without the programs' knowledge.
    pub const TCP_SOCKMAP: Self = Self::new(
        "tcp-sockmap",
        "TCP streams, short-cut by a BPF socket map",
        Programs::Streams(Stream { short_cut: true, ..Stream::TCP }),
    );

    /// Shared memory communications (SMC), which programs use like TCP.
    pub const SMC: Self = Self::new(
        "smc",
        "streams through SMC's loopback device",
        Programs::Streams(Stream { family: Family::Smc, ..Stream::TCP }),
    );

    /// Unix datagram sockets, one frame per call.
    pub const DGRAM: Self =
        Self::new("dgram", "Unix datagrams, send/recv", socket(Socket::Unix(Calls::One)));

    /// Unix datagram sockets, a burst per call.
    pub const DGRAM_MMSG: Self = Self::new(
        "dgram-mmsg",
        "Unix datagrams, sendmmsg/recvmmsg",
        socket(Socket::Unix(Calls::Burst)),
    );

    /// Rings of netmap's kernel module.
    pub const NETMAP: Self =
        Self::new("netmap", "rings of netmap's kernel module", Programs::Frames(Port::Netmap));

    /// netmap's own sender and receiver, and its forwarder.
    pub const PKT_GEN: Self = Self::new("pkt-gen", "netmap's pkt-gen and bridge", Programs::PktGen);

    /// Endpoints of netmap's links.
    pub const OF_NETMAP: [Self; 2] = [Self::NETMAP, Self::PKT_GEN];

    /// Simulations of ns-3 with its own device.
    pub const NS3_FD: Self = Self::new(
        "ns3-fd",
        "ns-3 at both ends, its FdNetDevice on a raw socket",
        ns3(Device::Fd, Ns3Layer::Udp),
    );

    /// Simulations of ns-3 with our device, on packet sockets.
    pub const NS3_RAW: Self = Self::new(
        "ns3-raw",
        "ns-3 at both ends, our device on raw sockets",
        ns3(Device::Ours(Port::Socket(Socket::Raw(Calls::Burst))), Ns3Layer::Udp),
    );

    /// Simulations of ns-3 with our device, on split virtqueues.
    pub const NS3_VIRTIO: Self = Self::new(
        "ns3-virtio",
        "ns-3 at both ends, our device on virtqueues",
        ns3(Device::Ours(Port::Memory(Rings::Split)), Ns3Layer::Udp),
    );

    /// Simulations of ns-3 with our device, on memif's rings.
    pub const NS3_MEMIF: Self = Self::new(
        "ns3-memif",
        "ns-3 at both ends, our device on memif's rings",
        ns3(Device::Ours(Port::Memory(Rings::Memif)), Ns3Layer::Udp),
    );

    /// Simulations of ns-3 with our device, on netmap's rings.
    pub const NS3_NETMAP: Self = Self::new(
        "ns3-netmap",
        "ns-3 at both ends, our device on netmap's rings",
        ns3(Device::Ours(Port::Netmap), Ns3Layer::Udp),
    );

    /// [`NS3_FD`](Self::NS3_FD) without the stack.
    pub const NS3_FD_BARE: Self = Self::new(
        "ns3-fd-bare",
        "as ns3-fd, packets made and counted at the device",
        ns3(Device::Fd, Ns3Layer::Device),
    );

    /// [`NS3_VIRTIO`](Self::NS3_VIRTIO) without the stack.
    pub const NS3_VIRTIO_BARE: Self = Self::new(
        "ns3-virtio-bare",
        "as ns3-virtio, packets made and counted at the device",
        ns3(Device::Ours(Port::Memory(Rings::Split)), Ns3Layer::Device),
    );

    /// Simulations of ns-3.
    pub const NS3: [Self; 7] = [
        Self::NS3_FD,
        Self::NS3_RAW,
        Self::NS3_FD_BARE,
        Self::NS3_VIRTIO,
        Self::NS3_VIRTIO_BARE,
        Self::NS3_MEMIF,
        Self::NS3_NETMAP,
    ];

    /// Our shared-memory virtio driver with split rings.
    pub const VIRTIO: Self = Self::new(
        "virtio",
        "shared memory, split virtqueues",
        Programs::Frames(Port::Memory(Rings::Split)),
    );

    /// Our shared-memory virtio driver with packed rings.
    pub const VIRTIO_PACKED: Self = Self::new(
        "virtio-packed",
        "shared memory, packed virtqueues",
        Programs::Frames(Port::Memory(Rings::Packed)),
    );

    /// DPDK's virtio driver with split rings.
    pub const DPDK: Self = Self::new(
        "dpdk",
        "DPDK's virtio-user, split virtqueues",
        Programs::Dpdk(Dpdk::Memory(Rings::Split)),
    );

    /// DPDK's driver of a network card.
    pub const DPDK_FUNCTION: Self = Self::new(
        "dpdk",
        "DPDK's driver of the card, through vfio",
        Programs::Dpdk(Dpdk::Function),
    );

    /// DPDK's virtio driver with packed rings.
    pub const DPDK_PACKED: Self = Self::new(
        "dpdk-packed",
        "DPDK's virtio-user, packed virtqueues",
        Programs::Dpdk(Dpdk::Memory(Rings::Packed)),
    );

    /// Our memif client.
    pub const MEMIF: Self = Self::new(
        "memif",
        "shared memory, memif's rings",
        Programs::Frames(Port::Memory(Rings::Memif)),
    );

    /// DPDK's memif client.
    pub const DPDK_MEMIF: Self =
        Self::new("dpdk-memif", "DPDK's memif", Programs::Dpdk(Dpdk::Memory(Rings::Memif)));

    /// Kernel sockets that send and receive frames. The first four are in the order of `ara2019`'s
    /// table.
    pub const SOCKETS: [Self; 6] =
        [Self::UDP, Self::UDP_MMSG, Self::RAW, Self::RAW_MMSG, Self::UDP_ZEROCOPY, Self::RAW_RING];

    /// Usual variants of AF_XDP sockets.
    pub const AF_XDP: [Self; 3] = [Self::AFXDP, Self::AFXDP_DEFERRED, Self::AFXDP_GENERIC];

    /// Byte streams.
    pub const STREAMS: [Self; 4] = [Self::TCP, Self::TCP_ZEROCOPY, Self::TCP_SOCKMAP, Self::SMC];

    /// Unix datagram sockets, which need no network.
    pub const UNIX: [Self; 2] = [Self::DGRAM, Self::DGRAM_MMSG];

    /// AF_XDP sockets to compare the usual ones with.
    const OTHER_AF_XDP: [Self; 2] = [Self::AFXDP_NO_WAKEUP, Self::DPDK_AFXDP];

    /// Shared-memory endpoints.
    pub const MEMORY: [Self; 6] = [
        Self::VIRTIO,
        Self::VIRTIO_PACKED,
        Self::DPDK,
        Self::DPDK_PACKED,
        Self::MEMIF,
        Self::DPDK_MEMIF,
    ];

    /// Shared-memory endpoints that a link stands for if no endpoint is named.
    pub const USUAL_MEMORY: [Self; 2] = [Self::VIRTIO, Self::MEMIF];

    const fn new(name: &'static str, about: &'static str, programs: Programs) -> Self {
        Self { name, about, programs }
    }

    /// All endpoints.
    pub fn all() -> Vec<Self> {
        let others = [
            &Self::OTHER_AF_XDP[..],
            &[Self::TAP, Self::DPDK_VHOST_NET, Self::DPDK_FUNCTION],
            &Self::OF_IPERF3,
            &Self::OF_NETMAP,
            &Self::MEMORY,
            &Self::NS3,
        ]
        .concat();
        [&Self::SOCKETS[..], &Self::AF_XDP, &Self::STREAMS, &Self::UNIX, &others].concat()
    }

    /// Facts that links, containers and plans depend on.
    pub fn facts(self) -> Facts {
        match self.programs {
            Programs::Frames(port) => port.facts(),
            Programs::Streams(stream) => stream.facts(),
            Programs::Dpdk(dpdk) => dpdk.facts(),
            Programs::Ns3(ns3) => ns3.facts(),
            Programs::PktGen => netmap::FACTS,
            Programs::Iperf3(iperf3) => iperf3.facts(),
        }
    }

    /// Returns an error if the endpoint cannot run inside the containers of `runtime`.
    pub fn check_runtime(self, runtime: Runtime) -> Result<(), LabError> {
        match self.facts().engine_obstacle {
            Some(why) if runtime != Runtime::Embedded => Err(LabError::Runtime {
                runtime: runtime.name(),
                what: format!("{self} is not measured: {why}"),
            }),
            _ => Ok(()),
        }
    }

    /// Returns true if the endpoint sends byte streams, not frames.
    pub fn is_stream(self) -> bool {
        self.facts().writes == Unit::Stream
    }

    /// Returns true if the endpoint can send frames at a given rate.
    pub fn takes_rate(self) -> bool {
        !self.is_dpdk() && !self.is_stream()
    }

    /// Returns true if the endpoint is DPDK's.
    pub fn is_dpdk(self) -> bool {
        matches!(self.programs, Programs::Dpdk(_))
    }

    /// Returns true if the ends are simulations of ns-3.
    pub fn is_ns3(self) -> bool {
        matches!(self.programs, Programs::Ns3(_))
    }

    /// Returns true if one program is both ends of a link.
    pub fn is_both_ends(self) -> bool {
        matches!(self.programs, Programs::Dpdk(Dpdk::Memory(_)))
    }

    /// Returns true if the programs of the endpoint are not ours.
    pub(crate) fn is_third_party(self) -> bool {
        !matches!(self.programs, Programs::Frames(_) | Programs::Streams(_))
    }

    /// Returns true if all frames of a port have one source MAC address: the interface's, or the
    /// one given to a third-party program.
    pub(crate) fn is_one_station(self) -> bool {
        self.facts().writes != Unit::Frame || self.is_third_party()
    }

    /// Returns true if the sender needs replies of the receiver.
    pub(crate) fn needs_replies(self) -> bool {
        self.is_stream() || matches!(self.programs, Programs::Iperf3(_))
    }

    /// Returns true if several pairs of the endpoint's programs can run at the same time.
    pub(crate) fn runs_in_pairs(self) -> bool {
        !self.is_third_party() || matches!(self.programs, Programs::Iperf3(_))
    }

    /// Options of a link for the endpoint.
    pub fn link_options(self, mtu: u32, switch_cpu: usize) -> LinkOptions {
        let Facts { opens, writes, xdp, .. } = self.facts();
        LinkOptions {
            addressed: writes != Unit::Frame,
            has_programs: xdp.is_some(),
            has_machines: opens == EndKind::Machine,
            has_drivers: opens == EndKind::Function,
            switch_cpu,
            ..LinkOptions::of_mtu(mtu)
        }
    }

    /// Port of a role of ours at `end` of a link whose other end is `peer`. For ns-3 it is the port
    /// of a forwarder.
    ///
    /// # Panics
    /// Panics if the endpoint does not open this kind of end, and for endpoints without a port of
    /// ours.
    pub fn port(self, end: &End, peer: &End, burst: usize, wait: Wait) -> PortUri {
        let port = match self.programs {
            Programs::Frames(port) => Some(port),
            Programs::Ns3(ns3) => Some(ns3.forwarder()),
            Programs::Streams(_) | Programs::Dpdk(_) | Programs::PktGen | Programs::Iperf3(_) => {
                None
            }
        };
        let uri = port.and_then(|port| port.uri(end, peer, burst, wait));
        uri.unwrap_or_else(|| panic!("{self} has no port at {:?}", end.attachment))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
