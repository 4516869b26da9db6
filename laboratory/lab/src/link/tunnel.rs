//! Tunnels of the kernel between two hosts. Those that carry Ethernet frames are ports of a bridge
//! on each host. Those that carry IP packets are routes, and each host routes between them and its
//! containers.

use std::fs;
use std::net::SocketAddrV4;

use super::address::EndId;
use super::hosts::SecondHost;
use super::segment::{Host, KeepAlive, Segment};
use super::wire::Tunnel;
use crate::LabError;
use dray_netdev::wireguard;

/// WireGuard has no assigned port; this one is in the examples of its documentation. Several links
/// have several interfaces on one host, each with a port of its own.
const WIREGUARD_PORT: u16 = 51820;
const WIREGUARD_PORTS: u32 = 8192;

pub(super) fn wire(segment: &Segment<'_>, tunnel: Tunnel) -> Result<KeepAlive, LabError> {
    let second = SecondHost::connect(segment)?;
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
    second.set_up_ports(segment)?;
    Ok(Some(Box::new(second.namespace)))
}

impl Tunnel {
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

/// Makes `host` route between its containers' interfaces and the tunnel.
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
