//! Two hosts, joined by a veth pair that stands for the cable between their network cards. First
//! ends of links are in containers of the lab's "host", second ends in containers of a host beside
//! it.

use std::fs;
use std::io;

use netlink_packet_route::link::{IpVlanFlags, MacVlanMode};

use super::address::{EndId, PREFIX_LEN};
use super::segment::{Host, KeepAlive, Segment};
use super::wire::Uplink;
use super::{ipvlan, macvlan};
use crate::modules::Modules;
use crate::netlink::{Netlink, NewInterface};
use crate::{LabError, NetworkNamespace};

/// Bytes that the headers of a tunnel add to each packet, at most: those of IPv4, UDP and
/// WireGuard, and its authentication tag. The cards' MTU is larger by so many, so that packets of
/// the segment's MTU need no fragments.
const OVERHEAD: u32 = 20 + 8 + 16 + 16;

pub(super) fn wire(segment: &Segment<'_>, uplink: Uplink) -> Result<KeepAlive, LabError> {
    let second = SecondHost::connect(segment)?;
    let hosts = second.hosts(segment);
    match uplink {
        Uplink::Bridge => {
            for (side, host) in hosts.into_iter().enumerate() {
                let bridge = segment.create_bridge(host)?;
                let card = second.card(segment, host)?;
                host.netlink.set_master(card, bridge).map_err(segment.doing("card"))?;
                segment.create_bridge_ports(host, side, bridge, card)?;
            }
            second.set_up_ports(segment)?;
        }
        Uplink::Macvlan => {
            for (side, host) in hosts.into_iter().enumerate() {
                let card = second.card(segment, host)?;
                for end in segment.ends_at(side) {
                    macvlan::create(segment, host, end, card, MacVlanMode::Bridge)?;
                }
            }
        }
        Uplink::Ipvlan(mode) => {
            let ids = segment.ids();
            for (side, host) in hosts.into_iter().enumerate() {
                let card = second.card(segment, host)?;
                for link in segment.links {
                    let [here, there] = [&link.ends[side], &link.ends[1 - side]];
                    ipvlan::create(segment, host, here, card, (mode, IpVlanFlags::empty()))?;
                    let other = ids[1 - side].card_mac();
                    let neighbour = host.netlink.add_neighbour(card, there.ip, other);
                    neighbour.map_err(segment.doing("neighbour"))?;
                }
            }
        }
    }
    Ok(Some(Box::new(second.namespace)))
}

/// The host beside the lab's "host".
pub(super) struct SecondHost {
    pub(super) namespace: NetworkNamespace,
    netlink: Netlink,
}

impl SecondHost {
    /// Makes the host, and connects its card with that of the lab's "host".
    pub(super) fn connect(segment: &Segment<'_>) -> Result<Self, LabError> {
        let namespace = silent_namespace().map_err(segment.doing("second host"))?;
        let netlink = Netlink::open(&namespace).map_err(segment.doing("second host"))?;
        let second = Self { namespace, netlink };
        let hosts = second.hosts(segment);
        let name = card_name(segment);
        let [a, b] = [0, 1].map(|side| NewInterface {
            namespace: hosts[side].namespace,
            name: &name,
            mac: Some(segment.ids()[side].card_mac()),
            mtu: segment.mtu + OVERHEAD,
        });
        hosts[0].netlink.create_veth(a, b).map_err(segment.doing("veth pair between hosts"))?;
        for host in hosts {
            let card = second.card(segment, host)?;
            if let Some(bps) = segment.cable_bps {
                let limited = host.netlink.limit_rate(card, bps);
                limited.map_err(|error| limit_error(segment, error))?;
            }
            host.netlink.set_up(card).map_err(segment.doing("card"))?;
        }
        hosts.iter().try_for_each(|host| segment.wait_until_running(host.netlink, &name))?;
        Ok(second)
    }

    /// Gives the cards IP addresses.
    pub(super) fn set_addresses(&self, segment: &Segment<'_>) -> Result<(), LabError> {
        let ids = segment.ids();
        for (side, host) in self.hosts(segment).into_iter().enumerate() {
            let [here, there] = [ids[side], ids[1 - side]];
            let card = self.card(segment, host)?;
            let address = host.netlink.add_address(card, here.card_ip(), PREFIX_LEN);
            address.map_err(segment.doing("address"))?;
            let neighbour = host.netlink.add_neighbour(card, there.card_ip(), there.card_mac());
            neighbour.map_err(segment.doing("neighbour"))?;
        }
        Ok(())
    }

    /// Sets up the containers' interfaces, and waits until each host reaches those on its side.
    pub(super) fn set_up_ports(&self, segment: &Segment<'_>) -> Result<(), LabError> {
        segment.set_up()?;
        for (side, host) in self.hosts(segment).into_iter().enumerate() {
            segment.ends_at(side).try_for_each(|end| segment.wait_for_port(host, end))?;
        }
        Ok(())
    }

    /// Both hosts, in the order of a link's ends.
    pub(super) fn hosts<'a>(&'a self, segment: &'a Segment<'_>) -> [Host<'a>; 2] {
        [segment.host(), Host { namespace: &self.namespace, netlink: &self.netlink }]
    }

    /// Index of the card of a host.
    pub(super) fn card(&self, segment: &Segment<'_>, host: Host<'_>) -> Result<u32, LabError> {
        let card = host.netlink.interface(&card_name(segment));
        Ok(card.map_err(segment.doing("card"))?.index)
    }
}

/// Returns the error if the rate of a card cannot be limited.
fn limit_error(segment: &Segment<'_>, error: io::Error) -> LabError {
    if error.kind() != io::ErrorKind::NotFound {
        return segment.doing("rate of the cable")(error);
    }
    LabError::NotInKernel {
        what: "sch_tbf".to_owned(),
        remedy: Modules::of_running_kernel().remedy("sch_tbf", "CONFIG_NET_SCH_TBF"),
    }
}

pub(super) fn card_name(segment: &Segment<'_>) -> String {
    format!("u{}", segment.number)
}

impl Segment<'_> {
    /// Both ends of the first link, whose numbers name what the links of the segment share.
    pub(super) fn ids(&self) -> [EndId; 2] {
        self.links[0].ends.each_ref().map(|end| end.id)
    }
}

/// Makes a network namespace without IPv6, in which the kernel sends nothing of its own.
fn silent_namespace() -> io::Result<NetworkNamespace> {
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
