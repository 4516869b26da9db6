//! Measures what sessions cost: memory per session, and losses of other sessions' packets while
//! 10,000 sessions are added and 10,000 removed each second through the control socket.
//!
//! `cargo bench -p dray-upf --bench sessions` takes some ten seconds. A number after `--` sets for
//! how many seconds sessions are added and removed: 3600 shows that an hour of this leaks no
//! memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use dray_daemon::ControlSocket;
use dray_datapath::Idle;
use dray_port::memory::Peer;
use dray_upf::api::{self, Client, Transaction};
use dray_upf::{RunningUpf, Upf, UpfConfig};
use dray_wire::MacAddr;
use dray_wire::ethernet::{Ethernet, ethertype};
use dray_wire::ip::{Header, protocol};
use dray_wire::udp::Udp;

/// Number of sessions added, and removed, per second.
const CHANGES: u32 = 10_000;
/// Number of these in one transaction.
const TOGETHER: u32 = 100;
/// Packets per second for sessions that stay.
const RATE: u32 = 100_000;
/// Maximum number of packets in flight. On a busy machine fewer packets are sent, since queued
/// packets use memory too.
const UNDER_WAY: u64 = RATE as u64 / 100;
/// Time without work after which a direction sleeps, to leave the machine to others during an
/// hour's run.
const IDLE: Duration = Duration::from_micros(100);
/// Maximum growth of allocated memory, in kB: queues keep the room of their longest state.
const GROWTH_MAX: usize = 256;
/// Number of sessions that stay.
const STAYING: u32 = 8000;

/// Counts allocated bytes: resident memory includes freed memory that the process keeps.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: it does what the system's allocator does.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn config(count: u32, room: u32, more: &str) -> UpfConfig {
    let text = format!(
        r#"
sessions_max = {room}
n3 = {{ mac = "02:00:00:00:03:01", addresses = ["10.0.3.1"], neighbours = [
    {{ address = "10.0.3.2", mac = "02:00:00:00:03:02" }} ] }}
n6 = {{ mac = "02:00:00:00:06:01", addresses = ["10.0.6.1"] }}
generate = {{ count = {count}, gnbs = ["10.0.3.2"], ue = "10.128.0.0", qfi = 9{more} }}
"#
    );
    UpfConfig::from_toml(&text).expect("right")
}

/// Returns a packet from the data network for the session `number`.
fn frame(number: u32) -> Vec<u8> {
    let (src, dst) = (Ipv4Addr::new(203, 0, 113, 9), Ipv4Addr::from(0x0a80_0000 + number));
    let mut frame = vec![0; 142];
    let macs = [MacAddr([2, 0, 0, 0, 6, 1]), MacAddr([2, 0, 0, 0, 6, 2])];
    Ethernet { dst: macs[0], src: macs[1], ethertype: ethertype::IPV4 }
        .write(frame.first_chunk_mut().expect("longer"));
    let (ttl, tos, protocol, payload_len) = (64, 0, protocol::UDP, 108);
    Header { src, dst, protocol, tos, ttl, payload_len }
        .write((&mut frame[14..34]).try_into().expect("20 bytes"));
    Udp { src_port: 5000, dst_port: 5000, payload_len: 100 }
        .write((&mut frame[34..42]).try_into().expect("8 bytes"));
    frame
}

/// Returns the number of packets for users since the last call; ARP requests are not counted.
fn users_packets(n3: &Peer) -> u64 {
    let is_arp = |frame: &Vec<u8>| {
        Ethernet::parse(frame).is_some_and(|header| header.ethertype == ethertype::ARP)
    };
    n3.received().iter().filter(|frame| !is_arp(frame)).count() as u64
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
}

/// Prints the bytes per session, for a million sessions.
fn memory(what: &str, more: &str) {
    let count = 1_000_000;
    let before = resident();
    let (n3, n6) = (Peer::default(), Peer::default());
    let upf = Upf::new(&config(count, count, more), n3.port(), n6.port()).expect("right");
    let each = (resident() - before) / count as usize;
    println!("{what}: {each} bytes for each of {count} sessions, both workers and control");
    drop(upf);
}

fn churn(duration: Duration) {
    let (n3, n6) = (Peer::default(), Peer::default());
    let room = STAYING + 2 * CHANGES;
    let (upf, workers) =
        Upf::new(&config(STAYING, room, ", urr = true"), n3.port(), n6.port()).expect("right");
    let cpus = [0, 1];
    let running =
        RunningUpf::start(upf, workers.map(|worker| vec![worker]), &cpus, Idle::After(IDLE));
    let running = running.expect("threads");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("upf.sock");
    let server = api::serve(
        ControlSocket::bind(&path.clone().into()).expect("a socket"),
        running.upf().clone(),
        || (),
    );
    let stop = Arc::new(AtomicBool::new(false));
    let changes = thread::spawn({
        let stop = stop.clone();
        move || {
            let all: Vec<_> = config(STAYING + CHANGES, room, ", urr = true")
                .all_sessions()
                .skip(STAYING as usize)
                .collect();
            let client = Client::new(&path);
            let (start, mut made) = (Instant::now(), 0u64);
            let mut late = Duration::ZERO;
            while !stop.load(Relaxed) {
                for batch in all.chunks(TOGETHER as usize) {
                    let add = Transaction { add: batch.to_vec(), ..Transaction::default() };
                    client.change(&add).expect("made");
                    let remove = batch.iter().map(|session| session.seid).collect();
                    client.change(&Transaction { remove, ..Transaction::default() }).expect("made");
                    made += batch.len() as u64;
                    let due = Duration::from_secs_f64(made as f64 / f64::from(CHANGES));
                    let ahead = due.saturating_sub(start.elapsed());
                    late = late.max(start.elapsed().saturating_sub(due));
                    thread::sleep(ahead);
                }
            }
            (made, start.elapsed(), late)
        }
    });
    let frames: Vec<_> = (0..STAYING).map(frame).collect();
    let (start, mut sent, mut received) = (Instant::now(), 0u64, 0u64);
    // The minimum in each tenth of the time, when the fewest packets and changes were in flight.
    let mut least = [usize::MAX; 10];
    while start.elapsed() < duration {
        let tenth = (start.elapsed().as_secs_f64() / duration.as_secs_f64() * 10.0) as usize;
        least[tenth.min(9)] = least[tenth.min(9)].min(ALLOCATED.load(Relaxed));
        let due = (start.elapsed().as_secs_f64() * f64::from(RATE)) as u64;
        let due = due.min(received + UNDER_WAY).max(sent);
        n6.send((sent..due).map(|number| frames[number as usize % frames.len()].clone()));
        sent = due;
        received += users_packets(&n3);
        // A control plane that removes sessions also reads their last reports.
        drop(running.upf().events());
        thread::sleep(Duration::from_micros(200));
    }
    stop.store(true, Relaxed);
    let (made, elapsed, late) = changes.join().expect("no panic");
    let patience = Instant::now() + Duration::from_secs(10);
    while received < sent && Instant::now() < patience {
        received += users_packets(&n3);
        thread::sleep(Duration::from_millis(1));
    }
    drop((server, running));
    let rate = made as f64 / elapsed.as_secs_f64();
    let [_, early, .., end] = least.map(|bytes| bytes >> 10);
    println!(
        "{rate:.0} sessions added and as many removed each second for {:.0} s (at worst {:.0} ms late), \
         {sent} packets for {STAYING} others: {} lost; {early} kB allocated at first, {end} kB at the end",
        elapsed.as_secs_f64(),
        late.as_secs_f64() * 1e3,
        sent - received,
    );
    assert_eq!(sent, received, "packets of sessions that stay are lost");
    assert!(end <= early + GROWTH_MAX, "{early} kB have become {end} kB");
}

fn main() {
    let seconds = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    memory("one rule each way", "");
    memory("with rate and usage", ", mbr_kbps = 10000, urr = true");
    churn(Duration::from_secs(seconds.unwrap_or(5)));
}
