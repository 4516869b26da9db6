//! What comes back to a load: every field of every packet.

use dray_wire::MacAddr;
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet};
use dray_wire::gtpu::{self, Direction};
use dray_wire::ip::{self, Packet, protocol};
use dray_wire::udp::UDP_LEN;

use super::Outcome;
use super::packet::{LABEL, Label, PORTS, TTL, filling, server, user};
use crate::config::{ConfigError, Generator, InterfaceConfig, UpfConfig};
use crate::usage::Way;

/// Checks the packets of one way.
pub(super) struct Checker {
    way: Way,
    generator: Generator,
    /// The interface that they come from.
    upf: InterfaceConfig,
    /// To whom they come.
    mac: MacAddr,
    /// Length of the frames on N6.
    len: usize,
    filling: Vec<u8>,
    /// By session, the number that is expected next.
    next: Vec<u32>,
}

impl Checker {
    pub(super) fn new(
        config: &UpfConfig,
        generator: &Generator,
        way: Way,
        len: usize,
        mac: MacAddr,
    ) -> Result<Self, ConfigError> {
        let upf = if way == Way::Uplink { &config.n6 } else { &config.n3 };
        Ok(Self {
            way,
            generator: generator.clone(),
            upf: upf.clone(),
            mac,
            len,
            filling: filling(len),
            next: vec![0; generator.count as usize],
        })
    }

    /// Whether `frame` is one of the load's, which is counted then.
    pub(super) fn check(&mut self, frame: &[u8], outcome: &mut Outcome) -> bool {
        let Some(ethernet) = Ethernet::parse(frame) else { return false };
        let Ok(outer) = Packet::parse(&frame[ETHERNET_LEN..], frame.len() - ETHERNET_LEN) else {
            return false;
        };
        let behind = &frame[ETHERNET_LEN..ETHERNET_LEN + outer.len];
        let (tunnel, bytes) = match self.way {
            Way::Uplink => (None, behind),
            Way::Downlink => {
                let message = &behind[outer.header_len.min(outer.len)..];
                if outer.protocol != protocol::UDP || message.len() < UDP_LEN {
                    return false;
                }
                let message = &message[UDP_LEN..];
                let Ok(header) = gtpu::Header::parse(message, message.len()) else { return false };
                (Some(header), &message[header.len..header.len + header.payload_len])
            }
        };
        let Ok(packet) = Packet::parse(bytes, bytes.len()) else { return false };
        let payload = bytes.get(packet.header_len + UDP_LEN..packet.len);
        let Some(label) = payload.and_then(Label::read) else { return false };
        if label.way != self.way || label.session >= self.generator.count {
            return false;
        }
        let (_, ue, peer) = self.generator.ends(label.session);
        let (user, server) = (ip::number(user(ue)), ip::number(server(ue)));
        let ends = match self.way {
            Way::Uplink => (user, server, Some((PORTS.1, PORTS.0))),
            Way::Downlink => (server, user, Some(PORTS)),
        };
        let outer_right = tunnel.is_none() || {
            let own = |address: &&std::net::IpAddr| ip::number(**address) == outer.src;
            self.upf.addresses.iter().any(|address| own(&address))
                && outer.dst == ip::number(peer.gnb)
                && outer.ports.is_some_and(|(_, port)| port == gtpu::PORT)
        };
        let macs_right = ethernet.dst == self.mac && ethernet.src == self.upf.mac;
        let next = &mut self.next[label.session as usize];
        if (packet.src, packet.dst, packet.ports) != ends || !outer_right || !macs_right {
            outcome.wrong_address += 1;
        } else if tunnel.is_some_and(|header| header.teid != peer.teid) {
            outcome.wrong_teid += 1;
        } else if tunnel.is_some_and(|header| {
            let qfi = header.container.map(|container| (container.direction, container.qfi));
            qfi != self.generator.qfi.map(|qfi| (Direction::Downlink, qfi))
        }) {
            outcome.wrong_qfi += 1;
        } else if packet.len + ETHERNET_LEN != self.len
            || packet.ttl != TTL - 1
            || payload.is_none_or(|payload| payload[LABEL..] != self.filling[LABEL..payload.len()])
        {
            outcome.wrong_packet += 1;
        } else if label.number < *next {
            outcome.reordered += 1;
        } else {
            *next = label.number + 1;
            outcome.received += 1;
        }
        true
    }
}
