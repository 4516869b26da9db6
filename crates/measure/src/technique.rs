//! Techniques: a link and how the programs at its ends do their I/O.

use std::fmt;

use dray_lab::peer::SwitchKind;
use dray_lab::runtime::{Capability, Privileges};
use dray_lab::{Attachment, End, LabError, LinkKind, Runtime};
use dray_port::afxdp::AfxdpUri;
use dray_port::raw::RawUri;
use dray_port::udp::UdpUri;
use dray_port::{PortUri, SocketOptions, Wait};
use dray_traffic::Check;
use dray_wire::Flow;
use dray_xdp::Mode;

/// How a program in a container does its I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// UDP sockets, one frame per call.
    Udp,
    /// UDP sockets, a burst per call.
    UdpMmsg,
    /// Packet sockets, one frame per call.
    Raw,
    /// Packet sockets, a burst per call.
    RawMmsg,
    /// AF_XDP sockets, natively where the driver can.
    Afxdp,
    /// The same with the interface's interrupts deferred.
    AfxdpDeferred,
    /// The same as [`Afxdp`](Self::Afxdp) without `XDP_USE_NEED_WAKEUP`.
    AfxdpNoWakeup,
    /// AF_XDP sockets behind the driver, which any interface can do.
    AfxdpGeneric,
    /// DPDK's AF_XDP driver, a testpmd at each end.
    DpdkAfxdp,
    /// Our virtio driver, which shares memory, with split rings.
    Virtio,
    /// The same with packed rings.
    VirtioPacked,
    /// DPDK's virtio driver in a testpmd that is both ends, split rings of 256 entries.
    Dpdk,
    /// The same with packed rings.
    DpdkPacked,
}

impl Endpoint {
    /// The kernel's sockets, in the order of `ara2019`'s table.
    pub const SOCKETS: [Self; 4] = [Self::Udp, Self::UdpMmsg, Self::Raw, Self::RawMmsg];

    /// AF_XDP sockets as one would use them.
    pub const AF_XDP: [Self; 3] = [Self::Afxdp, Self::AfxdpDeferred, Self::AfxdpGeneric];

    /// AF_XDP sockets to compare those with.
    const OTHER_AF_XDP: [Self; 2] = [Self::AfxdpNoWakeup, Self::DpdkAfxdp];

    /// Those that share memory.
    pub const MEMORY: [Self; 4] = [Self::Virtio, Self::VirtioPacked, Self::Dpdk, Self::DpdkPacked];

    fn all() -> Vec<Self> {
        [&Self::SOCKETS[..], &Self::AF_XDP, &Self::OTHER_AF_XDP, &Self::MEMORY].concat()
    }

    /// The word for it on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::UdpMmsg => "udp-mmsg",
            Self::Raw => "raw",
            Self::RawMmsg => "raw-mmsg",
            Self::Afxdp => "afxdp",
            Self::AfxdpDeferred => "afxdp-deferred",
            Self::AfxdpNoWakeup => "afxdp-no-wakeup",
            Self::AfxdpGeneric => "afxdp-generic",
            Self::DpdkAfxdp => "dpdk-afxdp",
            Self::Virtio => "virtio",
            Self::VirtioPacked => "virtio-packed",
            Self::Dpdk => "dpdk",
            Self::DpdkPacked => "dpdk-packed",
        }
    }

    /// What it is, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Self::Udp => "UDP sockets, send/recv",
            Self::UdpMmsg => "UDP sockets, sendmmsg/recvmmsg",
            Self::Raw => "raw sockets, send/recv",
            Self::RawMmsg => "raw sockets, sendmmsg/recvmmsg",
            Self::Afxdp => "AF_XDP sockets, XDP in the driver where it can",
            Self::AfxdpNoWakeup => "AF_XDP sockets that do not tell the kernel when to wait",
            Self::AfxdpDeferred => "the same, interrupts deferred by 50 us",
            Self::AfxdpGeneric => "AF_XDP sockets, XDP behind the driver",
            Self::DpdkAfxdp => "DPDK's AF_XDP driver",
            Self::Virtio => "shared memory, split virtqueues",
            Self::VirtioPacked => "shared memory, packed virtqueues",
            Self::Dpdk => "DPDK's virtio-user, split virtqueues",
            Self::DpdkPacked => "DPDK's virtio-user, packed virtqueues",
        }
    }

    /// Whether it shares memory instead of asking the kernel.
    pub fn shares_memory(self) -> bool {
        Self::MEMORY.contains(&self)
    }

    /// Whether it attaches an XDP program to its interface.
    fn has_xdp_program(self) -> bool {
        Self::AF_XDP.contains(&self) || Self::OTHER_AF_XDP.contains(&self)
    }

    /// What it takes in a container whose engine leaves it nothing else.
    pub fn privileges(self) -> Privileges {
        use Capability::{Bpf, IpcLock, NetAdmin, NetRaw};
        match self {
            // For socket buffers as large as everywhere else.
            Self::Udp | Self::UdpMmsg => &[NetAdmin],
            Self::Raw | Self::RawMmsg => &[NetAdmin, NetRaw],
            Self::Afxdp | Self::AfxdpDeferred | Self::AfxdpNoWakeup | Self::AfxdpGeneric => {
                &[Bpf, IpcLock, NetAdmin, NetRaw]
            }
            Self::Virtio | Self::VirtioPacked => &[],
            // It runs beside the container.
            Self::DpdkAfxdp | Self::Dpdk | Self::DpdkPacked => &[],
        }
    }

    /// Says so where it would not run inside the containers of `runtime`.
    pub fn check_runtime(self, runtime: Runtime) -> Result<(), LabError> {
        if runtime == Runtime::Embedded || !self.is_dpdk() {
            return Ok(());
        }
        let what = format!("{self} is not measured: DPDK's testpmd runs beside containers, not inside");
        Err(LabError::Runtime { runtime, what })
    }

    /// Whether it is DPDK's.
    pub fn is_dpdk(self) -> bool {
        matches!(self, Self::DpdkAfxdp | Self::Dpdk | Self::DpdkPacked)
    }

    /// Whether its rings are packed, where it is DPDK's virtio driver.
    pub fn dpdk(self) -> Option<bool> {
        match self {
            Self::Dpdk => Some(false),
            Self::DpdkPacked => Some(true),
            _ => None,
        }
    }

    /// Whether the ends of its link need IP addresses.
    pub fn is_addressed(self) -> bool {
        matches!(self, Self::Udp | Self::UdpMmsg)
    }

    /// Whether all frames of a port come from one MAC address: the interface's, or the one that DPDK
    /// was given.
    pub fn is_one_station(self) -> bool {
        self.is_addressed() || self.is_dpdk()
    }

    /// Whether all frames of a port are one flow, because the kernel writes their headers.
    pub fn is_one_flow(self) -> bool {
        matches!(self, Self::Udp | Self::UdpMmsg)
    }

    /// The port at `end` of a link whose other end is `peer`.
    pub fn port(self, end: &End, peer: &End, burst: usize, wait: Wait) -> PortUri {
        let batch = match self {
            Self::Udp | Self::Raw => 1,
            _ => burst,
        };
        let options = SocketOptions { batch, wait };
        match self {
            Self::Udp | Self::UdpMmsg => {
                let Flow { src_port, dst_port, .. } = Flow::default();
                let local = std::net::SocketAddrV4::new(end.ip, src_port);
                let remote = Some(std::net::SocketAddrV4::new(peer.ip, dst_port));
                PortUri::Udp(UdpUri { local, remote, options })
            }
            Self::Raw | Self::RawMmsg => PortUri::Raw(RawUri {
                interface: end.interface().expect("sockets need an interface").to_owned(),
                options,
                // Test frames are IPv4; asking for just that saves a clone of each.
                ethertype: Some(0x0800),
                promisc: false,
            }),
            Self::Afxdp | Self::AfxdpDeferred | Self::AfxdpNoWakeup | Self::AfxdpGeneric => {
                let interface = end.interface().expect("AF_XDP needs an interface");
                let xdp = (self == Self::AfxdpGeneric).then_some(Mode::Generic);
                let wait = if wait == Wait::Block { wait } else { Wait::Poll { pause_us: 0 } };
                // As long as a veth's ring of 256 frames lasts at 5 Mpps.
                let defer = (self == Self::AfxdpDeferred).then_some(50);
                let wakeup = self != Self::AfxdpNoWakeup;
                PortUri::Afxdp(AfxdpUri { xdp, defer, wakeup, wait, ..AfxdpUri::new(interface) })
            }
            Self::DpdkAfxdp => unreachable!("DPDK opens its port itself"),
            // They never sleep: whoever shares a CPU yields.
            Self::Virtio | Self::VirtioPacked | Self::Dpdk | Self::DpdkPacked => {
                let uri = match &end.attachment {
                    Attachment::Device(path) => format!("vhost:{}?wait=poll", path.display()),
                    Attachment::Driver(path) => {
                        let packed = u8::from(self == Self::VirtioPacked);
                        let path = path.display();
                        format!("virtio:{path}?packed={packed}&hugepages=0&wait=poll")
                    }
                    Attachment::Interface(name) => unreachable!("{name} shares no memory"),
                };
                uri.parse().expect("the lab's sockets have short names")
            }
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A link and an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Technique {
    /// How the containers are wired.
    pub link: LinkKind,
    /// How the programs in them do their I/O.
    pub endpoint: Endpoint,
}

/// A word that names no technique.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "unknown technique {given:?}: give LINK, ENDPOINT or LINK/ENDPOINT with links {}, endpoints {}",
    LinkKind::ALL.map(LinkKind::name).join(" "),
    Endpoint::all().iter().map(|e| e.name()).collect::<Vec<_>>().join(" ")
)]
pub struct UnknownTechnique {
    given: String,
}

impl Technique {
    /// Every technique of ours and of the kernel.
    pub fn all() -> Vec<Self> {
        let kernel = [&Endpoint::SOCKETS[..], &Endpoint::AF_XDP].concat();
        let kernel = Self::by_link(&LinkKind::ALL, &kernel);
        kernel.into_iter().chain(Self::by_link(&LinkKind::ALL, &[Endpoint::Virtio])).collect()
    }

    /// Every technique that has a name.
    fn every() -> Vec<Self> {
        let links = [&LinkKind::ALL[..], &LinkKind::PEERS].concat();
        Self::by_link(&links, &Endpoint::all())
    }

    /// Each of the links with each of the endpoints that go with it.
    pub fn by_link(links: &[LinkKind], endpoints: &[Endpoint]) -> Vec<Self> {
        let of = |&link| endpoints.iter().map(move |&endpoint| Self { link, endpoint });
        links.iter().flat_map(of).filter(Self::can_be).collect()
    }

    /// The same, link after link for each endpoint.
    pub fn by_endpoint(links: &[LinkKind], endpoints: &[Endpoint]) -> Vec<Self> {
        let of = |&endpoint| links.iter().map(move |&link| Self { link, endpoint });
        endpoints.iter().flat_map(of).filter(Self::can_be).collect()
    }

    /// Says so where it is known that its switch does not serve its endpoint.
    pub fn check(&self) -> Result<(), LabError> {
        let what = match (self.link.switch(), self.endpoint) {
            (Some((SwitchKind::Snabb, _)), Endpoint::VirtioPacked | Endpoint::DpdkPacked) => {
                "it has split rings only"
            }
            (Some((SwitchKind::Snabb, _)), Endpoint::Dpdk) => {
                "it is from before virtio 1.0, and DPDK's virtio-user does not tell such a back end \
                 which features it takes"
            }
            _ => return Ok(()),
        };
        Err(LabError::Peer { peer: SwitchKind::Snabb.name().to_owned(), what: what.to_owned() })
    }

    fn can_be(&self) -> bool {
        // Two drivers cannot share memory with each other, and DPDK's device side is no endpoint.
        let no_device = self.link == LinkKind::Direct && self.endpoint.dpdk().is_some();
        // An interface has one XDP program, and such a link needs it.
        let no_program = matches!(self.link, LinkKind::Xdp(_)) && self.endpoint.has_xdp_program();
        self.link.shares_memory() == self.endpoint.shares_memory() && !no_device && !no_program
    }

    /// Whether `word` names it: a link or the first word of one, an endpoint, or both as
    /// `LINK/ENDPOINT`.
    pub fn is_called(&self, word: &str) -> bool {
        let (link, endpoint) = (self.link.name(), self.endpoint.name());
        let of_link = link == word || link.split('/').next() == Some(word);
        // A link that shares memory stands for our usual endpoint.
        let of_link = of_link && (!self.link.shares_memory() || self.endpoint == Endpoint::Virtio);
        let both = word.strip_prefix(link).and_then(|rest| rest.strip_prefix('/'));
        of_link || word == endpoint || both == Some(endpoint)
    }

    /// How closely its receiver looks at frames, if nothing else is asked for.
    pub fn usual_check(&self) -> Check {
        if self.link.shares_memory() { Check::Sampled } else { Check::Whole }
    }

    /// Fails where `word` names no technique at all.
    pub fn check_name(word: &str) -> Result<(), UnknownTechnique> {
        if Self::every().iter().any(|technique| technique.is_called(word)) {
            Ok(())
        } else {
            Err(UnknownTechnique { given: word.to_owned() })
        }
    }
}

impl fmt::Display for Technique {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.endpoint {
            Endpoint::Virtio => write!(f, "{}", self.link),
            endpoint => write!(f, "{}/{endpoint}", self.link),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_lab::peer::Wiring;

    fn select(word: &str) -> Vec<Technique> {
        Technique::every().into_iter().filter(|technique| technique.is_called(word)).collect()
    }

    #[test]
    fn every_technique_is_named_by_its_own_text_only() {
        for technique in Technique::every() {
            assert_eq!(select(&technique.to_string()), [technique]);
        }
        assert_eq!(select("veth").len(), Endpoint::SOCKETS.len() + Endpoint::AF_XDP.len() + 2);
        assert_eq!(select("raw").len(), 4, "veth, bridge and XDP");
        assert_eq!(
            select("switch"),
            Technique::by_link(&[LinkKind::PATCH, LinkKind::LEARNING], &[Endpoint::Virtio])
        );
    }

    #[test]
    fn an_old_switch_serves_one_endpoint() {
        let snabb = LinkKind::Switch(SwitchKind::Snabb, Wiring::Pairs);
        let served = |link| {
            let techniques = Technique::by_link(&[link], &Endpoint::MEMORY).into_iter();
            let served = techniques.filter(|technique| technique.check().is_ok());
            served.map(|technique| technique.endpoint).collect::<Vec<_>>()
        };
        assert_eq!(served(snabb), [Endpoint::Virtio]);
        assert_eq!(served(LinkKind::PATCH), Endpoint::MEMORY);
    }

    #[test]
    fn what_is_unknown_is_named_with_what_is_allowed() {
        for text in ["", "tokenring", "veth/", "/udp", "udp/veth", "veth/udp/x", "veth/virtio"] {
            let message = Technique::check_name(text).unwrap_err().to_string();
            assert!(
                message.contains(&format!("{text:?}")) && message.contains("udp-mmsg"),
                "{message}"
            );
        }
    }
}
