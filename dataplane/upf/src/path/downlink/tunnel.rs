//! Headers of a tunnel to a gNB.

use std::net::IpAddr;

use dray_wire::MacAddr;
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet, ethertype};
use dray_wire::gtpu::{self, Container, Direction};
use dray_wire::ip::{self, Fragment, Header, IPV4_LEN, IPV6_LEN, Packet, ecn, protocol};
use dray_wire::udp::{UDP_LEN, Udp};

use super::super::forwarder::Encapsulation;
use crate::interface::Interface;
use crate::packet::TTL;
use crate::session::Peer;

/// The headers around a user's packet.
#[derive(Clone, Copy)]
pub(super) struct Tunnel {
    pub(super) peer: Peer,
    pub(super) qfi: Option<u8>,
    pub(super) dst: MacAddr,
    pub(super) flow: Flow,
}

/// Fields of the outer headers that depend on the inner packet.
#[derive(Clone, Copy)]
pub(super) struct Flow {
    /// Congestion notification bits, copied from the inner packet (RFC 6040, section 4.1).
    pub(super) tos: u8,
    /// UDP source port, the same for all packets of a flow, so that network cards can distribute
    /// flows by it.
    pub(super) src_port: u16,
}

impl Flow {
    /// Returns the flow of a packet for the user of `key`.
    #[inline(always)]
    pub(super) fn of(packet: &Packet, key: u64) -> Self {
        // Dynamic ports (RFC 6335).
        const FIRST: u16 = 0xc000;
        const SHIFT: u32 = 64 - 14;
        // Only the first fragment of a packet has ports, so fragments do not use them.
        let ports = match packet.fragment {
            Fragment::Whole => packet.ports.unwrap_or_default(),
            _ => (0, 0),
        };
        let ports = u64::from(ports.0) << 16 | u64::from(ports.1);
        // A user has one key, but hosts on the Internet also differ in the second half of their
        // addresses.
        let ends = packet.src as u64 ^ key.rotate_left(32) ^ ports;
        // The highest bits of a product depend on all bits of its factors.
        let hash = ends.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { tos: packet.tos & ecn::MASK, src_port: FIRST | (hash >> SHIFT) as u16 }
    }
}

/// Returns the user's packet in a frame of ours; `None` if it has no such packet.
pub(super) fn user_packet(frame: &[u8]) -> Option<&[u8]> {
    let outer = frame.get(ETHERNET_LEN..)?;
    let packet = Packet::parse(outer, outer.len()).ok()?;
    let message = outer.get(packet.header_len + UDP_LEN..packet.len)?;
    let header = gtpu::Header::parse(message, message.len()).ok()?;
    let is_packet = header.message == gtpu::message::G_PDU;
    message.get(header.len..header.len + header.payload_len).filter(|_| is_packet)
}

impl Tunnel {
    fn ip_len(self) -> usize {
        if self.peer.address.is_ipv4() { IPV4_LEN } else { IPV6_LEN }
    }
}

impl Encapsulation for Tunnel {
    #[inline(always)]
    fn headers_len(self) -> usize {
        let gtp = if self.qfi.is_some() { gtpu::CONTAINER_LEN } else { gtpu::FIXED_LEN };
        ETHERNET_LEN + self.ip_len() + UDP_LEN + gtp
    }

    #[inline(always)]
    fn write_headers(self, own: &Interface, room: &mut [u8], len: usize) {
        let (ethernet, rest) = room.split_at_mut(ETHERNET_LEN);
        let kind = match self.peer.address {
            IpAddr::V4(_) => ethertype::IPV4,
            IpAddr::V6(_) => ethertype::IPV6,
        };
        Ethernet { dst: self.dst, src: own.mac, ethertype: kind }
            .write(ethernet.try_into().expect("14 bytes"));
        let (ip, rest) = rest.split_at_mut(self.ip_len());
        let (udp, gtp) = rest.split_at_mut(UDP_LEN);
        let container = self.qfi.map(|qfi| Container {
            direction: Direction::Downlink,
            qfi,
            reflective: false,
            paging_policy: None,
        });
        let gtp_len = gtpu::write_gpdu(gtp, self.peer.teid, container, len);
        let payload_len = gtp_len + len;
        Udp { src_port: self.flow.src_port, dst_port: gtpu::PORT, payload_len }
            .write(udp.try_into().expect("8 bytes"));
        let payload_len = (UDP_LEN + payload_len) as u16;
        let (protocol, tos, ttl) = (protocol::UDP, self.peer.tos | self.flow.tos, TTL);
        match (self.peer.address, own.v4, own.v6) {
            (IpAddr::V4(dst), Some(src), _) => {
                Header { src, dst, protocol, tos, ttl, payload_len }
                    .write(ip.try_into().expect("20 bytes"));
            }
            (IpAddr::V6(dst), _, Some(src)) => {
                Header { src, dst, protocol, tos, ttl, payload_len }
                    .write(ip.try_into().expect("40 bytes"));
            }
            _ => unreachable!("sessions with a tunnel of an IP version that N3 lacks are refused"),
        }
    }

    /// UDP needs a checksum over IPv6 (RFC 8200, section 8.1).
    #[inline(always)]
    fn has_checksum(self) -> bool {
        self.peer.address.is_ipv6()
    }

    #[cold]
    fn write_checksum(self, own: &Interface, head: &mut [u8], copied: usize, rest: &[u8]) {
        let udp = head.len() - copied - self.headers_len() + ETHERNET_LEN + self.ip_len();
        let Some(src) = own.address_for(self.peer.address) else { return };
        let pieces = [&head[udp..], rest];
        let sum = ip::upper_checksum(src, self.peer.address, protocol::UDP, &pieces);
        // Zero would mean that there is no checksum (RFC 768).
        let sum = if sum == 0 { 0xffff } else { sum };
        head[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    }
}
