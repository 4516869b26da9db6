//! Checks of the packets that come back to a load: every field of every packet.

use dray_wire::MacAddr;
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet};
use dray_wire::gtpu;
use dray_wire::gtpu::Direction::{self, Downlink, Uplink};
use dray_wire::ip::{self, Packet, protocol};
use dray_wire::udp::UDP_LEN;

use super::outcome::Outcome;
use super::packet::{LABEL, Label, PORTS, TTL, filling, server, user};
use crate::config::{ConfigError, Generator, InterfaceConfig, UpfConfig};

/// Verdict on a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    /// A packet that is correct in every field.
    Right(Label),
    /// A packet of the load with a wrong field, or out of order.
    Wrong,
    /// A frame that does not belong to the load.
    Foreign,
}

/// Checks the packets of one direction.
pub(super) struct Checker {
    direction: Direction,
    generator: Generator,
    /// Configuration of the interface that they come from.
    upf: InterfaceConfig,
    /// Ethernet address that they must be sent to.
    mac: MacAddr,
    /// Length of the frames on N6.
    len: usize,
    filling: Vec<u8>,
    /// Next expected packet number, by session.
    next: Vec<u32>,
}

impl Checker {
    pub(super) fn new(
        config: &UpfConfig,
        generator: &Generator,
        direction: Direction,
        len: usize,
        mac: MacAddr,
    ) -> Result<Self, ConfigError> {
        let upf = if direction == Uplink { &config.n6 } else { &config.n3 };
        Ok(Self {
            direction,
            generator: generator.clone(),
            upf: upf.clone(),
            mac,
            len,
            filling: filling(len),
            next: vec![0; generator.count as usize],
        })
    }

    /// Returns the direction of the packets.
    pub(super) fn direction(&self) -> Direction {
        self.direction
    }

    /// Checks `frame` and counts the result.
    pub(super) fn check(&mut self, frame: &[u8], outcome: &mut Outcome) -> Checked {
        self.try_check(frame, outcome).unwrap_or(Checked::Foreign)
    }

    fn try_check(&mut self, frame: &[u8], outcome: &mut Outcome) -> Option<Checked> {
        let ethernet = Ethernet::parse(frame)?;
        let outer = Packet::parse(&frame[ETHERNET_LEN..], frame.len() - ETHERNET_LEN).ok()?;
        let behind = &frame[ETHERNET_LEN..ETHERNET_LEN + outer.len];
        let (tunnel, bytes) = match self.direction {
            Uplink => (None, behind),
            Downlink => {
                let message = &behind[outer.header_len.min(outer.len)..];
                if outer.protocol != protocol::UDP || message.len() < UDP_LEN {
                    return None;
                }
                let message = &message[UDP_LEN..];
                let header = gtpu::Header::parse(message, message.len()).ok()?;
                (Some(header), &message[header.len..header.len + header.payload_len])
            }
        };
        let packet = Packet::parse(bytes, bytes.len()).ok()?;
        let payload = bytes.get(packet.header_len + UDP_LEN..packet.len);
        let label = payload.and_then(Label::read)?;
        if label.direction != self.direction || label.session >= self.generator.count {
            return None;
        }
        let (_, ue, peer) = self.generator.ends(label.session);
        let (user, server) = (ip::number(user(ue)), ip::number(server(ue)));
        let ends = match self.direction {
            Uplink => (user, server, Some((PORTS.1, PORTS.0))),
            Downlink => (server, user, Some(PORTS)),
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
            qfi != self.generator.qfi.map(|qfi| (Downlink, qfi))
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
            return Some(Checked::Right(label));
        }
        Some(Checked::Wrong)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use dray_wire::ethernet::ethertype;
    use dray_wire::gtpu::Container;

    use super::*;
    use crate::packet::udp_packet;

    const CONFIG: &str = r#"
n3 = { mac = "02:00:00:00:03:01", addresses = ["10.0.3.1"] }
n6 = { mac = "02:00:00:00:06:01", addresses = ["10.0.6.1"] }
generate = { count = 2, gnbs = ["10.0.3.2"], ue = "10.45.0.1", gnb_teid = 1000, qfi = 9 }
"#;
    const LEN: usize = 200;
    const GNB: MacAddr = MacAddr([2, 0, 0, 0, 3, 2]);

    /// A packet to the second user, as it reaches the gNB.
    struct Sent {
        to: MacAddr,
        own: &'static str,
        teid: u32,
        qfi: Option<u8>,
        server: &'static str,
        port: u16,
        label: Label,
        spoilt: Option<usize>,
        len: usize,
        hops: usize,
    }

    const RIGHT: Sent = Sent {
        to: GNB,
        own: "10.0.3.1",
        teid: 1001,
        qfi: Some(9),
        server: "203.0.113.9",
        port: PORTS.1,
        label: Label { direction: Downlink, time: 1, session: 1, number: 5 },
        spoilt: None,
        len: LEN,
        hops: 1,
    };

    impl Sent {
        fn frame(&self) -> Vec<u8> {
            let address = |text: &str| text.parse::<IpAddr>().unwrap();
            let mut payload = filling(self.len - 42);
            self.label.write(&mut payload);
            self.spoilt.into_iter().for_each(|at| payload[at] ^= 1);
            let ends = ((address(self.server), PORTS.0), (address("10.45.0.2"), self.port));
            let mut packet = udp_packet(ends.0, ends.1, &payload).unwrap();
            (0..self.hops).for_each(|_| ip::decrement_ttl(&mut packet, ip::Version::V4));
            let container = self.qfi.map(|qfi| Container {
                direction: Downlink,
                qfi,
                reflective: false,
                paging_policy: None,
            });
            let mut message = vec![0; gtpu::CONTAINER_LEN];
            let len = gtpu::write_gpdu(&mut message, self.teid, container, packet.len());
            message.truncate(len);
            message.extend(packet);
            let port = gtpu::PORT;
            let outer =
                udp_packet((address(self.own), port), (address("10.0.3.2"), port), &message);
            let mut header = [0; ETHERNET_LEN];
            let src = MacAddr([2, 0, 0, 0, 3, 1]);
            Ethernet { dst: self.to, src, ethertype: ethertype::IPV4 }.write(&mut header);
            [&header[..], &outer.unwrap()].concat()
        }
    }

    /// Returns the outcome of `sent` after a correct packet; `None` if it does not belong to the
    /// load.
    fn said(sent: &Sent) -> Option<Outcome> {
        let config = UpfConfig::from_toml(CONFIG).unwrap();
        let generator = config.generate.clone().unwrap();
        let mut checker = Checker::new(&config, &generator, Downlink, LEN, GNB).unwrap();
        let before = Label { number: 4, ..RIGHT.label };
        let mut outcome = Outcome::default();
        let first = checker.check(&Sent { label: before, ..RIGHT }.frame(), &mut outcome);
        assert_eq!(first, Checked::Right(before));
        assert_eq!(outcome, Outcome { received: 1, ..Outcome::default() });
        outcome = Outcome::default();
        let checked = checker.check(&sent.frame(), &mut outcome);
        (checked != Checked::Foreign).then_some(outcome)
    }

    #[test]
    fn checker_counts_each_wrong_field() {
        let none = Outcome::default();
        assert_eq!(said(&RIGHT), Some(Outcome { received: 1, ..none }));
        let address = Some(Outcome { wrong_address: 1, ..none });
        assert_eq!(said(&Sent { to: MacAddr([2, 0, 0, 0, 3, 9]), ..RIGHT }), address);
        assert_eq!(said(&Sent { own: "10.0.3.9", ..RIGHT }), address);
        assert_eq!(said(&Sent { server: "203.0.113.8", ..RIGHT }), address);
        assert_eq!(said(&Sent { port: 1, ..RIGHT }), address);
        let of_other = Label { session: 0, ..RIGHT.label };
        assert_eq!(said(&Sent { label: of_other, ..RIGHT }), address, "the other user's");
        assert_eq!(said(&Sent { teid: 1000, ..RIGHT }), Some(Outcome { wrong_teid: 1, ..none }));
        let qfi = Some(Outcome { wrong_qfi: 1, ..none });
        assert_eq!(said(&Sent { qfi: Some(8), ..RIGHT }), qfi);
        assert_eq!(said(&Sent { qfi: None, ..RIGHT }), qfi);
        let packet = Some(Outcome { wrong_packet: 1, ..none });
        assert_eq!(said(&Sent { hops: 0, ..RIGHT }), packet);
        assert_eq!(said(&Sent { hops: 2, ..RIGHT }), packet);
        assert_eq!(said(&Sent { len: LEN - 1, ..RIGHT }), packet);
        assert_eq!(said(&Sent { spoilt: Some(LEN - 43), ..RIGHT }), packet, "the last byte");
        let again = Label { number: 4, ..RIGHT.label };
        let reordered = Some(Outcome { reordered: 1, ..none });
        assert_eq!(said(&Sent { label: again, ..RIGHT }), reordered);
        assert_eq!(said(&Sent { spoilt: Some(0), ..RIGHT }), None, "no label");
        assert_eq!(said(&Sent { label: Label { session: 2, ..RIGHT.label }, ..RIGHT }), None);
    }
}
