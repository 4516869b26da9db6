//! Synchronous route netlink (rtnetlink(7)): the requests that links need.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd};

use dray_netdev::exchange;
use dray_wire::MacAddr;
use netlink_packet_core::{DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoBridge, InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoPortKind, InfoVeth,
    LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo, LinkMessage, LinkVfInfo, State, VfInfo,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use serde::{Deserialize, Serialize};

use crate::namespace::NetworkNamespace;

/// Time for which a limited interface may send at full speed.
const BURST_S: f64 = 100e-6;
/// Time for which frames wait at a limited interface, as in a switch with a short queue.
const QUEUE_S: f64 = 2e-3;

/// A netlink socket inside one network namespace.
pub struct Netlink(Socket);

/// An interface to be created.
#[derive(Clone, Copy, Debug)]
pub struct NewInterface<'a> {
    /// Namespace to create the interface in.
    pub namespace: &'a NetworkNamespace,
    /// Name of the interface in that namespace.
    pub name: &'a str,
    /// Ethernet address; `None` if the kernel shall assign one.
    pub mac: Option<MacAddr>,
    /// MTU in bytes.
    pub mtu: u32,
}

/// An interface as the kernel describes it.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Index within its namespace.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Ethernet address; zero if the interface has none.
    pub mac: MacAddr,
    /// Index of the interface that this one is based on or paired with (`IFLA_LINK`), which may be
    /// in another namespace.
    pub link: Option<u32>,
    /// True if the interface carries frames (operational state "up"); setting it up is not enough.
    pub is_running: bool,
    /// Counters of the interface.
    pub counters: InterfaceCounters,
    /// Bytes received and transmitted.
    pub bytes: [u64; 2],
}

/// The kernel's counters of an interface (`struct rtnl_link_stats64`), in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the kernel's own")]
pub struct InterfaceCounters {
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub tx_dropped: u64,
}

impl std::ops::Add for InterfaceCounters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            rx_packets: self.rx_packets + other.rx_packets,
            tx_packets: self.tx_packets + other.tx_packets,
            tx_dropped: self.tx_dropped + other.tx_dropped,
        }
    }
}

impl Netlink {
    /// Opens a socket in `namespace`.
    pub fn open(namespace: &NetworkNamespace) -> io::Result<Self> {
        let socket = namespace.enter(|| {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            Ok(socket)
        })?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    /// Creates a veth pair.
    pub fn create_veth(&self, a: NewInterface<'_>, b: NewInterface<'_>) -> io::Result<()> {
        let peer = InfoVeth::Peer(b.describe());
        self.create(a, InfoKind::Veth, InfoData::Veth(peer), None)
    }

    /// Creates an interface of a kind with these settings, based on `parent` if it has one.
    pub fn create(
        &self,
        interface: NewInterface<'_>,
        kind: InfoKind,
        data: InfoData,
        parent: Option<u32>,
    ) -> io::Result<()> {
        let mut link = interface.describe();
        link.attributes.extend(parent.map(LinkAttribute::Link));
        let info = vec![LinkInfo::Kind(kind), LinkInfo::Data(data)];
        link.attributes.push(LinkAttribute::LinkInfo(info));
        self.create_link(link)
    }

    /// Creates a bridge without spanning tree and multicast snooping: it forwards from the start
    /// and sends no frames of its own.
    pub fn create_bridge(&self, name: &str) -> io::Result<()> {
        let data = InfoData::Bridge(vec![InfoBridge::MulticastSnooping(false)]);
        self.create_named(name, InfoKind::Bridge, Some(data), None)
    }

    /// Creates an interface with the kernel's defaults for everything else.
    pub fn create_named(
        &self,
        name: &str,
        kind: InfoKind,
        data: Option<InfoData>,
        parent: Option<u32>,
    ) -> io::Result<()> {
        let info = [LinkInfo::Kind(kind)].into_iter().chain(data.map(LinkInfo::Data)).collect();
        let mut link = LinkMessage::default();
        link.attributes =
            vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::LinkInfo(info)];
        link.attributes.extend(parent.map(LinkAttribute::Link));
        self.create_link(link)
    }

    fn create_link(&self, link: LinkMessage) -> io::Result<()> {
        self.change(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Makes `index` a port of the bridge `master`.
    pub fn set_master(&self, index: u32, master: u32) -> io::Result<()> {
        self.set_link(index, |link| {
            link.attributes.push(LinkAttribute::Controller(master));
        })
    }

    /// Makes the bridge port `index` send frames back where they came from (802.1Qbg's reflective
    /// relay).
    pub fn set_hairpin(&self, index: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        let port = InfoPortData::BridgePort(vec![InfoBridgePort::HairpinMode(true)]);
        let info = vec![LinkInfo::PortKind(InfoPortKind::Bridge), LinkInfo::PortData(port)];
        link.attributes.push(LinkAttribute::LinkInfo(info));
        // The kernel ignores this attribute in RTM_SETLINK.
        self.change(RouteNetlinkMessage::NewLink(link), 0)
    }

    /// Sets the Ethernet address of an interface.
    pub fn set_mac(&self, index: u32, mac: MacAddr) -> io::Result<()> {
        self.set_link(index, |link| link.attributes.push(LinkAttribute::Address(mac.0.to_vec())))
    }

    /// Changes one setting of a virtual function of the card `index`.
    pub fn set_virtual_function(&self, index: u32, setting: VfInfo) -> io::Result<()> {
        let list = LinkAttribute::VfInfoList(vec![LinkVfInfo(vec![setting])]);
        self.set_link(index, |link| link.attributes.push(list))
    }

    /// Settings of each virtual function of the card `index`, in order, as the card reports them.
    pub fn virtual_functions(&self, index: u32) -> io::Result<Vec<Vec<VfInfo>>> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes = vec![LinkAttribute::ExtMask(vec![LinkExtentMask::Vf])];
        let replies = exchange(&self.0, RouteNetlinkMessage::GetLink(link), NLM_F_ACK)?;
        let attributes = replies.into_iter().flat_map(|reply| match reply {
            RouteNetlinkMessage::NewLink(link) => link.attributes,
            _ => Vec::new(),
        });
        let functions = attributes.flat_map(|attribute| match attribute {
            LinkAttribute::VfInfoList(functions) => functions,
            _ => Vec::new(),
        });
        Ok(functions.map(|LinkVfInfo(settings)| settings).collect())
    }

    /// Moves an interface into `namespace` under the name `name`.
    pub fn move_to(&self, index: u32, namespace: &NetworkNamespace, name: &str) -> io::Result<()> {
        self.set_link(index, |link| {
            link.attributes.push(LinkAttribute::IfName(name.to_owned()));
            link.attributes.push(LinkAttribute::NetNsFd(namespace.as_fd().as_raw_fd()));
        })
    }

    /// Sets an interface's MTU, in bytes.
    pub fn set_mtu(&self, index: u32, mtu: u32) -> io::Result<()> {
        self.set_link(index, |link| link.attributes.push(LinkAttribute::Mtu(mtu)))
    }

    /// Brings an interface up.
    pub fn set_up(&self, index: u32) -> io::Result<()> {
        self.set_link(index, |link| {
            link.header.flags = LinkFlags::Up;
            link.header.change_mask = LinkFlags::Up;
        })
    }

    fn set_link(&self, index: u32, change: impl FnOnce(&mut LinkMessage)) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        change(&mut link);
        self.change(RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Removes an interface; for a veth, also its other end.
    pub fn delete(&self, index: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        self.change(RouteNetlinkMessage::DelLink(link), 0)
    }

    /// Adds an IPv4 address to an interface.
    pub fn add_address(&self, index: u32, address: Ipv4Addr, prefix_len: u8) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.index = index;
        message.header.prefix_len = prefix_len;
        message.attributes = vec![
            AddressAttribute::Local(IpAddr::V4(address)),
            AddressAttribute::Address(IpAddr::V4(address)),
        ];
        self.change(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Adds a route to one IPv4 address, which is reached through an interface without a gateway.
    pub fn add_route(&self, to: Ipv4Addr, index: u32) -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.destination_prefix_length = 32;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = RouteScope::Link;
        message.header.kind = RouteType::Unicast;
        message.attributes =
            vec![RouteAttribute::Destination(RouteAddress::Inet(to)), RouteAttribute::Oif(index)];
        self.change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Adds a permanent neighbour entry with the Ethernet address of an IPv4 neighbour, so that no
    /// ARP frame is sent.
    pub fn add_neighbour(&self, index: u32, address: Ipv4Addr, mac: MacAddr) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.ifindex = index;
        message.header.state = NeighbourState::Permanent;
        message.attributes = vec![
            NeighbourAttribute::Destination(NeighbourAddress::Inet(address)),
            NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()),
        ];
        self.change(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE)
    }

    /// Adds a permanent forwarding entry to a bridge: `mac` is behind the bridge's port `index`.
    pub fn add_forwarding(&self, index: u32, mac: MacAddr) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        message.header.ifindex = index;
        message.header.state = NeighbourState::Noarp;
        message.header.flags = NeighbourFlags::Controller;
        message.attributes = vec![NeighbourAttribute::LinkLayerAddress(mac.0.to_vec())];
        self.change(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE)
    }

    /// Returns the interface called `name`.
    pub fn interface(&self, name: &str) -> io::Result<Interface> {
        let mut link = LinkMessage::default();
        link.attributes = vec![LinkAttribute::IfName(name.to_owned())];
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("no interface {name}"));
        match self.get_links(link, NLM_F_ACK) {
            Ok(links) => links.into_iter().next().ok_or_else(missing),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Err(missing()),
            Err(error) => Err(error),
        }
    }

    /// Returns all interfaces of the namespace.
    pub fn interfaces(&self) -> io::Result<Vec<Interface>> {
        self.get_links(LinkMessage::default(), NLM_F_DUMP)
    }

    fn get_links(&self, request: LinkMessage, flags: u16) -> io::Result<Vec<Interface>> {
        let replies = exchange(&self.0, RouteNetlinkMessage::GetLink(request), flags)?;
        let links = replies.into_iter().filter_map(|reply| match reply {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        });
        Ok(links.map(Interface::from).collect())
    }

    /// Limits the rate of the frames that leave by an interface to `bps` bits per second: a token
    /// bucket (tc-tbf(8)) of as many bytes as pass in `BURST_S`, and a queue of `QUEUE_S`.
    pub fn limit_rate(&self, index: u32, bps: u64) -> io::Result<()> {
        // The longest packet that a kernel segments late must fit the bucket.
        let bytes = |seconds: f64| ((bps as f64 / 8.0 * seconds) as u32).max(2 << 16);
        let (burst, queue) = (bytes(BURST_S), bytes(QUEUE_S));
        // struct tc_tbf_qopt of linux/pkt_sched.h: rate, peak rate (none), limit, buffer, MTU. A
        // rate is a struct tc_ratespec, here of Ethernet, whose frames are that much longer on a
        // cable: preamble, checksum and gap.
        const LINKLAYER_ETHERNET: u8 = 1;
        const FRAMING: u16 = 8 + 4 + 12;
        let bytes_per_s = bps / 8;
        let rate = u32::try_from(bytes_per_s).unwrap_or(u32::MAX);
        let mut parameters = vec![0, LINKLAYER_ETHERNET];
        parameters.extend(FRAMING.to_ne_bytes());
        parameters.extend([0; 4]);
        parameters.extend(rate.to_ne_bytes());
        parameters.extend([0; 12]);
        for word in [queue, 0, 0] {
            parameters.extend(word.to_ne_bytes());
        }
        // TCA_TBF_PARMS, TCA_TBF_RATE64 and TCA_TBF_BURST.
        let option = |kind, bytes: Vec<u8>| TcOption::Other(DefaultNla::new(kind, bytes));
        let options = vec![
            option(1, parameters),
            option(4, bytes_per_s.to_ne_bytes().to_vec()),
            option(6, burst.to_ne_bytes().to_vec()),
        ];
        let mut message = TcMessage::with_index(index.cast_signed());
        message.header.parent = TcHandle::ROOT;
        message.attributes =
            vec![TcAttribute::Kind("tbf".to_owned()), TcAttribute::Options(options)];
        let request = RouteNetlinkMessage::NewQueueDiscipline(message);
        self.change(request, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Sends a request that the kernel acknowledges without data.
    fn change(&self, request: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        exchange(&self.0, request, flags | NLM_F_ACK).map(drop)
    }
}

impl NewInterface<'_> {
    /// Describes the interface, as a pair's settings name its other end.
    pub(crate) fn describe(&self) -> LinkMessage {
        let mut link = LinkMessage::default();
        link.attributes = vec![
            LinkAttribute::IfName(self.name.to_owned()),
            LinkAttribute::Mtu(self.mtu),
            LinkAttribute::NetNsFd(self.namespace.as_fd().as_raw_fd()),
        ];
        link.attributes.extend(self.mac.map(|mac| LinkAttribute::Address(mac.0.to_vec())));
        link
    }
}

impl From<LinkMessage> for Interface {
    fn from(link: LinkMessage) -> Self {
        let mut interface = Self {
            index: link.header.index,
            name: String::new(),
            mac: MacAddr([0; 6]),
            link: None,
            is_running: false,
            counters: InterfaceCounters::default(),
            bytes: [0; 2],
        };
        for attribute in link.attributes {
            match attribute {
                LinkAttribute::IfName(name) => interface.name = name,
                LinkAttribute::Address(address) => {
                    interface.mac = address.try_into().map_or(interface.mac, MacAddr);
                }
                LinkAttribute::Link(link) => interface.link = Some(link),
                LinkAttribute::OperState(State::Up) => interface.is_running = true,
                // ipvlan never reports "up"; its carrier is that of its parent.
                LinkAttribute::LinkInfo(info)
                    if info.contains(&LinkInfo::Kind(InfoKind::IpVlan)) =>
                {
                    interface.is_running |= link.header.flags.contains(LinkFlags::LowerUp);
                }
                LinkAttribute::Stats64(stats) => {
                    interface.bytes = [stats.rx_bytes, stats.tx_bytes];
                    interface.counters = InterfaceCounters {
                        rx_packets: stats.rx_packets,
                        tx_packets: stats.tx_packets,
                        tx_dropped: stats.tx_dropped,
                    };
                }
                _ => {}
            }
        }
        interface
    }
}
