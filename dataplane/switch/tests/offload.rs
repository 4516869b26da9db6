//! Frames with offloads: whole to ports that take them over, finished for others.

use std::num::NonZeroU16;

use dray_switch::DropReason;
use dray_wire::ip::upper_checksum;
use dray_wire::offload::{Layout, Offload, Offloads};

use crate::bench::Bench;

/// Headers of a TCP packet over IPv4 without options, with tags in front.
fn tcp(tags: &[u16], payload: usize) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    for tag in tags {
        bytes.extend([0x81, 0x00]);
        bytes.extend(tag.to_be_bytes());
    }
    bytes.extend([0x08, 0x00, 0x45, 0]);
    bytes.extend(((40 + payload) as u16).to_be_bytes());
    bytes.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([0, 80, 0, 81, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    bytes.extend((0..payload).map(|at| (at / 7) as u8));
    bytes
}

fn segments(len: u16) -> Offload {
    Offload::Tcp(NonZeroU16::new(len).unwrap())
}

/// Returns the payload of all frames together, whose checksums must be right.
fn together(frames: &[(Vec<u8>, Offload)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (bytes, offload) in frames {
        assert_eq!(*offload, Offload::None);
        let layout = Layout::of(bytes, bytes.len()).expect("a TCP packet");
        let sequence: [u8; 4] = bytes[layout.start + 4..layout.start + 8].try_into().unwrap();
        assert_eq!(u32::from_be_bytes(sequence) as usize, payload.len());
        let (from, to) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        assert_eq!(upper_checksum(from, to, 6, &[&bytes[layout.start..]]), 0);
        payload.extend(&bytes[layout.payload..]);
    }
    payload
}

/// Returns a frame to a group that is no IP packet.
fn odd(len: usize) -> Vec<u8> {
    let mut bytes = vec![7; len];
    bytes[6..12].fill(2);
    bytes
}

#[test]
fn each_port_gets_what_it_can_take() {
    let ports = [
        ("name = 'a'", Offloads::ALL, 1514, 256),
        ("name = 'whole'", Offloads::ALL, 1514, 256),
        ("name = 'ethernet'", Offloads::NONE, 1514, 256),
        ("name = 'memory'", Offloads::NONE, dray_port::FRAME_LIMIT, 256),
        ("name = 'short'", Offloads::NONE, 1000, 256),
    ];
    let mut bench = Bench::new("mode = 'learning'", &ports);
    let sent = tcp(&[], 60_000);
    bench.send(sent.clone(), segments(1448));
    assert_eq!(bench.seen(1), [(sent.clone(), segments(1448))]);
    for port in [2, 3] {
        let seen = bench.seen(port);
        assert_eq!(seen.len(), 60_000_usize.div_ceil(1448));
        assert_eq!(together(&seen), sent[54..]);
        assert_eq!(bench.switch.counters(port).tx_frames, seen.len() as u64);
    }
    assert_eq!(bench.seen(4), []);
    assert_eq!(bench.switch.counters(4).drops.get(DropReason::TooLong), 1);
    // A checksum alone, in a batch with frames without an offload.
    let short = tcp(&[], 100);
    bench.sent.lock().unwrap().push_back((odd(60), Offload::None));
    let mut partial = short.clone();
    // The sum of the pseudo-header: addresses, protocol, length.
    partial[50..52].copy_from_slice(&(0x0a00_u16 * 2 + 1 + 2 + 6 + 120).to_be_bytes());
    bench.send(partial.clone(), Offload::Checksum);
    let plain = (odd(60), Offload::None);
    assert_eq!(bench.seen(1), [plain.clone(), (partial, Offload::Checksum)]);
    for port in 2..=4 {
        let seen = bench.seen(port);
        assert_eq!(seen[0], plain);
        assert_eq!(together(&seen[1..]), short[54..]);
    }
}

/// A driver that has not negotiated ECN gets segments, of which the first alone has the flag CWR.
#[test]
fn ecn_flag_goes_to_ports_that_take_it() {
    let without = Offloads { ecn: false, ..Offloads::ALL };
    let ports = [
        ("name = 'a'", Offloads::ALL, 1514, 256),
        ("name = 'ecn'", Offloads::ALL, 1514, 256),
        ("name = 'plain'", without, 1514, 256),
    ];
    let mut bench = Bench::new("mode = 'learning'", &ports);
    let mut sent = tcp(&[], 4000);
    sent[47] |= 0x80;
    let size = NonZeroU16::new(1448).unwrap();
    bench.send(sent.clone(), Offload::TcpEcn(size));
    assert_eq!(bench.seen(1), [(sent.clone(), Offload::TcpEcn(size))]);
    let seen = bench.seen(2);
    assert_eq!(seen.iter().map(|(bytes, _)| bytes[47]).collect::<Vec<_>>(), [0x90, 0x10, 0x10]);
    assert_eq!(together(&seen), sent[54..]);
    bench.send(sent.clone(), Offload::Tcp(size));
    assert_eq!(bench.seen(2), [(sent, Offload::Tcp(size))]);
}

#[test]
fn tagged_frames_keep_their_offload() {
    let ports = [
        ("name = 'trunk'\ntrunk = [10, 20]", Offloads::ALL, 1514, 256),
        ("name = 'access'\nvlan = 10", Offloads::ALL, 1514, 256),
        ("name = 'finished'\nvlan = 10", Offloads::NONE, 1514, 256),
        ("name = 'other'\ntrunk = [10, 20]", Offloads::ALL, 1514, 256),
    ];
    let mut bench = Bench::new("mode = 'learning'", &ports);
    let (tagged, bare) = (tcp(&[10], 50_000), tcp(&[], 50_000));
    bench.send(tagged.clone(), segments(1400));
    assert_eq!(bench.seen(1), [(bare.clone(), segments(1400))]);
    assert_eq!(together(&bench.seen(2)), bare[54..]);
    assert_eq!(bench.seen(3), [(tagged, segments(1400))]);
}

#[test]
fn backpressure_loses_and_repeats_no_segment() {
    let ports = [
        ("name = 'a'\npair = 'b'", Offloads::ALL, 1514, 256),
        ("name = 'b'\npair = 'a'", Offloads::NONE, 1514, 7),
    ];
    let mut bench = Bench::new("mode = 'patch'\nflow = 'backpressure'", &ports);
    for len in [60_000, 1, 1448, 1449, 30_000] {
        let sent = tcp(&[], len);
        bench.send(sent.clone(), segments(1448));
        assert_eq!(together(&bench.seen(1)), sent[54..]);
    }
}

#[test]
fn receiver_without_room_gets_the_first_segments() {
    let ports = [("name = 'a'", Offloads::ALL, 1514, 256), ("name = 'b'", Offloads::NONE, 1514, 7)];
    let mut bench = Bench::new("mode = 'learning'", &ports);
    let sent = tcp(&[], 60_000);
    for number in 1..3 {
        bench.send(sent.clone(), segments(1448));
        assert_eq!(together(&bench.seen(1)), sent[54..54 + 7 * 1448]);
        let drops = bench.switch.counters(1).drops;
        assert_eq!(drops.get(DropReason::ReceiverFull), number);
    }
}

/// The sender has changed the frame since the port checked it.
#[test]
fn frame_that_does_not_fit_its_offload_is_dropped() {
    let ports =
        [("name = 'a'", Offloads::ALL, 1514, 256), ("name = 'b'", Offloads::NONE, 1514, 256)];
    let mut bench = Bench::new("mode = 'learning'", &ports);
    let mut bytes = tcp(&[], 3000);
    bytes[23] = 17;
    bench.send(bytes, segments(1448));
    bench.send(odd(3000), segments(1448));
    bench.send(odd(14), Offload::Checksum);
    assert_eq!(bench.seen(1), []);
    assert_eq!(bench.switch.counters(1).drops.get(DropReason::Undeliverable), 3);
}
