//! The data path between two ports in memory: packets in, packets out.

mod changing;
mod error_messages;
mod fragments;
mod hostile;
mod indications;
mod martians;
mod neighbours;
mod outer;
mod packets;
mod rates;
mod router;
mod rules;
mod usage;
mod waiting;

use std::time::{Duration, Instant};

use dray_upf::Counters;

use crate::ends::udp;

const SERVER: &str = "203.0.113.9";
const NOTHING: [Vec<u8>; 0] = [];

fn up_packet(payload: &[u8]) -> Vec<u8> {
    udp("10.45.0.1", SERVER, (5000, 80), payload)
}

fn down_packet(payload: &[u8]) -> Vec<u8> {
    udp(SERVER, "10.45.0.1", (80, 5000), payload)
}

/// Returns the number of packets dropped for the reason with this name.
fn dropped(counters: &Counters, reason: &str) -> u64 {
    let of_name = counters.drops.iter().find(|(known, _)| known.name() == reason);
    of_name.map_or(0, |(_, count)| count)
}

/// Returns an IPv4 packet with one byte of its header changed.
fn changed(mut packet: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    packet[at] = value;
    packet[10..12].fill(0);
    let sum = dray_wire::checksum::internet(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Returns what the first attempt gave that took less than `limit`, after which timers of the user
/// plane function would run out: a busy machine may stop a test for longer at any point.
fn within<T>(limit: Duration, mut attempt: impl FnMut() -> T) -> T {
    for _ in 0..50 {
        let began = Instant::now();
        let outcome = attempt();
        if began.elapsed() < limit {
            return outcome;
        }
    }
    panic!("50 attempts took longer than {limit:?}");
}
