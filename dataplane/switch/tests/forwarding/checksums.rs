//! No frame leaves with a checksum worse than it came with: right, or partial and said to be so, or
//! wrong. The input bytes determine packets, how far their checksums are, and what is wrong with
//! them.

use std::num::NonZeroU16;

use dray_wire::ip::{Header, IPV4_LEN, IPV6_LEN, protocol, upper_checksum};
use dray_wire::offload::{Offload, Offloads, start};

use crate::bench::Bench;

const ETHERNET_LEN: usize = 14;

/// A packet of TCP or UDP, and what is left to do on it.
struct Packet {
    is_v6: bool,
    is_tcp: bool,
    tags: usize,
    bytes: Vec<u8>,
    offload: Offload,
}

impl Packet {
    /// Returns the packet that the first of `bytes` describe, and the rest of these.
    fn read(bytes: &[u8]) -> (Self, &[u8]) {
        let (choices, rest) = bytes.split_at(bytes.len().min(6));
        let choice = |at: usize| choices.get(at).copied().unwrap_or_default();
        let (is_v6, is_tcp) = (choice(0) & 1 != 0, choice(0) & 2 != 0);
        let tags = usize::from(choice(0) >> 2 & 3);
        let payload = usize::from(choice(1)) * 37 + usize::from(choice(2) & 3);
        // With so many segments, a receiver has no room for all.
        let size = NonZeroU16::new(1 + u16::from(choice(3)) * 6 + payload as u16 / 200).unwrap();
        let offload = match choice(4) % 4 {
            0 => Offload::None,
            1 => Offload::Checksum,
            _ if !is_tcp => Offload::Udp(size),
            2 => Offload::Tcp(size),
            _ => Offload::TcpEcn(size),
        };
        let mut packet = Self { is_v6, is_tcp, tags, bytes: Vec::new(), offload };
        packet.build(payload);
        if offload != Offload::None {
            start(&mut packet.bytes).expect("TCP or UDP");
        }
        if choice(5) & 0x80 != 0 {
            // Behind the lengths, by which headers are found.
            let at = packet.upper() + if is_tcp { 13 } else { 6 } + usize::from(choice(5) & 0x7f);
            if let Some(byte) = packet.bytes.get_mut(at) {
                *byte ^= 1 << (choice(2) >> 5);
            }
        }
        (packet, rest)
    }

    fn build(&mut self, payload: usize) {
        let Self { is_v6, is_tcp, tags, bytes, .. } = self;
        *bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        (0..*tags).for_each(|_| bytes.extend([0x81, 0, 0, 7]));
        bytes.extend(if *is_v6 { [0x86, 0xdd] } else { [8, 0] });
        let mut upper = match is_tcp {
            true => vec![0, 80, 0, 81, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0x50, 0x98, 1, 0, 0, 0, 0, 0],
            false => vec![0, 80, 0, 81, 0, 0, 0, 0],
        };
        upper.extend((0..payload).map(|at| (at / 3 + 1) as u8));
        let payload_len = upper.len() as u16;
        let (tos, ttl) = (2, 64);
        let protocol = if *is_tcp { protocol::TCP } else { protocol::UDP };
        if !*is_tcp {
            upper[4..6].copy_from_slice(&payload_len.to_be_bytes());
        }
        let sum = if *is_v6 {
            let (src, dst) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
            let mut head = [0; IPV6_LEN];
            Header::<std::net::Ipv6Addr> { src, dst, protocol, tos, ttl, payload_len }
                .write(&mut head);
            bytes.extend(head);
            upper_checksum(src.into(), dst.into(), protocol, &[&upper])
        } else {
            let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
            let mut head = [0; IPV4_LEN];
            Header::<std::net::Ipv4Addr> { src, dst, protocol, tos, ttl, payload_len }
                .write(&mut head);
            bytes.extend(head);
            upper_checksum(src.into(), dst.into(), protocol, &[&upper])
        };
        let at = if *is_tcp { 16 } else { 6 };
        let sum = if sum == 0 { 0xffff } else { sum };
        upper[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(upper);
    }

    /// Returns the start of the upper layer.
    fn upper(&self) -> usize {
        ETHERNET_LEN + 4 * self.tags + if self.is_v6 { IPV6_LEN } else { IPV4_LEN }
    }

    /// Returns the sum of a frame with the headers of this packet from the addresses on: 0 if its
    /// checksum is right. Without the upper layer, the sum that a partial checksum holds.
    fn sum(&self, frame: &[u8], with_upper: bool) -> Option<u16> {
        let ip = ETHERNET_LEN + 4 * self.tags;
        let upper = self.upper();
        let number = if self.is_tcp { protocol::TCP } else { protocol::UDP };
        let len = frame.len().checked_sub(upper)?;
        let addresses = if self.is_v6 { ip + 8..ip + 40 } else { ip + 12..ip + 20 };
        let pseudo = [&frame[addresses], &(len as u32).to_be_bytes(), &[0, number]].concat();
        let bytes = if with_upper { &frame[upper..] } else { &[] };
        Some(dray_wire::checksum::internet(&[&pseudo[..], bytes].concat()))
    }

    /// Returns true if a frame with the headers of this packet has a right checksum, or with an
    /// offload one that becomes right.
    fn is_right(&self, frame: &[u8], offload: Offload) -> bool {
        let at = self.upper() + if self.is_tcp { 16 } else { 6 };
        if offload == Offload::None {
            return self.sum(frame, true) == Some(0);
        }
        let field = frame.get(at..at + 2).map(|two| !u16::from_be_bytes([two[0], two[1]]));
        field.is_some() && field == self.sum(frame, false)
    }
}

/// Runs a switch on the packets that `bytes` describe, between ports that take over all, some or no
/// offloads.
pub(crate) fn run(bytes: &[u8]) {
    let taken = [
        Offloads::ALL,
        Offloads::ALL,
        Offloads { ecn: false, ..Offloads::TCP },
        Offloads { checksum: true, ..Offloads::NONE },
        Offloads::NONE,
    ];
    let names = ["a", "b", "c", "d", "e"].map(|name| format!("name = '{name}'"));
    let ports: Vec<_> = names
        .iter()
        .zip(taken)
        .map(|(name, offloads)| (name.as_str(), offloads, dray_port::FRAME_LIMIT - 4, 256))
        .collect();
    let mut bench = Bench::new("mode = 'learning'", &ports);
    let mut rest = bytes;
    for _ in 0..100 {
        if rest.is_empty() {
            break;
        }
        let (packet, more) = Packet::read(rest);
        rest = more;
        let is_right = packet.is_right(&packet.bytes, packet.offload);
        if packet.offload == Offload::None && packet.bytes.len() > dray_port::FRAME_LIMIT {
            continue;
        }
        bench.send(packet.bytes.clone(), packet.offload);
        for (port, offloads) in taken.iter().enumerate().skip(1) {
            for (frame, offload) in bench.seen(port) {
                assert!(offloads.checksum || offload == Offload::None, "port {port}: {offload:?}");
                if packet.offload == Offload::None {
                    assert_eq!((&frame, offload), (&packet.bytes, Offload::None), "port {port}");
                }
                let leaves_right = packet.is_right(&frame, offload);
                assert!(
                    leaves_right || !is_right,
                    "port {port}: {offload:?} of {:?}",
                    packet.offload
                );
            }
        }
    }
}
