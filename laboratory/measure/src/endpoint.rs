//! Endpoints: the I/O methods of programs in containers.

use std::fmt;
use std::net::SocketAddrV4;

use dray_bpf::Mode;
use dray_lab::link::netmap_uri;
use dray_lab::peer::{Ns3Layer, Protocol};
use dray_lab::runtime::{Capability, Privileges};
use dray_lab::{Attachment, End, LabError, Runtime};
use dray_port::afxdp::AfxdpUri;
use dray_port::netmap::NetmapUri;
use dray_port::raw::RawUri;
use dray_port::tap::TapUri;
use dray_port::udp::UdpUri;
use dray_port::unix_datagram::UnixUri;
use dray_port::{PortUri, SocketOptions, Wait};
use dray_traffic::StreamUri;
use dray_traffic::stream::Family;
use dray_wire::Flow;

/// I/O method of a program in a container. Each constant describes one completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Name on the command line and in results.
    pub name: &'static str,
    /// Short description.
    pub about: &'static str,
    pub(crate) io: Io,
}

/// Port or socket that an endpoint opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Io {
    /// UDP sockets.
    Udp(Calls),
    /// Packet sockets.
    Raw(Calls),
    /// Our AF_XDP sockets.
    Afxdp {
        /// Mode of the XDP program; `None`: in the network driver if it supports that.
        xdp: Option<Mode>,
        /// Time by which the interface's interrupts are deferred, in microseconds.
        defer: Option<u16>,
        /// True if the kernel reports when it needs a wakeup call.
        wakeup: bool,
    },
    /// Device of a TAP interface.
    Tap,
    /// DPDK's AF_XDP driver, with one testpmd at each end.
    DpdkAfxdp,
    /// Byte streams.
    Stream {
        family: Family,
        /// True if the sender asks the kernel not to copy.
        zerocopy: bool,
        /// True if a BPF socket map short-cuts TCP.
        short_cut: bool,
    },
    /// Unix datagram sockets.
    Unix(Calls),
    /// Rings of netmap's kernel module.
    Netmap,
    /// netmap's own programs.
    PktGen,
    /// Simulations of ns-3.
    Ns3(Ns3Device, Ns3Layer),
    /// Our shared-memory drivers.
    Memory(Rings),
    /// DPDK's shared-memory drivers, in one testpmd that is both ends, with rings of 256 entries.
    DpdkMemory(Rings),
}

/// Device of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ns3Device {
    /// ns-3's own, on a packet socket.
    Fd,
    /// Ours, on a port with packet sockets.
    Raw,
    /// Ours, on a port that shares memory.
    Memory(Rings),
    /// Ours, on a netmap port.
    Netmap,
}

/// Number of frames per system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    One,
    Burst,
}

/// Layout of rings in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rings {
    /// Split virtqueues.
    Split,
    /// Packed virtqueues.
    Packed,
    Memif,
}

impl Endpoint {
    /// UDP sockets, one frame per call.
    pub const UDP: Self = Self::new("udp", "UDP sockets, send/recv", Io::Udp(Calls::One));

    /// UDP sockets, a burst per call.
    pub const UDP_MMSG: Self =
        Self::new("udp-mmsg", "UDP sockets, sendmmsg/recvmmsg", Io::Udp(Calls::Burst));

    /// Packet sockets, one frame per call.
    pub const RAW: Self = Self::new("raw", "raw sockets, send/recv", Io::Raw(Calls::One));

    /// Packet sockets, a burst per call.
    pub const RAW_MMSG: Self =
        Self::new("raw-mmsg", "raw sockets, sendmmsg/recvmmsg", Io::Raw(Calls::Burst));

    /// AF_XDP sockets, with XDP in the network driver if it supports that.
    pub const AFXDP: Self = Self::new(
        "afxdp",
        "AF_XDP sockets, XDP in the driver if supported",
        Io::Afxdp { xdp: None, defer: None, wakeup: true },
    );

    /// [`AFXDP`](Self::AFXDP) with the interface's interrupts deferred by 50 us: a veth's ring of
    /// 256 frames lasts that long at 5 Mpps.
    pub const AFXDP_DEFERRED: Self = Self::new(
        "afxdp-deferred",
        "as afxdp, interrupts deferred by 50 us",
        Io::Afxdp { xdp: None, defer: Some(50), wakeup: true },
    );

    /// [`AFXDP`](Self::AFXDP) without `XDP_USE_NEED_WAKEUP`.
    pub const AFXDP_NO_WAKEUP: Self = Self::new(
        "afxdp-no-wakeup",
        "AF_XDP sockets without XDP_USE_NEED_WAKEUP",
        Io::Afxdp { xdp: None, defer: None, wakeup: false },
    );

    /// AF_XDP sockets with XDP behind the network driver, which works on any interface.
    pub const AFXDP_GENERIC: Self = Self::new(
        "afxdp-generic",
        "AF_XDP sockets, generic XDP (behind the driver)",
        Io::Afxdp { xdp: Some(Mode::Generic), defer: None, wakeup: true },
    );

    /// Device of a TAP interface, in the place of a virtual machine.
    pub const TAP: Self =
        Self::new("tap", "a TAP device as in virtual machines, read/write", Io::Tap);

    /// DPDK's AF_XDP driver.
    pub const DPDK_AFXDP: Self = Self::new("dpdk-afxdp", "DPDK's AF_XDP driver", Io::DpdkAfxdp);

    /// One or more TCP streams, 128 KiB per call.
    pub const TCP: Self = Self::new(
        "tcp",
        "TCP streams",
        Io::Stream { family: Family::Tcp, zerocopy: false, short_cut: false },
    );

    /// TCP streams with `MSG_ZEROCOPY`.
    pub const TCP_ZEROCOPY: Self = Self::new(
        "tcp-zerocopy",
        "TCP streams, sent with MSG_ZEROCOPY",
        Io::Stream { family: Family::Tcp, zerocopy: true, short_cut: false },
    );

    /// TCP streams, short-cut by a BPF socket map without the programs' knowledge.
    pub const TCP_SOCKMAP: Self = Self::new(
        "tcp-sockmap",
        "TCP streams, short-cut by a BPF socket map",
        Io::Stream { family: Family::Tcp, zerocopy: false, short_cut: true },
    );

    /// Shared memory communications (SMC), which programs use like TCP.
    pub const SMC: Self = Self::new(
        "smc",
        "streams through SMC's loopback device",
        Io::Stream { family: Family::Smc, zerocopy: false, short_cut: false },
    );

    /// Unix datagram sockets, one frame per call.
    pub const DGRAM: Self = Self::new("dgram", "Unix datagrams, send/recv", Io::Unix(Calls::One));

    /// Unix datagram sockets, a burst per call.
    pub const DGRAM_MMSG: Self =
        Self::new("dgram-mmsg", "Unix datagrams, sendmmsg/recvmmsg", Io::Unix(Calls::Burst));

    /// Rings of netmap's kernel module.
    pub const NETMAP: Self = Self::new("netmap", "rings of netmap's kernel module", Io::Netmap);

    /// netmap's own sender and receiver, and its forwarder.
    pub const PKT_GEN: Self = Self::new("pkt-gen", "netmap's pkt-gen and bridge", Io::PktGen);

    /// Endpoints of netmap's links.
    pub const OF_NETMAP: [Self; 2] = [Self::NETMAP, Self::PKT_GEN];

    /// Simulations of ns-3 with its own device.
    pub const NS3_FD: Self = Self {
        name: "ns3-fd",
        about: "ns-3 at both ends, its FdNetDevice on a raw socket",
        io: Io::Ns3(Ns3Device::Fd, Ns3Layer::Udp),
    };

    /// Simulations of ns-3 with our device, on packet sockets.
    pub const NS3_RAW: Self = Self {
        name: "ns3-raw",
        about: "ns-3 at both ends, our device on raw sockets",
        io: Io::Ns3(Ns3Device::Raw, Ns3Layer::Udp),
    };

    /// Simulations of ns-3 with our device, on split virtqueues.
    pub const NS3_VIRTIO: Self = Self {
        name: "ns3-virtio",
        about: "ns-3 at both ends, our device on virtqueues",
        io: Io::Ns3(Ns3Device::Memory(Rings::Split), Ns3Layer::Udp),
    };

    /// Simulations of ns-3 with our device, on memif's rings.
    pub const NS3_MEMIF: Self = Self {
        name: "ns3-memif",
        about: "ns-3 at both ends, our device on memif's rings",
        io: Io::Ns3(Ns3Device::Memory(Rings::Memif), Ns3Layer::Udp),
    };

    /// Simulations of ns-3 with our device, on netmap's rings.
    pub const NS3_NETMAP: Self = Self {
        name: "ns3-netmap",
        about: "ns-3 at both ends, our device on netmap's rings",
        io: Io::Ns3(Ns3Device::Netmap, Ns3Layer::Udp),
    };

    /// [`NS3_FD`](Self::NS3_FD) without the stack.
    pub const NS3_FD_BARE: Self = Self {
        name: "ns3-fd-bare",
        about: "as ns3-fd, packets made and counted at the device",
        io: Io::Ns3(Ns3Device::Fd, Ns3Layer::Device),
    };

    /// [`NS3_VIRTIO`](Self::NS3_VIRTIO) without the stack.
    pub const NS3_VIRTIO_BARE: Self = Self {
        name: "ns3-virtio-bare",
        about: "as ns3-virtio, packets made and counted at the device",
        io: Io::Ns3(Ns3Device::Memory(Rings::Split), Ns3Layer::Device),
    };

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
    pub const VIRTIO: Self =
        Self::new("virtio", "shared memory, split virtqueues", Io::Memory(Rings::Split));

    /// Our shared-memory virtio driver with packed rings.
    pub const VIRTIO_PACKED: Self =
        Self::new("virtio-packed", "shared memory, packed virtqueues", Io::Memory(Rings::Packed));

    /// DPDK's virtio driver with split rings.
    pub const DPDK: Self =
        Self::new("dpdk", "DPDK's virtio-user, split virtqueues", Io::DpdkMemory(Rings::Split));

    /// DPDK's virtio driver with packed rings.
    pub const DPDK_PACKED: Self = Self::new(
        "dpdk-packed",
        "DPDK's virtio-user, packed virtqueues",
        Io::DpdkMemory(Rings::Packed),
    );

    /// Our memif client.
    pub const MEMIF: Self =
        Self::new("memif", "shared memory, memif's rings", Io::Memory(Rings::Memif));

    /// DPDK's memif client.
    pub const DPDK_MEMIF: Self =
        Self::new("dpdk-memif", "DPDK's memif", Io::DpdkMemory(Rings::Memif));

    /// Kernel sockets, in the order of `ara2019`'s table.
    pub const SOCKETS: [Self; 4] = [Self::UDP, Self::UDP_MMSG, Self::RAW, Self::RAW_MMSG];

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

    const fn new(name: &'static str, about: &'static str, io: Io) -> Self {
        Self { name, about, io }
    }

    /// All endpoints.
    pub fn all() -> Vec<Self> {
        let others =
            [&Self::OTHER_AF_XDP[..], &[Self::TAP], &Self::OF_NETMAP, &Self::MEMORY, &Self::NS3]
                .concat();
        [&Self::SOCKETS[..], &Self::AF_XDP, &Self::STREAMS, &Self::UNIX, &others].concat()
    }

    /// Returns true if the endpoint shares memory instead of calling the kernel.
    pub fn shares_memory(self) -> bool {
        self.protocol().is_some()
    }

    /// Protocol by which the endpoint and its switch set up shared memory; `None` if it shares
    /// none.
    pub(crate) fn protocol(self) -> Option<Protocol> {
        match self.io {
            Io::Memory(rings) | Io::DpdkMemory(rings) | Io::Ns3(Ns3Device::Memory(rings), _) => {
                Some(match rings {
                    Rings::Memif => Protocol::Memif,
                    Rings::Split | Rings::Packed => Protocol::VhostUser,
                })
            }
            _ => None,
        }
    }

    /// Requested mode of the endpoint's XDP program; `None` for an endpoint without one.
    pub(crate) fn xdp(self) -> Option<Mode> {
        match self.io {
            Io::Afxdp { xdp, .. } => Some(xdp.unwrap_or(Mode::Native)),
            Io::DpdkAfxdp => Some(Mode::Native),
            _ => None,
        }
    }

    /// Returns true if the endpoint attaches an XDP program to its interface.
    pub fn has_xdp_program(self) -> bool {
        self.xdp().is_some()
    }

    /// Returns true if the endpoint takes the place of a virtual machine.
    pub fn is_machine(self) -> bool {
        self.io == Io::Tap
    }

    /// Privileges that the endpoint needs in a container whose engine grants no others.
    pub fn privileges(self) -> Privileges {
        use Capability::{Bpf, IpcLock, Mknod, NetAdmin, NetRaw};
        match self.io {
            // To make socket buffers as large as in other containers.
            Io::Udp(_) | Io::Unix(_) => &[NetAdmin],
            Io::Raw(_) => &[NetAdmin, NetRaw],
            Io::Afxdp { .. } => &[Bpf, IpcLock, NetAdmin, NetRaw],
            // Pages sent without a copy count against a limit of locked memory.
            Io::Stream { zerocopy: true, .. } => &[IpcLock],
            Io::Stream { .. } | Io::Memory(_) | Io::Netmap | Io::PktGen => &[],
            // TAP endpoints do not run in an engine's container.
            Io::Tap => &[Mknod, NetAdmin],
            Io::DpdkAfxdp | Io::DpdkMemory(_) | Io::Ns3(..) => &[],
        }
    }

    /// Returns an error if the endpoint cannot run inside the containers of `runtime`.
    pub fn check_runtime(self, runtime: Runtime) -> Result<(), LabError> {
        let why = match self.io {
            _ if runtime == Runtime::Embedded => return Ok(()),
            Io::DpdkAfxdp | Io::DpdkMemory(_) | Io::Ns3(..) => {
                "its program runs on the host, in the network namespace of a container, so its figure \
                 would not be one of an engine's container"
            }
            Io::Netmap | Io::PktGen => "an engine's containers have no /dev/netmap",
            _ => return Ok(()),
        };
        Err(LabError::Runtime {
            runtime: runtime.name(),
            what: format!("{self} is not measured: {why}"),
        })
    }

    /// Returns true if the endpoint is DPDK's.
    pub fn is_dpdk(self) -> bool {
        matches!(self.io, Io::DpdkAfxdp | Io::DpdkMemory(_))
    }

    /// Returns true if one program is both ends of a link.
    pub(crate) fn is_both_ends(self) -> bool {
        matches!(self.io, Io::DpdkMemory(_))
    }

    /// Returns true if the ends of the endpoint's link need IP addresses.
    pub fn is_addressed(self) -> bool {
        matches!(self.io, Io::Udp(_) | Io::Stream { .. })
    }

    /// Returns true if the endpoint sends byte streams, not frames.
    pub fn is_stream(self) -> bool {
        matches!(self.io, Io::Stream { .. })
    }

    /// Returns true if a BPF socket map short-cuts the endpoint's connections.
    pub(crate) fn is_short_cut(self) -> bool {
        matches!(self.io, Io::Stream { short_cut: true, .. })
    }

    /// Returns true if something else than TCP is meant to carry the endpoint's bytes, though TCP
    /// could.
    pub(crate) fn bypasses_tcp(self) -> bool {
        self.is_short_cut() || matches!(self.io, Io::Stream { family: Family::Smc, .. })
    }

    /// Returns true if the endpoint's link consists of Unix sockets.
    pub(crate) fn is_unix(self) -> bool {
        matches!(self.io, Io::Unix(_))
    }

    /// Returns true if the endpoint's link consists of netmap ports.
    pub fn is_netmap(self) -> bool {
        matches!(self.io, Io::Netmap | Io::PktGen | Io::Ns3(Ns3Device::Netmap, _))
    }

    /// Returns true if the ends are simulations of ns-3.
    pub fn is_ns3(self) -> bool {
        matches!(self.io, Io::Ns3(..))
    }

    /// Returns true if the programs of the endpoint are not ours.
    pub(crate) fn is_third_party(self) -> bool {
        self.is_dpdk() || self.is_ns3() || self.io == Io::PktGen
    }

    /// Address at `end` on which a stream receiver listens; `None` for frames.
    pub(crate) fn stream(self, end: &End) -> Option<StreamUri> {
        let Io::Stream { family, zerocopy, .. } = self.io else { return None };
        let address = SocketAddrV4::new(end.ip, Flow::default().dst_port);
        Some(StreamUri { zerocopy, ..StreamUri::new(family, address) })
    }

    /// Returns true if all frames of a port have one source MAC address: the interface's, or the
    /// one given to DPDK.
    pub fn is_one_station(self) -> bool {
        self.is_addressed() || self.is_third_party()
    }

    /// Returns true if all frames of a port are one flow, because the kernel writes their headers.
    pub fn is_one_flow(self) -> bool {
        matches!(self.io, Io::Udp(_))
    }

    /// Port at `end` of a link whose other end is `peer`.
    ///
    /// # Panics
    /// Panics if the endpoint cannot open this kind of end, and for streams and third-party
    /// endpoints, which open no port here. For ns-3 it is the port of a forwarder.
    pub fn port(self, end: &End, peer: &End, burst: usize, wait: Wait) -> PortUri {
        let interface = || end.interface().expect("a kernel endpoint has an interface");
        let options = |calls| match calls {
            Calls::One => SocketOptions { batch: 1, wait },
            Calls::Burst => SocketOptions { batch: burst, wait },
        };
        match self.of_forwarders() {
            Io::Udp(calls) => {
                let Flow { src_port, dst_port, .. } = Flow::default();
                let local = SocketAddrV4::new(end.ip, src_port);
                let remote = Some(SocketAddrV4::new(peer.ip, dst_port));
                PortUri::Udp(UdpUri { local, remote, options: options(calls) })
            }
            Io::Raw(calls) => PortUri::Raw(RawUri {
                interface: interface().to_owned(),
                options: options(calls),
                // Test frames are IPv4; receiving only this EtherType saves a clone of each frame.
                ethertype: Some(0x0800),
                promisc: false,
                queues: 1,
                offload: true,
            }),
            Io::Afxdp { xdp, defer, wakeup } => {
                let wait = if wait == Wait::Block { wait } else { Wait::Poll { pause_us: 0 } };
                let uri = AfxdpUri::new(interface());
                PortUri::Afxdp(AfxdpUri { xdp, defer, wakeup, wait, ..uri })
            }
            Io::Tap => PortUri::Tap(TapUri { wait, ..TapUri::new(interface()) }),
            Io::Unix(calls) => match &end.attachment {
                Attachment::Datagrams { here, there } => PortUri::Unix(UnixUri {
                    socket: here.clone().into(),
                    peer: Some(there.clone().into()),
                    access: Default::default(),
                    options: options(calls),
                }),
                other => unreachable!("{other:?} is not a Unix socket"),
            },
            Io::Netmap => match &end.attachment {
                Attachment::Netmap(name) => {
                    match netmap_uri(name).parse().expect("the lab's ports have short names") {
                        PortUri::Netmap(uri) => PortUri::Netmap(NetmapUri { wait, ..uri }),
                        other => other,
                    }
                }
                other => unreachable!("{other:?} is not a netmap port"),
            },
            // These ports never sleep: a role that shares its CPU yields.
            Io::Memory(rings) => {
                let uri = match &end.attachment {
                    Attachment::Device(path) => format!("vhost:{}?wait=poll", path.display()),
                    Attachment::Driver(path) => {
                        let packed = u8::from(rings == Rings::Packed);
                        let path = path.display();
                        format!("virtio:{path}?packed={packed}&hugepages=0&wait=poll")
                    }
                    Attachment::Memif(path) => format!("memif:{}?wait=poll", path.display()),
                    other => unreachable!("{other:?} does not share memory"),
                };
                uri.parse().expect("the lab's sockets have short names")
            }
            Io::DpdkAfxdp | Io::DpdkMemory(_) | Io::PktGen | Io::Ns3(..) => {
                unreachable!("third-party programs open their ports themselves")
            }
            Io::Stream { .. } => unreachable!("stream endpoints have no frame ports"),
        }
    }

    /// Ports of the forwarders, which are ours where the ends are simulations.
    fn of_forwarders(self) -> Io {
        match self.io {
            Io::Ns3(Ns3Device::Fd | Ns3Device::Raw, _) => Io::Raw(Calls::Burst),
            Io::Ns3(Ns3Device::Memory(rings), _) => Io::Memory(rings),
            Io::Ns3(Ns3Device::Netmap, _) => Io::Netmap,
            io => io,
        }
    }

    /// Port of a simulation at `end` of a link whose other end is `peer`.
    pub(crate) fn ns3_port(self, end: &End, peer: &End, burst: usize) -> String {
        match self.io {
            Io::Ns3(Ns3Device::Fd, _) => {
                format!("fd:{}", end.interface().expect("a kernel endpoint has an interface"))
            }
            // It runs where the port is, and beside the containers.
            Io::Ns3(Ns3Device::Netmap, _) => {
                format!("netmap:{}", end.netmap().expect("a netmap endpoint has a port"))
            }
            _ => self.port(end, peer, burst, Wait::Block).to_string(),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
