//! A client that sends any message to a memif server, and writes anything into the memory that it
//! shares, while frames are moved: no panic, no hang, and the port can be closed.
#![no_main]

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use dray_port::memif::{MemifUri, Role};
use dray_port::{MemoryLimits, Wait, scratch};
use dray_shm::guard::{Guarded, guarded};
use dray_socket::SocketName;
use libfuzzer_sys::fuzz_target;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

#[path = "../../dataplane/ring/tests/ring/bytes.rs"]
#[allow(dead_code, reason = "each target uses a part of it")]
mod bytes;
#[path = "../../tests/switch/hostile/client.rs"]
#[allow(dead_code, reason = "each target uses a part of it")]
mod client;
#[path = "../../tests/switch/hostile/memory.rs"]
#[allow(dead_code, reason = "each target uses a part of it")]
mod memory;
mod peer;

use bytes::Bytes;
use client::{BUFFER, Client, Descriptor, RX, Ring, TX, buffer};
use memory::LEN;
use peer::{HANG, exchange, number};

/// Sends a message of the handshake that is partly invalid, or any message.
fn say(client: &mut Client, bytes: &mut Bytes<'_>) {
    let files = [client.memory.as_fd(), client.events[RX].as_fd(), client.events[TX].as_fd()];
    match bytes.byte() % 8 {
        0 => client.init_with(number(bytes, 0) as u32, number(bytes, 0x200) as u16, 0, b"s"),
        1 | 2 => {
            let fds = &files[..1 + usize::from(bytes.byte() == 0)];
            client.region(number(bytes, 0) as u16, number(bytes, LEN), fds);
        }
        3 | 4 => {
            let right = client.place(usize::from(bytes.flag()));
            let ring = Ring {
                flags: right.flags,
                index: number(bytes, right.index.into()) as u16,
                region: number(bytes, 0) as u16,
                offset: number(bytes, right.offset.into()) as u32,
                log2_size: number(bytes, right.log2_size.into()) as u8,
                header_len: number(bytes, 0) as u16,
            };
            client.ring_with(ring, &[files[usize::from(bytes.byte() % 3)]]);
        }
        5 => client.connected(),
        6 => {
            let raw: Vec<u8> = (0..bytes.byte()).map(|_| bytes.byte()).collect();
            client.raw(&raw, &files[..usize::from(bytes.byte() % 4)]);
        }
        _ => {
            let body: Vec<u8> = (0..bytes.byte() % 64).map(|_| bytes.byte()).collect();
            let fds: Vec<BorrowedFd<'_>> =
                vec![files[1]; usize::from(bytes.byte().saturating_sub(200))];
            client.send(u16::from(bytes.byte() % 12), &body, &fds);
        }
    }
}

/// Returns a descriptor: most often a valid one.
fn descriptor(bytes: &mut Bytes<'_>, ring: usize, entry: u16) -> Descriptor {
    let len = if ring == RX { BUFFER } else { u32::from(bytes.u16()) % 3000 };
    let (_, region, len, offset) = buffer(entry % 64, len);
    let flags = u16::from(bytes.byte() % 8 == 0);
    (
        flags,
        number(bytes, region.into()) as u16,
        number(bytes, len.into()) as u32,
        number(bytes, offset.into()) as u32,
    )
}

/// Writes into a ring, or anywhere else.
fn scribble(client: &mut Client, bytes: &mut Bytes<'_>) {
    let ring = usize::from(bytes.flag());
    let entry = bytes.u16();
    match bytes.byte() % 8 {
        0 => client.memory.write(u64::from(bytes.u32()) % (LEN - 8), &bytes.u64().to_ne_bytes()),
        1 => client.set_head(ring, bytes.u16()),
        2 => client.set_tail(ring, bytes.u16()),
        3 => {
            let descriptor = descriptor(bytes, ring, entry);
            client.descriptor(ring, entry, descriptor);
        }
        // The server never waits for it. The client would wait for the other one.
        4 => {
            let event = &client.events[RX];
            let _ = fcntl_setfl(event, OFlags::NONBLOCK);
            let _ = rustix::io::write(event, &(u64::MAX - 1).to_ne_bytes());
            let _ = fcntl_setfl(event, OFlags::empty());
        }
        // Most often, valid buffers.
        _ => {
            for _ in 0..bytes.byte() % 20 {
                let len = if ring == RX { BUFFER } else { u32::from(bytes.u16()) % 3000 };
                let (_, region, len, offset) = buffer(client.head(ring) % 64, len);
                client.post(ring, (u16::from(bytes.byte() % 8 == 0), region, len, offset));
            }
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let start = Instant::now();
    let mut bytes = Bytes(input);
    let (flags, family) = (SocketFlags::CLOEXEC, AddressFamily::UNIX);
    let pairs = (0..1 + bytes.byte() % 3)
        .map(|_| socketpair(family, SocketType::SEQPACKET, flags, None).expect("sockets"));
    let (ours, theirs): (Vec<_>, Vec<_>) = pairs.unzip();
    let uri = MemifUri {
        socket: SocketName::File("nowhere".into()),
        id: 0,
        secret: if bytes.byte() == 0 { "s".to_owned() } else { String::new() },
        queues: 1 + u16::from(bytes.byte() == 0),
        role: Role::Server { memory: MemoryLimits::default(), access: Default::default() },
        wait: Wait::Poll { pause_us: 0 },
    };
    let mut port = uri.open_over(ours).expect("eventfds and a thread");
    let mut scratch = scratch();
    for theirs in theirs {
        let mut client = Client::over(theirs);
        client.log2_size = 1 + bytes.byte() % 9;
        // Most inputs begin with running rings.
        if bytes.byte() >= 32 {
            client.start();
        }
        while !bytes.is_empty() {
            match bytes.byte() % 16 {
                0 => say(&mut client, &mut bytes),
                1 => client.kick(),
                2 if bytes.byte() == 0 => client.memory.truncate(u64::from(bytes.u32()) % LEN),
                2..=8 => scribble(&mut client, &mut bytes),
                _ => exchange(&mut port, &mut scratch, usize::from(bytes.byte() % 32), 14),
            }
            // The next client finds the port as this one left it.
            if client.is_hung_up() || bytes.byte() == 255 {
                break;
            }
        }
        exchange(&mut port, &mut scratch, 8, 14);
        drop(client);
        exchange(&mut port, &mut scratch, 8, 14);
        let now = guarded();
        assert!(now.mappings <= 32 && now.bytes <= 256 << 30, "{now:?}");
    }
    drop(port);
    assert_eq!(guarded(), Guarded { mappings: 0, bytes: 0 }, "nothing is left");
    assert!(start.elapsed() < HANG, "{:?}", start.elapsed());
});
