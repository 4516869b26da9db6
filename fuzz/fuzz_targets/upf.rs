//! Frames of strangers at both interfaces of a user plane function: none is more than dropped, each is
//! counted once, and what is forwarded is a packet of the user's own.
#![no_main]

use std::cell::RefCell;

use dray_port::memory::Peer;
use dray_upf::{Direction, Upf, UpfConfig};
use libfuzzer_sys::fuzz_target;

const CONFIG: &str = r#"
sessions_max = 4
n3 = { mac = "02:00:00:00:03:01", addresses = ["10.0.3.1", "fd00:3::1"], neighbours = [
    { address = "10.0.3.2", mac = "02:00:00:00:03:02" }] }
n6 = { mac = "02:00:00:00:06:01", addresses = ["10.0.6.1", "fd00:6::1"], routes = [
    { to = "0.0.0.0/0", via = "10.0.6.2" }], neighbours = [
    { address = "10.0.6.2", mac = "02:00:00:00:06:02" }] }
generate = { count = 2, gnbs = ["10.0.3.2"], ue = "10.45.0.1", qfi = 9, urr = true, pdrs = 4 }
"#;

/// From N3, a right packet of each way to begin with.
const SEEDS: [&[u8]; 2] = [
    &[
        2, 0, 0, 0, 3, 1, 2, 0, 0, 0, 3, 2, 8, 0, // Ethernet
        0x45, 0, 0, 76, 0, 0, 0x40, 0, 64, 17, 0x20, 0x9f, 10, 0, 3, 2, 10, 0, 3, 1, // IPv4
        8, 104, 8, 104, 0, 56, 0, 0, // UDP
        0x34, 255, 0, 40, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0x10, 9, 0, // GTP-U
        0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0xf4, 0x95, 10, 45, 0, 1, 203, 0, 113,
        9, // IPv4
        0, 7, 0, 7, 0, 12, 0, 0, 1, 2, 3, 4,
    ],
    &[
        2, 0, 0, 0, 6, 1, 2, 0, 0, 0, 6, 2, 8, 0, // Ethernet
        0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0xf4, 0x95, 203, 0, 113, 9, 10, 45, 0,
        1, // IPv4
        0, 7, 0, 7, 0, 12, 0, 0, 1, 2, 3, 4,
    ],
];

struct Ends {
    upf: Upf,
    directions: [Direction; 2],
    peers: [Peer; 2],
}

thread_local! {
    static ENDS: RefCell<Ends> = RefCell::new({
        let peers = [Peer::default(), Peer::default()];
        let config = UpfConfig::from_toml(CONFIG).expect("right");
        let (upf, directions) = Upf::new(&config, peers[0].port(), peers[1].port()).expect("right");
        Ends { upf, directions, peers }
    });
}

/// Changes and frames: a right packet with bytes put in other places, or any bytes.
fn frame(side: usize, bytes: &[u8]) -> Vec<u8> {
    match bytes.split_first() {
        Some((&changes @ 1..8, rest)) => {
            let mut frame = SEEDS[side].to_vec();
            for change in rest.chunks_exact(2).take(changes.into()) {
                let at = usize::from(change[0]) % frame.len();
                frame[at] = change[1];
            }
            frame.extend(rest.iter().skip(2 * usize::from(changes)).take(1400));
            frame
        }
        _ => bytes.iter().take(1514).copied().collect(),
    }
}

fuzz_target!(|given: (bool, Vec<Vec<u8>>)| {
    let (n6, frames) = given;
    let side = usize::from(n6);
    ENDS.with_borrow_mut(|ends| {
        let frames: Vec<_> = frames.iter().take(256).map(|bytes| frame(side, bytes)).collect();
        let count = frames.len() as u64;
        let counted = |ends: &Ends| if n6 { ends.upf.downlink() } else { ends.upf.uplink() };
        let before = counted(ends);
        ends.peers[side].send(frames);
        ends.directions[side].poll().expect("memory does not fail");
        ends.directions[side].publish();
        // What the uplink has for users is no packet that came.
        let after = counted(ends);
        ends.directions[1].poll().expect("memory does not fail");
        ends.directions[1].publish();
        assert_eq!(after.rx_packets - before.rx_packets, count);
        let done = |counters: dray_upf::Counters| {
            counters.tx_packets + counters.control + counters.drops.total()
        };
        assert_eq!(done(after) - done(before), count, "each is counted once");
        for frame in ends.peers[1 - side].received() {
            let packet = &frame[if n6 { 58 } else { 14 }..];
            let address = &packet[if n6 { 16..20 } else { 12..16 }];
            assert!(packet[0] >> 4 != 4 || address[..3] == [10, 45, 0], "{frame:x?}");
        }
        ends.peers[side].received();
    });
});
