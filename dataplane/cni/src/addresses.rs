//! Addresses and routes of an interface in the container, by route netlink (rtnetlink(7)). All
//! functions work in the network namespace of the calling thread.

use std::fs;
use std::io;
use std::net::IpAddr;

use dray_netdev::{Interface, exchange};
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
    RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use serde_json::Value;

use crate::reply::{CniError, address, code, network};

/// Gives the interface the addresses and routes of an IPAM plugin's result.
pub(crate) fn configure(interface: &str, ipam: &Value) -> Result<(), CniError> {
    let found = Interface::find(interface).map_err(|error| CniError::io(&interface, &error))?;
    let netlink = Netlink::open().map_err(|error| CniError::io(&"netlink", &error))?;
    let (mut gateways, list) = (Vec::new(), |key: &str| ipam[key].as_array().into_iter().flatten());
    for ip in list("ips") {
        let wrong = || invalid(&format!("ips: {ip}: give an address such as 10.0.0.2/24"));
        let (own, len) = address(ip).ok_or_else(wrong)?;
        if own.is_ipv6() {
            allow_ipv6(interface).map_err(|error| CniError::io(&interface, &error))?;
        }
        netlink
            .add_address(found.index(), own, len)
            .map_err(|error| CniError::io(&format!("{interface}: address {own}/{len}"), &error))?;
        if let Some(gateway) = ip["gateway"].as_str() {
            let wrong = || invalid(&format!("ips: {ip}: the gateway is no address"));
            gateways.push(gateway.parse::<IpAddr>().map_err(|_| wrong())?);
        }
    }
    for route in list("routes") {
        let wrong = || invalid(&format!("routes: {route}: give dst such as 0.0.0.0/0, and gw"));
        let to = route["dst"].as_str().and_then(network).ok_or_else(wrong)?;
        let of_family = |gateway: &&IpAddr| gateway.is_ipv4() == to.0.is_ipv4();
        let via = match &route["gw"] {
            Value::Null => gateways.iter().find(of_family).copied(),
            gateway => {
                let gateway = gateway.as_str().and_then(|text| text.parse().ok());
                Some(gateway.filter(|gateway| of_family(&gateway)).ok_or_else(wrong)?)
            }
        };
        netlink
            .add_route(found.index(), to, via, route)
            .map_err(|error| CniError::io(&format!("{interface}: route {route}"), &error))?;
    }
    Ok(())
}

fn invalid(what: &str) -> CniError {
    CniError::new(code::REFUSED, format!("result of the IPAM plugin: {what}"))
}

/// A runtime may have turned off IPv6 for all interfaces, and still give an address.
fn allow_ipv6(interface: &str) -> io::Result<()> {
    let path = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    match fs::read_to_string(&path) {
        Ok(text) if text.trim() == "1" => fs::write(&path, "0"),
        _ => Ok(()),
    }
}

/// Returns the addresses of an interface.
pub(crate) fn of(interface: &str) -> io::Result<Vec<(IpAddr, u8)>> {
    let index = Interface::find(interface)?.index();
    let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let replies = Netlink::open()?.list(request)?;
    let addresses = replies.into_iter().filter_map(|reply| match reply {
        RouteNetlinkMessage::NewAddress(message) if message.header.index == index => {
            let len = message.header.prefix_len;
            message.attributes.into_iter().find_map(|attribute| match attribute {
                AddressAttribute::Address(address) => Some((address, len)),
                _ => None,
            })
        }
        _ => None,
    });
    Ok(addresses.collect())
}

/// A socket of route netlink.
pub(crate) struct Netlink(Socket);

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    /// The IPAM plugin assigns each address once, so duplicate address detection (RFC 4862), which
    /// takes a second, is off.
    fn add_address(&self, index: u32, own: IpAddr, len: u8) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(own);
        message.header.index = index;
        message.header.prefix_len = len;
        message.attributes = vec![AddressAttribute::Local(own), AddressAttribute::Address(own)];
        if own.is_ipv6() {
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        self.change(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Adds a route with the attributes that are given in `route`.
    fn add_route(
        &self,
        index: u32,
        (to, len): (IpAddr, u8),
        via: Option<IpAddr>,
        route: &Value,
    ) -> io::Result<()> {
        let number = |key: &str| route[key].as_u64().and_then(|number| u32::try_from(number).ok());
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: family(to),
            destination_prefix_length: len,
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: RouteProtocol::Boot,
            scope: match (number("scope"), via) {
                (Some(scope), _) => (scope as u8).into(),
                (None, Some(_)) => RouteScope::Universe,
                (None, None) => RouteScope::Link,
            },
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        message.attributes.push(RouteAttribute::Oif(index));
        if len > 0 {
            message.attributes.push(RouteAttribute::Destination(route_address(to)));
        }
        message.attributes.extend(via.map(|via| RouteAttribute::Gateway(route_address(via))));
        message.attributes.extend(number("priority").map(RouteAttribute::Priority));
        message.attributes.extend(number("table").map(RouteAttribute::Table));
        let mtu = number("mtu").filter(|mtu| *mtu > 0).map(RouteMetric::Mtu);
        let advmss = number("advmss").filter(|mss| *mss > 0).map(RouteMetric::Advmss);
        let metrics: Vec<_> = mtu.into_iter().chain(advmss).collect();
        if !metrics.is_empty() {
            message.attributes.push(RouteAttribute::Metrics(metrics));
        }
        self.change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Returns the replies to a request for a list.
    pub(crate) fn list(
        &self,
        request: RouteNetlinkMessage,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        exchange(&self.0, request, NLM_F_DUMP)
    }

    /// Requests a change, with flags such as [`NLM_F_CREATE`].
    pub(crate) fn change(&self, request: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        exchange(&self.0, request, flags | NLM_F_ACK).map(drop)
    }
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}
