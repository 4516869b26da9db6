//! VXLAN between two hosts, each with a bridge to the containers of its side, joined by a tunnel
//! through a veth pair that stands for the network between them.

use std::fs;
use std::io;

use netlink_packet_route::link::{InfoData, InfoKind, InfoVxlan};

use super::address::PREFIX_LEN;
use super::segment::{Host, KeepAlive, Segment};
use crate::netlink::{Netlink, NewInterface};
use crate::{LabError, NetworkNamespace};

/// Bytes of the Ethernet, IPv4, UDP and VXLAN headers around each frame.
const OVERHEAD: u32 = 14 + 20 + 8 + 8;
/// UDP port assigned to VXLAN (RFC 7348); Linux uses another by default.
const PORT: u16 = 4789;

/// Puts first ends of links behind the lab's "host", second ends behind a second host that is made
/// here.
pub(super) fn wire(segment: &Segment<'_>) -> Result<KeepAlive, LabError> {
    let SecondHost { namespace, netlink } = join_hosts(segment)?;
    let hosts = [segment.host(), Host { namespace: &namespace, netlink: &netlink }];
    let ids = segment.links[0].ends.each_ref().map(|end| end.id);
    for side in [0, 1] {
        let (here, there, netlink) = (ids[side], ids[1 - side], hosts[side].netlink);
        let card = netlink.interface(&card(segment)).map_err(segment.doing("card"))?.index;
        let name = format!("t{}", segment.number);
        let settings = InfoData::Vxlan(vec![
            InfoVxlan::Id(segment.number),
            // The tunnel's MTU is the card's less the overhead of each frame.
            InfoVxlan::Link(card),
            InfoVxlan::Local(here.ip()),
            InfoVxlan::Group(there.ip()),
            InfoVxlan::Port(PORT),
        ]);
        let created = netlink.create_named(&name, InfoKind::Vxlan, Some(settings), None);
        created.map_err(segment.making("vxlan", "CONFIG_VXLAN"))?;
        let tunnel = netlink.interface(&name).map_err(segment.doing("tunnel"))?.index;
        let bridge = segment.create_bridge(hosts[side])?;
        netlink.set_master(tunnel, bridge).map_err(segment.doing("tunnel"))?;
        netlink.set_up(tunnel).map_err(segment.doing("tunnel"))?;
        for link in segment.links {
            segment.create_bridge_port(hosts[side], bridge, &link.ends[side])?;
            let other = &link.ends[1 - side];
            netlink.add_forwarding(tunnel, other.station).map_err(segment.doing("forwarding"))?;
        }
    }
    segment.set_up()?;
    for (side, host) in hosts.into_iter().enumerate() {
        let ends = segment.links.iter().map(|link| &link.ends[side]);
        ends.into_iter().try_for_each(|end| segment.wait_for_port(host, end))?;
    }
    Ok(Some(Box::new(namespace)))
}

/// The second host, and its interfaces.
pub(super) struct SecondHost {
    pub(super) namespace: NetworkNamespace,
    netlink: Netlink,
}

/// Name of the interface that stands for a host's network card.
fn card(segment: &Segment<'_>) -> String {
    format!("u{}", segment.number)
}

/// Makes the second host, and joins it to the lab's "host" by a network whose packets are by
/// [`OVERHEAD`] longer than those of the segment. The hosts' addresses are those of the ends of the
/// first link: there are no containers between the hosts.
pub(super) fn join_hosts(segment: &Segment<'_>) -> Result<SecondHost, LabError> {
    let namespace = second_host().map_err(segment.doing("second host"))?;
    let netlink = Netlink::open(&namespace).map_err(segment.doing("second host"))?;
    let hosts = [segment.host(), Host { namespace: &namespace, netlink: &netlink }];
    let ids = segment.links[0].ends.each_ref().map(|end| end.id);
    let card = card(segment);
    let [a, b] = [0, 1].map(|side| NewInterface {
        namespace: hosts[side].namespace,
        name: &card,
        mac: Some(ids[side].card_mac()),
        mtu: segment.mtu + OVERHEAD,
    });
    hosts[0].netlink.create_veth(a, b).map_err(segment.doing("veth pair between hosts"))?;
    for side in [0, 1] {
        let (here, there, netlink) = (ids[side], ids[1 - side], hosts[side].netlink);
        let card = netlink.interface(&card).map_err(segment.doing("card"))?.index;
        netlink.set_up(card).map_err(segment.doing("card"))?;
        netlink.add_address(card, here.ip(), PREFIX_LEN).map_err(segment.doing("address"))?;
        let neighbour = netlink.add_neighbour(card, there.ip(), there.card_mac());
        neighbour.map_err(segment.doing("neighbour"))?;
    }
    hosts.iter().try_for_each(|host| segment.wait_until_running(host.netlink, &card))?;
    Ok(SecondHost { namespace, netlink })
}

/// Makes a network namespace without IPv6, in which the kernel sends nothing of its own.
fn second_host() -> io::Result<NetworkNamespace> {
    let namespace = NetworkNamespace::scratch()?;
    namespace.enter(|| {
        for scope in ["all", "default"] {
            // A kernel without IPv6 needs no switch.
            let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
        }
        Ok(())
    })?;
    Ok(namespace)
}
