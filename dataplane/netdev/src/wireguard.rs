//! WireGuard interfaces: the generic netlink family `wireguard` (`linux/wireguard.h`).

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddrV4;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};

use crate::genetlink::{Genetlink, Message, attribute, nested};

const WG_CMD_GET_DEVICE: u8 = 0;
const WG_CMD_SET_DEVICE: u8 = 1;
const WGDEVICE_A_IFINDEX: u16 = 1;
const WGDEVICE_A_PRIVATE_KEY: u16 = 3;
const WGDEVICE_A_PUBLIC_KEY: u16 = 4;
const WGDEVICE_A_LISTEN_PORT: u16 = 6;
const WGDEVICE_A_PEERS: u16 = 8;
const WGPEER_A_PUBLIC_KEY: u16 = 1;
const WGPEER_A_ENDPOINT: u16 = 4;
const WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL: u16 = 5;
const WGPEER_A_ALLOWEDIPS: u16 = 9;
const WGALLOWEDIP_A_FAMILY: u16 = 1;
const WGALLOWEDIP_A_IPADDR: u16 = 2;
const WGALLOWEDIP_A_CIDR_MASK: u16 = 3;

/// Seconds between packets that keep a tunnel open. The first one is sent at once, so that keys are
/// agreed upon before there is traffic.
const KEEPALIVE: u16 = 25;

/// Public key of an interface.
pub type PublicKey = [u8; 32];

/// Gives the interface with the index `interface`, which is in the calling thread's network
/// namespace, a new private key and a UDP port. Returns the public key.
pub fn make_key(interface: u32, port: u16) -> io::Result<PublicKey> {
    let (socket, family) = open()?;
    let mut private = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut private)?;
    let message =
        |command| Message::new(family, command).with(WGDEVICE_A_IFINDEX, &interface.to_ne_bytes());
    let set = message(WG_CMD_SET_DEVICE)
        .with(WGDEVICE_A_PRIVATE_KEY, &private)
        .with(WGDEVICE_A_LISTEN_PORT, &port.to_ne_bytes());
    socket.exchange(set, NLM_F_ACK)?;
    let replies = socket.exchange(message(WG_CMD_GET_DEVICE), NLM_F_DUMP)?;
    let key = replies.iter().find_map(|reply| reply.attribute(WGDEVICE_A_PUBLIC_KEY));
    let key = key.and_then(|key| key.try_into().ok());
    key.ok_or_else(|| io::Error::other("wireguard returned no public key"))
}

/// Adds a peer at an address to the interface with the index `interface`: every IPv4 packet is sent
/// to it, and any address is accepted from it.
pub fn add_peer(interface: u32, key: PublicKey, endpoint: SocketAddrV4) -> io::Result<()> {
    let (socket, family) = open()?;
    // struct sockaddr_in
    let mut address = [0; 16];
    address[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    address[2..4].copy_from_slice(&endpoint.port().to_be_bytes());
    address[4..8].copy_from_slice(&endpoint.ip().octets());
    let any = [
        attribute(WGALLOWEDIP_A_FAMILY, &(libc::AF_INET as u16).to_ne_bytes()),
        attribute(WGALLOWEDIP_A_IPADDR, &[0; 4]),
        attribute(WGALLOWEDIP_A_CIDR_MASK, &[0]),
    ];
    let peer = [
        attribute(WGPEER_A_PUBLIC_KEY, &key),
        attribute(WGPEER_A_ENDPOINT, &address),
        attribute(WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL, &KEEPALIVE.to_ne_bytes()),
        attribute(nested(WGPEER_A_ALLOWEDIPS), &attribute(nested(0), &any.concat())),
    ];
    let set = Message::new(family, WG_CMD_SET_DEVICE)
        .with(WGDEVICE_A_IFINDEX, &interface.to_ne_bytes())
        .with(nested(WGDEVICE_A_PEERS), &attribute(nested(0), &peer.concat()));
    socket.exchange(set, NLM_F_ACK).map(drop)
}

fn open() -> io::Result<(Genetlink, u16)> {
    let socket = Genetlink::open()?;
    let family = socket.family("wireguard")?;
    let missing = || io::Error::new(io::ErrorKind::Unsupported, "no WireGuard in this kernel");
    Ok((socket, family.ok_or_else(missing)?))
}
