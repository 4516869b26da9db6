//! The packets of a load: UDP between each user and one server, with a label in the payload that
//! identifies the packet.

use std::net::IpAddr;

use dray_port::clock;
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet, ethertype};
use dray_wire::gtpu::Direction::{self, Downlink, Uplink};
use dray_wire::gtpu::{self, Container};
use dray_wire::ip::{IPV4_LEN, IPV6_LEN};
use dray_wire::udp::UDP_LEN;
use dray_wire::{FRAME_MAX, MacAddr, ip};

use crate::config::{ConfigError, Generator, InterfaceConfig, UpfConfig};
use crate::packet::{self, udp_packet};

/// Maximum number of packets sent at a time.
pub(super) const BURST: usize = 32;

/// Ports of the server and of the users.
pub(super) const PORTS: (u16, u16) = (7000, 7001);
/// First source port that gNBs use.
const FIRST_PORT: u16 = 49_152;
/// Time to live of sent packets.
pub(super) const TTL: u8 = packet::TTL;
/// Length of the label at the start of the payload: "DUPF" plus the direction, time, session,
/// packet number.
pub(super) const LABEL: usize = 16;
const MAGIC: u32 = 0x4455_5046;
/// A label's time is the number of units of 32 ticks since the start of the machine. It starts
/// again from zero about once a minute.
const UNIT: u32 = 5;

/// Minimum frame length on N6, in bytes.
pub const LEN_MIN: usize = ETHERNET_LEN + IPV6_LEN + UDP_LEN + LABEL;
/// Maximum frame length on N6, in bytes: with a tunnel's headers it still fits the ports' limit.
pub const LEN_MAX: usize = FRAME_MAX - IPV6_LEN - UDP_LEN - gtpu::CONTAINER_LEN;

/// Identifies a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) direction: Direction,
    pub(super) time: u32,
    pub(super) session: u32,
    pub(super) number: u32,
}

impl Label {
    pub(super) fn read(payload: &[u8]) -> Option<Self> {
        let label: &[u8; LABEL] = payload.first_chunk()?;
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|i| label[at + i]));
        let direction = match word(0).checked_sub(MAGIC)? {
            0 => Uplink,
            1 => Downlink,
            _ => return None,
        };
        Some(Self { direction, time: word(4), session: word(8), number: word(12) })
    }

    /// Returns the time of a label that is written at the tick `now`.
    pub(super) fn time(now: u64) -> u32 {
        (now >> UNIT) as u32
    }

    /// Returns the nanoseconds from the label's time to the tick `now`.
    pub(super) fn age_ns(self, now: u64) -> u64 {
        clock::nanoseconds(u64::from(Self::time(now).wrapping_sub(self.time)) << UNIT)
    }

    pub(super) fn write(self, payload: &mut [u8]) {
        for (at, word) in [MAGIC + self.direction as u32, self.time, self.session, self.number]
            .into_iter()
            .enumerate()
        {
            payload[4 * at..4 * at + 4].copy_from_slice(&word.to_be_bytes());
        }
    }
}

/// Returns the payload bytes that follow every label. They are the same in each packet, and no part
/// of them looks like another.
pub(super) fn filling(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect()
}

/// Returns the server's address, of the users' version: reserved for documentation (RFC 5737, RFC
/// 3849).
pub(super) fn server(ue: IpAddr) -> IpAddr {
    match ue {
        IpAddr::V4(_) => IpAddr::from([203, 0, 113, 9]),
        IpAddr::V6(_) => IpAddr::from([0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 9]),
    }
}

/// Returns a user's address; for an IPv6 prefix, its first host.
pub(super) fn user(ue: IpAddr) -> IpAddr {
    match ue {
        IpAddr::V4(_) => ue,
        IpAddr::V6(prefix) => ip::address(u128::from(prefix) | 1),
    }
}

/// Builds the packets of one direction for one queue, session after session. Each session belongs
/// to one queue (every n-th session for n queues), so its packets stay in order.
pub(super) struct Packets {
    direction: Direction,
    generator: Generator,
    /// First session of the queue, and the distance to its next one.
    first: u32,
    step: u32,
    upf: InterfaceConfig,
    mac: MacAddr,
    /// Total number of packets sent.
    count: u64,
    /// Number of packets built but not sent yet.
    prepared: usize,
    frames: Vec<Vec<u8>>,
    payload: Vec<u8>,
}

impl Packets {
    pub(super) fn new(
        config: &UpfConfig,
        generator: &Generator,
        direction: Direction,
        (queue, queues): (usize, usize),
        len: usize,
        mac: MacAddr,
    ) -> Result<Self, ConfigError> {
        let upf = if direction == Uplink { &config.n3 } else { &config.n6 };
        for gnb in &generator.gnbs {
            if !config.n3.addresses.iter().any(|own| own.is_ipv4() == gnb.is_ipv4()) {
                let what = format!("{gnb}: N3 has no address of this IP version");
                return Err(ConfigError::new(what).in_field("generate.gnbs"));
            }
        }
        let headers = match generator.ends(0).1 {
            IpAddr::V4(_) => ETHERNET_LEN + IPV4_LEN + UDP_LEN,
            IpAddr::V6(_) => ETHERNET_LEN + IPV6_LEN + UDP_LEN,
        };
        Ok(Self {
            direction,
            generator: generator.clone(),
            first: queue as u32,
            step: queues as u32,
            upf: upf.clone(),
            mac,
            count: 0,
            prepared: 0,
            frames: vec![Vec::new(); BURST],
            payload: filling(len - headers),
        })
    }

    /// Builds the next `count` packets, except those already built.
    pub(super) fn prepare(&mut self, count: usize) {
        let time = Label::time(clock::ticks());
        for index in self.prepared..count {
            let number = self.count + index as u64;
            let sessions = self.sessions();
            let label = Label {
                direction: self.direction,
                time,
                session: self.first + self.step * (number % sessions) as u32,
                number: (number / sessions) as u32,
            };
            let frame = self.frame(label);
            self.frames[index] = frame;
        }
        self.prepared = self.prepared.max(count);
    }

    /// Returns the number of sessions of this queue.
    pub(super) fn sessions(&self) -> u64 {
        u64::from(self.generator.count.saturating_sub(self.first).div_ceil(self.step))
    }

    /// Returns the next packets.
    pub(super) fn ready(&self, count: usize) -> &[Vec<u8>] {
        &self.frames[..count]
    }

    /// Records that the first `count` of the built packets were sent.
    pub(super) fn sent(&mut self, count: usize) {
        self.frames[..self.prepared].rotate_left(count);
        self.prepared -= count;
        self.count += count as u64;
    }

    fn frame(&mut self, label: Label) -> Vec<u8> {
        let (teid, ue, tunnel) = self.generator.ends(label.session);
        let (user, server) = (user(ue), server(ue));
        label.write(&mut self.payload);
        let packet = match self.direction {
            Uplink => udp_packet((user, PORTS.1), (server, PORTS.0), &self.payload),
            Downlink => udp_packet((server, PORTS.0), (user, PORTS.1), &self.payload),
        };
        let packet = packet.expect("user and server have the same IP version");
        let packet = match self.direction {
            Downlink => packet,
            Uplink => {
                let container = self.generator.qfi.map(|qfi| Container {
                    direction: Uplink,
                    qfi,
                    reflective: false,
                    paging_policy: None,
                });
                let mut message = vec![0; gtpu::CONTAINER_LEN];
                let len = gtpu::write_gpdu(&mut message, teid, container, packet.len());
                message.truncate(len);
                message.extend(packet);
                let own =
                    self.upf.addresses.iter().find(|own| own.is_ipv4() == tunnel.gnb.is_ipv4());
                let own = *own.expect("checked by `new`");
                // Any source port is allowed (TS 29.281, 4.4.2.3). Like a gNB, use one per session,
                // so that receivers can distribute packets by a hash.
                let src_port =
                    FIRST_PORT + (label.session % u32::from(u16::MAX - FIRST_PORT)) as u16;
                udp_packet((tunnel.gnb, src_port), (own, gtpu::PORT), &message)
                    .expect("both ends have the same IP version")
            }
        };
        let kind = if packet[0] >> 4 == 4 { ethertype::IPV4 } else { ethertype::IPV6 };
        let mut header = [0; ETHERNET_LEN];
        Ethernet { dst: self.upf.mac, src: self.mac, ethertype: kind }.write(&mut header);
        [&header[..], &packet].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_keeps_its_fields_and_age() {
        let start = u64::from(u32::MAX) << UNIT;
        for direction in Direction::ALL {
            let label = Label { direction, time: Label::time(start), session: 7, number: 9 };
            let mut payload = filling(40);
            label.write(&mut payload);
            assert_eq!(Label::read(&payload), Some(label));
            // The time starts again from zero in between.
            let later = start + clock::ticks_per_second() / 100;
            assert!(label.age_ns(later).abs_diff(10_000_000) < 1000, "{}", label.age_ns(later));
        }
        assert_eq!(Label::read(&filling(40)), None);
    }
}
