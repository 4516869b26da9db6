//! A million malformed packets from both sides: nothing panics, each is counted once with a reason,
//! and valid packets among them pass.

use dray_upf::{Counters, DropReason};
use dray_wire::gtpu;
use etherparse::PacketBuilder;

use crate::ends::{self, Ends, from_dn, from_gnb, message_from_gnb, plain_session, to_dn, udp};

const PACKETS: usize = 1_000_000;
const BATCH: usize = 500;

/// A reproducible stream of numbers (xorshift64*).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }

    fn byte(&mut self) -> u8 {
        // Bytes with a meaning, and any others.
        const EDGES: [u8; 16] =
            [0, 1, 2, 4, 6, 17, 20, 0x30, 0x34, 0x40, 0x45, 0x60, 0x7f, 0x80, 0x85, 0xff];
        let any = self.below(256);
        if any.is_multiple_of(2) { EDGES[any / 2 % EDGES.len()] } else { any as u8 }
    }

    /// Returns a frame with a few bytes changed, truncated, or extended.
    fn mutate(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut frame = frame.to_vec();
        // Only headers matter; a user's headers come after some 70 bytes of outer ones.
        let headers = frame.len().min(100);
        for _ in 0..self.below(4) {
            let at = self.below(headers);
            frame[at] = self.byte();
        }
        match self.below(8) {
            0 => frame.truncate(self.below(frame.len() + 1)),
            1 => frame.extend((0..self.below(60)).map(|at| at as u8)),
            2 => {
                let (from, to) = (self.below(headers), self.below(headers));
                frame.copy_within(from..headers.min(from + 8), to.min(headers - 8));
            }
            _ => {}
        }
        frame
    }
}

/// Returns valid packets of every kind that N3 accepts.
fn from_n3() -> Vec<Vec<u8>> {
    let v4 = udp("10.45.0.1", "203.0.113.9", (5000, 80), b"payload");
    let v6 = udp("2001:db8:1::77", "2001:db8:ff::1", (1, 2), b"six");
    let mut outer_v6 = [0; 16];
    let len = gtpu::write_gpdu(&mut outer_v6, 1, None, v6.len());
    let message = [&outer_v6[..len], &v6].concat();
    let chain = [
        &[0x37, 255, 0, 12 + v4.len() as u8, 0, 0, 0, 1, 1, 2, 3, 0x40, 1, 8, 104, 0x85][..],
        &[1, 0x10, 9, 0],
        &v4,
    ]
    .concat();
    vec![
        from_gnb(1, None, &v4),
        from_gnb(1, Some(9), &v6),
        message_from_gnb(&chain),
        message_from_gnb(&gtpu::echo_request(9)),
        message_from_gnb(&[0x30, 254, 0, 0, 0, 0, 0, 1]),
        ends::frame(
            ends::GNB_MAC,
            ends::N3_MAC,
            &udp("fd00:3::2", "fd00:3::1", (2152, 2152), &message),
        ),
        arp_request(ends::GNB_MAC.0, [10, 0, 3, 2], [10, 0, 3, 1]),
    ]
}

/// Returns valid packets of every kind that N6 accepts.
fn from_n6() -> Vec<Vec<u8>> {
    let mut ping = Vec::new();
    PacketBuilder::ipv4([10, 0, 6, 2], [10, 0, 6, 1], 64)
        .icmpv4_echo_request(1, 2)
        .write(&mut ping, b"ping")
        .unwrap();
    vec![
        from_dn(&udp("203.0.113.9", "10.45.0.1", (80, 5000), b"payload")),
        from_dn(&udp("2001:db8:ff::1", "2001:db8:1::77", (2, 1), b"six")),
        from_dn(&ping),
        arp_request(ends::DN_MAC.0, [10, 0, 6, 2], [10, 0, 6, 1]),
    ]
}

fn arp_request(mac: [u8; 6], from: [u8; 4], whom: [u8; 4]) -> Vec<u8> {
    let arp = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &mac, &from, &[0; 6], &whom].concat();
    [&[0xff; 6][..], &mac, &[8, 6], &arp].concat()
}

fn accounted(counters: &Counters) -> u64 {
    counters.tx_packets + counters.control + counters.drops.total()
}

/// Sends mutations of `seeds` to one side, and a valid packet after each batch.
fn storm(ends: &mut Ends, up: bool, seeds: &[Vec<u8>], numbers: &mut Numbers) {
    let right = seeds[0].clone();
    for _ in 0..PACKETS / 2 / BATCH {
        let mut frames: Vec<_> = (0..BATCH)
            .map(|_| {
                let seed = numbers.below(seeds.len());
                numbers.mutate(&seeds[seed])
            })
            .collect();
        frames.push(right.clone());
        let counted = |ends: &Ends| if up { ends.upf.uplink() } else { ends.upf.downlink() };
        let before = counted(ends);
        let out = if up { ends.up(frames) } else { ends.down(frames) };
        let after = counted(ends);
        assert_eq!(after.rx_packets - before.rx_packets, BATCH as u64 + 1);
        assert_eq!(accounted(&after) - accounted(&before), BATCH as u64 + 1);
        let forwarded = (after.tx_packets - before.tx_packets) as usize;
        if up {
            let users = udp("10.45.0.1", "203.0.113.9", (5000, 80), b"payload");
            assert_eq!(out.last(), Some(&to_dn(&users)));
        } else {
            assert!(out.len() >= forwarded && forwarded >= 1);
        }
        // Discard replies to the sender.
        ends.n3.received();
        ends.n6.received();
    }
}

#[test]
fn million_invalid_packets_hit_every_drop_reason() {
    let mut ends = Ends::new(&plain_session(1));
    let mut numbers = Numbers(0x6472_6179);
    storm(&mut ends, true, &from_n3(), &mut numbers);
    storm(&mut ends, false, &from_n6(), &mut numbers);

    // The packets triggered every drop reason that a packet's bytes can cause.
    let (uplink, downlink) = (ends.upf.uplink(), ends.upf.downlink());
    for reason in [
        DropReason::OtherHost,
        DropReason::NotIp,
        DropReason::OuterIp,
        DropReason::OuterFragment,
        DropReason::NotForUs,
        DropReason::OuterUdp,
        DropReason::Gtpu,
        DropReason::GtpuExtension,
        DropReason::GtpuUnknownExtension,
        DropReason::UnknownTeid,
        DropReason::InnerIp,
        DropReason::Spoofed,
    ] {
        assert_ne!(uplink.drops.get(reason), 0, "{reason:?}: {uplink:?}");
    }
    for reason in [
        DropReason::OtherHost,
        DropReason::NotIp,
        DropReason::NotForUs,
        DropReason::InnerIp,
        DropReason::NoSession,
        DropReason::TtlExpired,
    ] {
        assert_ne!(downlink.drops.get(reason), 0, "{reason:?}: {downlink:?}");
    }
}
