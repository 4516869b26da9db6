//! Tunnels of the kernel between two hosts. Those that carry Ethernet frames are ports of a bridge
//! on each host. Those that carry IP packets are routes, and each host routes between them and its
//! containers.

use std::fs;
use std::net::{IpAddr, SocketAddrV4};

use dray_netdev::wireguard;
use netlink_packet_route::link::{
    InfoData, InfoGeneve, InfoGre, InfoIpTunnel, InfoKind, InfoVxlan,
};

use super::address::EndId;
use super::hosts::SecondHost;
use super::segment::{Host, Segment};
use crate::LabError;

/// A kind of tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tunnel {
    Vxlan,
    Geneve,
    /// IP in GRE.
    Gre,
    /// IP in IP.
    Ipip,
    Wireguard,
}

/// Bytes of WireGuard's headers and authentication tag with those of UDP and IPv4: no other tunnel
/// here adds more to a packet.
pub(super) const OVERHEAD: u32 = 20 + 8 + 16 + 16;
/// UDP port assigned to VXLAN (RFC 7348); Linux uses another by default.
const VXLAN_PORT: u16 = 4789;
/// UDP port assigned to Geneve (RFC 8926).
const GENEVE_PORT: u16 = 6081;
/// WireGuard has no assigned port; this one is in the examples of its documentation. Several links
/// have several interfaces on one host, each with a port of its own.
const WIREGUARD_PORT: u16 = 51820;
const WIREGUARD_PORTS: u32 = 8192;

pub(super) fn wire(
    segment: &Segment<'_>,
    second: &SecondHost,
    tunnel: Tunnel,
) -> Result<(), LabError> {
    second.set_addresses(segment)?;
    let hosts = second.hosts(segment);
    let ids = segment.ids();
    let mut tunnels = [0; 2];
    for (side, host) in hosts.into_iter().enumerate() {
        let card = second.card(segment, host)?;
        tunnels[side] = tunnel.create(segment, host, card, [ids[side], ids[1 - side]])?;
    }
    if tunnel == Tunnel::Wireguard {
        exchange_keys(segment, hosts, tunnels, ids)?;
    }
    for (side, host) in hosts.into_iter().enumerate() {
        if tunnel.carries_frames() {
            let bridge = segment.create_bridge(host)?;
            let set = host.netlink.set_master(tunnels[side], bridge);
            set.map_err(segment.doing("tunnel"))?;
            segment.create_bridge_ports(host, side, bridge, tunnels[side])?;
        } else {
            route(segment, host, side, tunnels[side])?;
        }
    }
    Ok(())
}

impl Tunnel {
    /// Returns true if Ethernet frames pass it, not only IP packets.
    pub(super) const fn carries_frames(self) -> bool {
        matches!(self, Self::Vxlan | Self::Geneve)
    }

    /// Item of `dray doctor` that shows whether the kernel has it.
    pub(crate) const fn item(self) -> &'static str {
        match self {
            Self::Vxlan => "vxlan",
            Self::Geneve => "geneve",
            Self::Gre => "gre",
            Self::Ipip => "ipip",
            Self::Wireguard => "wireguard",
        }
    }

    /// Kernel module, and the option that builds it.
    pub(crate) const fn module(self) -> (&'static str, &'static str) {
        match self {
            Self::Vxlan => ("vxlan", "CONFIG_VXLAN"),
            Self::Geneve => ("geneve", "CONFIG_GENEVE"),
            Self::Gre => ("ip_gre", "CONFIG_NET_IPGRE"),
            Self::Ipip => ("ipip", "CONFIG_NET_IPIP"),
            Self::Wireguard => ("wireguard", "CONFIG_WIREGUARD"),
        }
    }

    /// Kind of the interface, and its settings for a tunnel from one end to another.
    pub(crate) fn settings(
        self,
        number: u32,
        card: u32,
        [here, there]: [EndId; 2],
    ) -> (InfoKind, Option<InfoData>) {
        let [local, remote] = [here.card_ip(), there.card_ip()];
        match self {
            Self::Vxlan => {
                let settings = vec![
                    InfoVxlan::Id(number),
                    InfoVxlan::Link(card),
                    InfoVxlan::Local(local),
                    InfoVxlan::Group(remote),
                    InfoVxlan::Port(VXLAN_PORT),
                ];
                (InfoKind::Vxlan, Some(InfoData::Vxlan(settings)))
            }
            Self::Geneve => {
                let settings = vec![
                    InfoGeneve::Id(number),
                    InfoGeneve::Remote(remote),
                    InfoGeneve::Port(GENEVE_PORT),
                ];
                (InfoKind::Geneve, Some(InfoData::Geneve(settings)))
            }
            Self::Gre => {
                let settings = vec![InfoGre::Local(local), InfoGre::Remote(remote)];
                (InfoKind::GreTun, Some(InfoData::GreTun(settings)))
            }
            Self::Ipip => {
                let [local, remote] = [IpAddr::V4(local), IpAddr::V4(remote)];
                let settings = vec![InfoIpTunnel::Local(local), InfoIpTunnel::Remote(remote)];
                (InfoKind::IpIp, Some(InfoData::IpTunnel(settings)))
            }
            Self::Wireguard => (InfoKind::Wireguard, None),
        }
    }

    /// Creates the interface of a tunnel on `host`; returns its index.
    fn create(
        self,
        segment: &Segment<'_>,
        host: Host<'_>,
        card: u32,
        ends: [EndId; 2],
    ) -> Result<u32, LabError> {
        let name = format!("t{}", segment.number);
        let (kind, settings) = self.settings(segment.number, card, ends);
        let (module, option) = self.module();
        let created = host.netlink.create_named(&name, kind, settings, None);
        created.map_err(segment.making(module, option))?;
        let index = host.netlink.interface(&name).map_err(segment.doing("tunnel"))?.index;
        // The kernel's defaults differ from kind to kind.
        host.netlink.set_mtu(index, segment.mtu).map_err(segment.doing("tunnel's MTU"))?;
        host.netlink.set_up(index).map_err(segment.doing("tunnel"))?;
        Ok(index)
    }
}

/// Gives each of two WireGuard interfaces a key, and tells it the other's.
fn exchange_keys(
    segment: &Segment<'_>,
    hosts: [Host<'_>; 2],
    tunnels: [u32; 2],
    ids: [EndId; 2],
) -> Result<(), LabError> {
    let port = WIREGUARD_PORT + (segment.number % WIREGUARD_PORTS) as u16;
    let mut keys = [wireguard::PublicKey::default(); 2];
    for side in [0, 1] {
        let make = || wireguard::make_key(tunnels[side], port);
        keys[side] = hosts[side].namespace.enter(make).map_err(segment.doing("wireguard's key"))?;
    }
    for side in [0, 1] {
        let other = SocketAddrV4::new(ids[1 - side].card_ip(), port);
        let add = || wireguard::add_peer(tunnels[side], keys[1 - side], other);
        hosts[side].namespace.enter(add).map_err(segment.doing("wireguard's peer"))?;
    }
    Ok(())
}

/// Has `host` route between its containers' interfaces and the tunnel.
///
/// A container takes the other end of a link for a neighbour. The host's interface to the container
/// has that neighbour's Ethernet address, so that the host receives what is meant for it.
fn route(segment: &Segment<'_>, host: Host<'_>, side: usize, tunnel: u32) -> Result<(), LabError> {
    let forward = || fs::write("/proc/sys/net/ipv4/ip_forward", "1");
    host.namespace.enter(forward).map_err(segment.doing("routing"))?;
    let Host { netlink, .. } = host;
    for link in segment.links {
        let [here, there] = [&link.ends[side], &link.ends[1 - side]];
        let port = segment.create_port(host, here)?;
        netlink.set_mac(port, there.mac).map_err(segment.doing("address of the port"))?;
        netlink.add_route(here.ip, port).map_err(segment.doing("route to the container"))?;
        let neighbour = netlink.add_neighbour(port, here.ip, here.mac);
        neighbour.map_err(segment.doing("neighbour"))?;
        netlink.add_route(there.ip, tunnel).map_err(segment.doing("route to the tunnel"))?;
    }
    Ok(())
}
