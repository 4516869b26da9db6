//! Measures the cycles that the user plane function itself needs for a packet. The ports are in
//! memory: they lend frames and take them without a copy, so neither side counts. Packets have 512
//! bytes, each of a random session.
//!
//! `cargo bench -p dray-upf --bench path` measures 8000 and a million sessions. Give other numbers
//! after `--`, or a word of the cases to measure.

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use dray_port::{Batch, Frame, Port, Receive, Take, Transmit, clock};
use dray_upf::{Upf, UpfConfig, Worker};
use dray_wire::MacAddr;
use dray_wire::ethernet::{Ethernet, ethertype};
use dray_wire::gtpu::{self, Container};
use dray_wire::ip::{Header, protocol};
use dray_wire::udp::Udp;

/// Number of frames that a port lends at a time.
const BATCH: usize = 256;
const LEN: usize = 512;
const ROUNDS: usize = 4000;

type Frames = Arc<Mutex<Vec<Vec<u8>>>>;

struct Feed(Frames);

impl Receive for Feed {
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize> {
        let frames = self.0.lock().unwrap();
        let batch: Batch<'_> = frames.iter().map(|frame| Frame::from(&frame[..])).collect();
        Ok(take(&batch))
    }
}

struct Sink;

impl Transmit for Sink {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        std::hint::black_box(frames);
        Ok(frames.len())
    }

    fn frame_max(&self) -> usize {
        1514
    }
}

fn config(sessions: u32, rules: &str) -> UpfConfig {
    let text = format!(
        r#"
sessions_max = {sessions}
n3 = {{ mac = "02:00:00:00:03:01", addresses = ["10.0.3.1"], neighbours = [
    {{ address = "10.0.3.2", mac = "02:00:00:00:03:02" }} ] }}
n6 = {{ mac = "02:00:00:00:06:01", addresses = ["10.0.6.1"], routes = [
    {{ to = "0.0.0.0/0", via = "10.0.6.2" }} ], neighbours = [
    {{ address = "10.0.6.2", mac = "02:00:00:00:06:02" }} ] }}
generate = {{ count = {sessions}, gnbs = ["10.0.3.2"], ue = "10.128.0.0", qfi = 9{rules} }}
"#
    );
    UpfConfig::from_toml(&text).unwrap()
}

/// Returns a frame of the session `number`, to N3 or to N6.
fn frame(number: u32, uplink: bool) -> Vec<u8> {
    let ue = Ipv4Addr::from(0x0a80_0000 + number);
    let server = Ipv4Addr::new(203, 0, 113, 9);
    let (src, dst) = if uplink { (ue, server) } else { (server, ue) };
    let inner_len = LEN - if uplink { 58 } else { 14 };
    let mut inner = vec![0; inner_len];
    let payload_len = (inner_len - 20) as u16;
    let (ttl, tos, udp) = (64, 0, protocol::UDP);
    Header { src, dst, protocol: udp, tos, ttl, payload_len }
        .write(inner.first_chunk_mut().unwrap());
    Udp { src_port: 5000, dst_port: 5000, payload_len: inner_len - 28 }
        .write((&mut inner[20..28]).try_into().unwrap());
    let ethernet = |last: u8| {
        let dst = MacAddr([2, 0, 0, 0, last, 1]);
        let mut bytes = [0; 14];
        Ethernet { dst, src: MacAddr([2, 0, 0, 0, last, 2]), ethertype: ethertype::IPV4 }
            .write(&mut bytes);
        bytes
    };
    if !uplink {
        return [&ethernet(6)[..], &inner].concat();
    }
    let mut tunnel = [0; 44];
    let payload_len = (inner_len + 24) as u16;
    let (src, dst) = (Ipv4Addr::new(10, 0, 3, 2), Ipv4Addr::new(10, 0, 3, 1));
    Header { src, dst, protocol: udp, tos, ttl, payload_len }
        .write(tunnel.first_chunk_mut().unwrap());
    Udp { src_port: gtpu::PORT, dst_port: gtpu::PORT, payload_len: inner_len + 16 }
        .write((&mut tunnel[20..28]).try_into().unwrap());
    let direction = gtpu::Direction::Uplink;
    let container = Container { direction, qfi: 9, reflective: false, paging_policy: None };
    gtpu::write_gpdu(&mut tunnel[28..], number + 1, Some(container), inner_len);
    [&ethernet(3)[..], &tunnel, &inner].concat()
}

fn measure(worker: &mut Worker, frames: &Frames, sessions: u32, uplink: bool) -> Vec<f64> {
    let mut state = 0x9e37_79b9u32;
    let mut cycles = Vec::new();
    for _ in 0..ROUNDS {
        let mut batch = Vec::with_capacity(BATCH);
        for _ in 0..BATCH {
            // xorshift32 (Marsaglia 2003)
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            let number = (u64::from(state) * u64::from(sessions)) >> 32;
            batch.push(frame(number as u32, uplink));
        }
        *frames.lock().unwrap() = batch;
        let before = clock::ticks();
        worker.poll().unwrap();
        cycles.push((clock::ticks() - before) as f64 / BATCH as f64);
    }
    cycles.sort_by(f64::total_cmp);
    cycles
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let given: Vec<u32> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    let sizes = if given.is_empty() { vec![8000, 1_000_000] } else { given };
    let wanted = arguments.iter().find(|argument| argument.parse::<u32>().is_err());
    println!("cycles of the time-stamp counter per packet: median, least, 99 % ");
    for (what, rules) in [
        ("one rule each way", ""),
        ("with rate and usage", ", mbr_kbps = 100000000, urr = true"),
        ("and 8 rules each way", ", mbr_kbps = 100000000, urr = true, pdrs = 16"),
    ] {
        if wanted.is_some_and(|wanted| !what.contains(wanted)) {
            continue;
        }
        for sessions in sizes.iter().copied() {
            let (n3, n6) = (Frames::default(), Frames::default());
            let port = |frames: &Frames| Port {
                rx: vec![Box::new(Feed(frames.clone()))],
                tx: vec![Box::new(Sink)],
                link: None,
            };
            let config = config(sessions, rules);
            let (upf, mut workers) = Upf::new(&config, port(&n3), port(&n6)).unwrap();
            for (index, (name, frames)) in
                [("uplink", &n3), ("downlink", &n6)].into_iter().enumerate()
            {
                let worker = &mut workers[index];
                let cycles = measure(worker, frames, sessions, index == 0);
                let at = |part: f64| cycles[(cycles.len() as f64 * part) as usize];
                let (p50, least, p99) = (at(0.5), cycles[0], at(0.99));
                println!("{sessions:8} sessions, {what}, {name}: {p50:.0}, {least:.0}, {p99:.0}");
                worker.publish();
            }
            let all = (ROUNDS * BATCH) as u64;
            assert_eq!((upf.uplink().tx_packets, upf.downlink().tx_packets), (all, all));
        }
    }
}
