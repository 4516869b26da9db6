//! A driver that sends any message to a vhost port, and writes anything into the memory that it
//! shares, while frames are moved: no panic, no hang, and the port can be closed.
#![no_main]

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use dray_port::vhost::VhostUri;
use dray_port::{Port, Scratch, Wait, scratch};
use dray_shm::guard::{Guarded, guarded};
use libfuzzer_sys::fuzz_target;

#[path = "../../dataplane/ring/tests/ring/bytes.rs"]
#[allow(dead_code, reason = "each target uses a part of it")]
mod bytes;
#[path = "../../tests/switch/hostile/memory.rs"]
#[allow(dead_code, reason = "each target uses a part of it")]
mod memory;
#[path = "../../tests/switch/hostile/message.rs"]
#[allow(dead_code, reason = "each target uses a part of it")]
mod message;
mod peer;
#[path = "../../tests/switch/hostile/ring.rs"]
#[allow(dead_code, reason = "each target uses a part of it")]
mod ring;

use bytes::Bytes;
use memory::{GUEST, LEN, USER, parts};
use message::{
    EVENT_INDEX, HostileDriver, INDIRECT, MERGEABLE, PACKED, PLAIN, Region, SET_VRING_CALL,
    SET_VRING_KICK, words,
};
use peer::{HANG, exchange, number};

/// Time to connect to a socket, which does not happen here.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns an address in the memory, or near its ends.
fn address(bytes: &mut Bytes<'_>, first: u64) -> u64 {
    match bytes.byte() % 8 {
        0 => first.wrapping_sub(bytes.byte().into()),
        1 => first.wrapping_add(LEN).wrapping_sub(bytes.byte().into()),
        2 => bytes.u64(),
        3 => first + parts(u32::from(bytes.flag()))[usize::from(bytes.byte() % 3)],
        _ => first + u64::from(bytes.u32()) % LEN,
    }
}

/// Sends a message of the handshake that is partly invalid, or any message.
fn send_message(driver: &mut HostileDriver, bytes: &mut Bytes<'_>) {
    let request = u32::from(bytes.byte());
    let index = u32::from(bytes.byte() % 3);
    match request {
        0 => driver.send(request, &[], &[]),
        5 | 37 | 38 => {
            let region = Region {
                guest: number(bytes, GUEST),
                len: number(bytes, LEN),
                user: number(bytes, USER),
                offset: number(bytes, 0),
            };
            match request {
                5 => {
                    let second = Region { guest: GUEST + LEN, user: USER + LEN, ..Region::ALL };
                    let regions = &[region, second][..1 + usize::from(bytes.flag())];
                    let fds = vec![driver.memory.as_fd(); usize::from(bytes.byte() % 4)];
                    driver.share(regions, &fds);
                }
                37 => driver.region(request, region, &[driver.memory.as_fd()]),
                _ => driver.region(request, region, &[]),
            }
        }
        8 => driver.vring(request, index, number(bytes, driver.size.into()) as u32),
        9 => {
            let right = parts(index % 2).map(|part| USER + part);
            driver.addresses(index, right.map(|part| number(bytes, part)));
        }
        10 => driver.vring(request, index, number(bytes, 0) as u32),
        11 | 18 => driver.vring(request, index, u32::from(bytes.byte() % 3)),
        SET_VRING_KICK | SET_VRING_CALL => {
            let index = number(bytes, index.into());
            let events = [driver.kicks[0].as_fd(), driver.calls[0].as_fd(), driver.memory.as_fd()];
            driver.fd(request, index, events[usize::from(bytes.byte() % 3)]);
        }
        2 | 16 => driver.send(request, &number(bytes, PLAIN).to_ne_bytes(), &[]),
        100..=120 => (0..2).for_each(|index| driver.set_up(index)),
        121..=140 => (0..2).for_each(|index| driver.enable(index)),
        250.. => {
            // Bytes that are not a complete message: the port reads later bytes as part of it.
            let raw = words(&[bytes.u32(), bytes.u32(), bytes.u32()]);
            driver.raw(&raw[..usize::from(bytes.byte() % 13)], &[]);
        }
        _ => {
            let body: Vec<u8> = (0..bytes.byte() % 64).map(|_| bytes.byte()).collect();
            let fds: Vec<BorrowedFd<'_>> =
                vec![driver.kicks[1].as_fd(); usize::from(bytes.byte().saturating_sub(200))];
            driver.send(request % 48, &body, &fds);
        }
    }
}

/// Writes into a ring, or anywhere else.
fn scribble(driver: &mut HostileDriver, bytes: &mut Bytes<'_>) {
    let index = u32::from(bytes.flag());
    let mut ring = if index == 0 { driver.rx() } else { driver.tx() };
    let entry = bytes.u16() % driver.size;
    let descriptor =
        (address(bytes, GUEST), number(bytes, 1500) as u32, bytes.u16(), bytes.u16() % 300);
    match bytes.byte() % 6 {
        0 => driver.memory.write(u64::from(bytes.u32()) % (LEN - 8), &bytes.u64().to_le_bytes()),
        1 => ring.set_available(bytes.u16()),
        2 => ring.set_used(bytes.u16()),
        3 if driver.packed => ring.packed(entry, descriptor),
        4 if driver.packed => ring.packed_flags(entry, bytes.u16()),
        3 => ring.descriptor(entry, descriptor),
        // Most often, a chain of valid buffers.
        _ => {
            let write = if index == 0 { ring::WRITE } else { 0 };
            let buffer = ring::buffer() + u64::from(bytes.byte()) * 64;
            for entry in 0..bytes.byte() % 16 {
                let len = u32::from(bytes.u16()) % 4096;
                let flags = write | u16::from(bytes.byte() % 8 == 0);
                match driver.packed {
                    true => ring
                        .packed(entry.into(), (buffer, len, flags | ring::AVAILABLE, entry.into())),
                    false => ring.offer((buffer, len, flags, u16::from(entry) + 1)),
                }
            }
        }
    }
}

/// Returns the number of file descriptors of this process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("procfs").count()
}

/// A port has its eventfds, its socket and what a driver passed: two for each virtqueue, and twice
/// those of a message that is being read. A driver has its memory, its eventfds and its socket.
const DESCRIPTORS_MAX: usize = 16 + 4 + 64 + 16;
/// Limits for a port's driver.
const REGIONS_MAX: usize = 32;
const MEMORY_MAX: u64 = 256 << 30;

/// Checks that a driver takes no more than its share, whatever it sends.
fn check_bounds(descriptors_before: usize) {
    let now = guarded();
    assert!(now.mappings <= REGIONS_MAX, "{now:?}");
    // Whole pages are mapped.
    assert!(now.bytes <= MEMORY_MAX + REGIONS_MAX as u64 * 8192, "{now:?}");
    let now = descriptors();
    assert!(now <= descriptors_before + DESCRIPTORS_MAX, "{now} file descriptors");
}

/// Runs one driver, from its connection to its disconnection.
fn drive(theirs: UnixStream, port: &mut Port, bytes: &mut Bytes<'_>, scratch: &mut Scratch) {
    let mut driver = HostileDriver::over(theirs);
    let wishes = bytes.byte();
    let features = [MERGEABLE, INDIRECT, EVENT_INDEX, PACKED];
    let features = features.iter().enumerate().filter(|(bit, _)| wishes & 1 << bit != 0);
    let features = features.fold(PLAIN, |all, (_, feature)| all | feature);
    driver.size = bytes.size().get().min(1024);
    // Most inputs begin with running rings.
    if wishes & 0x70 != 0 {
        driver.start(features);
    }
    while !bytes.is_empty() {
        match bytes.byte() % 8 {
            0 | 1 => send_message(&mut driver, bytes),
            2 => driver.sync(),
            3 => driver.kick(),
            4 if bytes.byte() == 0 => driver.memory.truncate(u64::from(bytes.u32()) % LEN),
            4..=6 => scribble(&mut driver, bytes),
            _ => exchange(port, scratch, usize::from(bytes.byte() % 32), 14),
        }
        // The next driver finds the port as this one left it.
        if driver.is_hung_up() || bytes.byte() == 255 {
            break;
        }
    }
    exchange(port, scratch, 8, 14);
    driver.hang_up();
    exchange(port, scratch, 8, 14);
}

fuzz_target!(|input: &[u8]| {
    let start = Instant::now();
    let before = descriptors();
    let mut bytes = Bytes(input);
    let sockets = (0..1 + bytes.byte() % 3).map(|_| UnixStream::pair().expect("sockets"));
    let (ours, theirs): (Vec<_>, Vec<_>) = sockets.unzip();
    let uri = VhostUri { wait: Wait::Poll { pause_us: 0 }, ..VhostUri::new("nowhere") };
    let mut port = uri.open_over(ours).expect("eventfds and a thread");
    let mut scratch = scratch();
    for theirs in theirs {
        theirs.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
        theirs.set_write_timeout(Some(Duration::from_millis(50))).expect("a socket");
        drive(theirs, &mut port, &mut bytes, &mut scratch);
        check_bounds(before);
    }
    drop(port);
    assert_eq!(guarded(), Guarded { mappings: 0, bytes: 0 }, "nothing is left");
    assert!(start.elapsed() < HANG, "{:?}", start.elapsed());
});
