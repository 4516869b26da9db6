//! Lies of a memif client.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_setfl};

use crate::liar::Expect::{self, Any, Harmless, Left, Malformed, Refused, Unheard};
use crate::liar::client::{
    ACK, ADD_REGION, BUFFER, CONNECTED, Client, DISCONNECT, Descriptor, HELLO, INIT, NEXT, RX,
    Ring, TX, buffer, connect,
};
use crate::liar::memory::{LEN, Memory};
use crate::liar::{Lie, wait_until};

const JUMP: Expect = Refused("ring index jumped");
const OUTSIDE: Expect = Refused("is outside the shared memory");
/// Length of a valid frame.
const FRAME: u32 = 64;

type MemifLie = Lie<Client>;

/// Starts, and transmits these descriptors.
fn transmit(client: &mut Client, descriptors: &[Descriptor]) {
    client.start();
    for (entry, descriptor) in (0..).zip(descriptors) {
        client.descriptor(TX, entry, *descriptor);
    }
    client.set_head(TX, descriptors.len() as u16);
    client.kick();
}

/// Starts, and posts the same buffer for every received frame.
fn receive(client: &mut Client, descriptor: Descriptor) {
    client.start();
    (0..16).for_each(|_| client.post(RX, descriptor));
    client.kick();
}

/// Introduces itself, shares the memory, and adds this ring.
fn ring(client: &mut Client, change: impl Fn(&mut Ring)) {
    client.init();
    client.share_all();
    let mut ring = client.place(TX);
    change(&mut ring);
    client.ring_with(ring, &[client.events[TX].as_fd()]);
}

/// Adds both rings, the one from the client changed, and connects.
fn connect_with(client: &mut Client, change: impl Fn(&mut Ring)) {
    client.init();
    client.share_all();
    client.ring(RX);
    let mut ring = client.place(TX);
    client.memory.write(ring.offset.into(), &0x3e3_1f20u32.to_ne_bytes());
    change(&mut ring);
    client.ring_with(ring, &[client.events[TX].as_fd()]);
    client.connected();
}

/// Adds region 0 with these descriptors.
fn region(client: &mut Client, len: u64, fds: &[BorrowedFd<'_>]) {
    client.init();
    client.region(0, len, fds);
}

/// Keeps frames moving in both directions for a while.
fn be_busy(client: &mut Client) {
    for _ in 0..200 {
        for (ring, len) in [(RX, BUFFER), (TX, FRAME)] {
            while client.head(ring).wrapping_sub(client.tail(ring)) < 16 {
                client.post(ring, buffer(client.head(ring) % 16 + 16 * ring as u16, len));
            }
        }
        client.kick();
        std::thread::sleep(Duration::from_micros(500));
    }
}

pub(super) const LIES: &[MemifLie] = &[
    // The one that takes longest comes first.
    Lie {
        name: "memif: no message",
        tell: |client| assert!(wait_until(|| client.is_hung_up())),
        expect: Unheard,
    },
    Lie {
        name: "memif: nothing after INIT",
        tell: |client| {
            client.init();
            wait_until(|| client.is_hung_up());
        },
        expect: Refused("CONNECT: no message for 5s"),
    },
    Lie {
        name: "memif: 200 connections without a message",
        tell: |client| {
            let sockets: Vec<_> = (0..200).map(|_| connect(client.path())).collect();
            client.keep(sockets);
            client.reconnect();
            client.start();
        },
        expect: Harmless,
    },
    Lie {
        name: "memif: a second client",
        tell: |client| {
            client.start();
            let second = Client::connect(client.path());
            second.init();
            assert!(wait_until(|| second.is_hung_up()));
        },
        expect: Harmless,
    },
    Lie {
        name: "memif: connections without end",
        tell: |client| {
            client.storm(Client::reconnect);
            client.start();
        },
        expect: Harmless,
    },
    Lie {
        name: "memif: handshakes without end",
        tell: |client| {
            client.storm(|client| {
                client.reconnect();
                client.init();
                client.share_all();
            });
        },
        expect: Any,
    },
    // Messages.
    Lie {
        name: "memif: a short message",
        tell: |client| {
            client.init();
            client.raw(&[4, 0, 0], &[]);
        },
        expect: Refused("message is not 128 bytes long"),
    },
    Lie {
        name: "memif: a long message",
        tell: |client| {
            client.init();
            client.raw(&[4; 4000], &[]);
        },
        expect: Refused("message is not 128 bytes long"),
    },
    Lie {
        name: "memif: an empty message",
        tell: |client| {
            client.init();
            client.raw(&[], &[]);
        },
        expect: Any,
    },
    Lie {
        name: "memif: a message of an unknown kind",
        tell: |client| {
            client.init();
            client.send(77, &[], &[]);
        },
        expect: Refused("CONNECT: unexpected Other(77)"),
    },
    Lie {
        name: "memif: a second INIT",
        tell: |client| {
            client.init();
            client.init_with(0, 2 << 8, 0, &[]);
        },
        expect: Refused("CONNECT: unexpected Init"),
    },
    Lie {
        name: "memif: messages of a server",
        tell: |client| {
            client.init();
            client.send(HELLO, &[0xff; 60], &[]);
            client.send(CONNECTED, &[], &[]);
            client.send(ACK, &[], &[]);
        },
        expect: Refused("CONNECT: unexpected Hello"),
    },
    Lie {
        name: "memif: an unknown version",
        tell: |client| {
            client.hear();
            client.init_with(0, 1 << 8, 0, &[]);
        },
        expect: Refused("INIT: version 0x100, not 0x200"),
    },
    Lie {
        name: "memif: frames without Ethernet headers",
        tell: |client| {
            client.hear();
            client.init_with(0, 2 << 8, 1, &[]);
        },
        expect: Refused("INIT: mode 1, not 0"),
    },
    Lie {
        name: "memif: an unknown id",
        tell: |client| {
            client.hear();
            client.init_with(u32::MAX, 2 << 8, 0, &[]);
            assert_eq!(client.hear(), Some(DISCONNECT));
        },
        expect: Unheard,
    },
    Lie {
        name: "memif: INIT with a descriptor",
        tell: |client| {
            client.hear();
            client.send(INIT, &[0, 2], &[client.memory.as_fd()]);
            client.hear();
            client.share_all();
            client.ring(RX);
            client.ring(TX);
            client.connected();
        },
        expect: Harmless,
    },
    Lie {
        name: "memif: a message after CONNECT",
        tell: |client| {
            client.start();
            client.send(ADD_REGION, &[], &[client.memory.as_fd()]);
        },
        expect: Refused("unexpected AddRegion"),
    },
    Lie {
        name: "memif: messages without waiting for replies",
        tell: |client| {
            client.init();
            (0..1000).for_each(|_| client.send(ACK, &[], &[]));
        },
        expect: Refused("CONNECT: unexpected Ack"),
    },
    Lie {
        name: "memif: a reason with control characters",
        tell: |client| {
            client.init();
            client.send(DISCONNECT, &[0, 0, 0, 0, 0x1b, b'[', b'2', b'J'], &[]);
        },
        expect: Refused("client disconnected: ?[2J"),
    },
    // Regions.
    Lie {
        name: "memif: a region without a descriptor",
        tell: |client| region(client, LEN, &[]),
        expect: Refused("region 0: 0 file descriptors: expected 1"),
    },
    Lie {
        name: "memif: a region with 60 descriptors",
        tell: |client| {
            let memory = Memory::new();
            region(client, LEN, &[memory.as_fd(); 60]);
        },
        expect: Refused("region 0: 60 file descriptors: expected 1"),
    },
    Lie {
        name: "memif: a region that is a pipe",
        tell: |client| {
            let (pipe, _) = rustix::pipe::pipe().expect("a pipe");
            region(client, LEN, &[pipe.as_fd()]);
        },
        expect: Refused("allowed is a memfd"),
    },
    Lie {
        name: "memif: a region that is a program",
        tell: |client| {
            let file = File::open("/proc/self/exe").expect("this program");
            region(client, 4096, &[file.as_fd()]);
        },
        expect: Refused("allowed is a memfd"),
    },
    Lie {
        name: "memif: a region of no bytes",
        tell: |client| {
            let memory = Memory::new();
            region(client, 0, &[memory.as_fd()]);
        },
        expect: Refused("region 0: 0 bytes"),
    },
    Lie {
        name: "memif: a region longer than its file",
        tell: |client| {
            let memory = Memory::new();
            region(client, LEN + 1, &[memory.as_fd()]);
        },
        expect: Refused("1048577 bytes do not fit the file of 1048576 bytes"),
    },
    Lie {
        name: "memif: a region of 2^64 - 1 bytes",
        tell: |client| {
            let memory = Memory::new();
            region(client, u64::MAX, &[memory.as_fd()]);
        },
        expect: Refused("bytes of memory: at most"),
    },
    Lie {
        name: "memif: a region with a gap before it",
        tell: |client| {
            client.init();
            client.region(1, LEN, &[client.memory.as_fd()]);
        },
        expect: Refused("region 1: expected region 0"),
    },
    Lie {
        name: "memif: region 0 twice",
        tell: |client| {
            client.init();
            client.share_all();
            client.share_all();
        },
        expect: Refused("region 0: expected region 1"),
    },
    Lie {
        name: "memif: 33 regions",
        tell: |client| {
            client.init();
            (0..33).for_each(|index| client.region(index, LEN, &[client.memory.as_fd()]));
        },
        expect: Refused("33 memory regions: at most 32 are allowed"),
    },
    // Rings before they run.
    Lie {
        name: "memif: a ring without a descriptor",
        tell: |client| {
            client.init();
            client.ring_with(client.place(TX), &[]);
        },
        expect: Refused("ring 0 from the client: 0 file descriptors: expected 1"),
    },
    Lie {
        name: "memif: a ring whose event is memory",
        tell: |client| {
            client.init();
            client.ring_with(client.place(TX), &[client.memory.as_fd()]);
        },
        expect: Refused("is not an eventfd"),
    },
    Lie {
        name: "memif: a ring with a gap before it",
        tell: |client| ring(client, |ring| ring.index = 7),
        expect: Refused("ring 7 from the client: expected ring 0"),
    },
    Lie {
        name: "memif: more rings than the interface has",
        tell: |client| {
            client.init();
            client.share_all();
            client.ring(TX);
            let more = Ring { index: 1, ..client.place(TX) };
            client.ring_with(more, &[client.events[TX].as_fd()]);
        },
        expect: Refused("ring 1 from the client: the interface has 1"),
    },
    Lie {
        name: "memif: a ring of one entry",
        tell: |client| ring(client, |ring| ring.log2_size = 0),
        expect: Refused("2^0 entries: allowed are 2 to 16384"),
    },
    Lie {
        name: "memif: a ring of 2^15 entries",
        tell: |client| ring(client, |ring| ring.log2_size = 15),
        expect: Refused("2^15 entries: allowed are 2 to 16384"),
    },
    Lie {
        name: "memif: a ring of 2^255 entries",
        tell: |client| ring(client, |ring| ring.log2_size = 255),
        expect: Refused("2^255 entries"),
    },
    Lie {
        name: "memif: frames with private headers",
        tell: |client| ring(client, |ring| ring.header_len = 4),
        expect: Refused("private headers of frames are not supported: 4 bytes"),
    },
    Lie {
        name: "memif: CONNECT without a ring",
        tell: |client| {
            client.init();
            client.share_all();
            client.connected();
        },
        expect: Refused("CONNECT: needs a ring in each direction"),
    },
    Lie {
        name: "memif: a ring in an unknown region",
        tell: |client| connect_with(client, |ring| ring.region = 1),
        expect: Refused("of region 1 are not shared"),
    },
    Lie {
        name: "memif: a ring in region 65535",
        tell: |client| connect_with(client, |ring| ring.region = 65_535),
        expect: Refused("of region 65535 are not shared"),
    },
    Lie {
        name: "memif: a ring across the end of its region",
        tell: |client| connect_with(client, |ring| ring.offset = LEN as u32 - 64),
        expect: Refused("384 bytes at offset 1048512 of region 0 are not shared"),
    },
    Lie {
        name: "memif: a ring at the last offset",
        tell: |client| connect_with(client, |ring| ring.offset = u32::MAX),
        expect: Refused("at offset 4294967295 of region 0 are not shared"),
    },
    Lie {
        name: "memif: a ring at an odd offset",
        tell: |client| connect_with(client, |ring| ring.offset += 4),
        expect: Refused("aligned"),
    },
    Lie {
        name: "memif: a ring without a cookie",
        tell: |client| connect_with(client, |ring| ring.offset += 0x1_0000),
        expect: Refused("ring begins with 0x0 instead of memif's cookie"),
    },
    Lie {
        name: "memif: one ring in both directions",
        tell: |client| {
            connect_with(client, |ring| ring.offset = 0);
            (0..16).for_each(|number| client.post(RX, buffer(number, BUFFER)));
            client.kick();
        },
        expect: Any,
    },
    // Indices.
    Lie {
        name: "memif: a head that jumps ahead",
        tell: |client| {
            client.start();
            client.set_head(TX, 17);
            client.kick();
        },
        expect: JUMP,
    },
    Lie {
        name: "memif: a head that goes backwards",
        tell: |client| {
            client.start();
            (0..4).for_each(|number| client.post(TX, buffer(number, FRAME)));
            client.kick();
            wait_until(|| client.tail(TX) == 4);
            client.set_head(TX, 3);
            client.kick();
        },
        expect: JUMP,
    },
    Lie {
        name: "memif: a head of received frames that jumps ahead",
        tell: |client| {
            client.start();
            client.set_head(RX, 0x8000);
        },
        expect: JUMP,
    },
    Lie {
        name: "memif: overwritten tails",
        tell: |client| {
            client.start();
            client.set_tail(RX, 0x8000);
            client.set_tail(TX, 0xffff);
            (0..4).for_each(|number| client.post(TX, buffer(number, FRAME)));
            client.kick();
        },
        expect: Harmless,
    },
    // Descriptors.
    Lie {
        name: "memif: a frame in an unknown region",
        tell: |client| transmit(client, &[(0, 1, FRAME, 0)]),
        expect: OUTSIDE,
    },
    Lie {
        name: "memif: a frame in region 65535",
        tell: |client| transmit(client, &[(0, 0xffff, FRAME, 0)]),
        expect: Refused("at offset 0 of region 65535 is outside the shared memory"),
    },
    Lie {
        name: "memif: a frame past the end of its region",
        tell: |client| transmit(client, &[(0, 0, FRAME, LEN as u32)]),
        expect: OUTSIDE,
    },
    Lie {
        name: "memif: a frame across the end of its region",
        tell: |client| transmit(client, &[(0, 0, FRAME, LEN as u32 - FRAME + 1)]),
        expect: OUTSIDE,
    },
    Lie {
        name: "memif: a frame at the last offset",
        tell: |client| transmit(client, &[(0, 0, FRAME, u32::MAX)]),
        expect: OUTSIDE,
    },
    Lie {
        name: "memif: a part of a frame outside its region",
        tell: |client| transmit(client, &[(NEXT, 0, FRAME, 0), (0, 0, FRAME, LEN as u32)]),
        expect: OUTSIDE,
    },
    Lie {
        name: "memif: a frame of 4 GiB",
        tell: |client| transmit(client, &[(0, 0, u32::MAX, 0)]),
        expect: OUTSIDE,
    },
    Lie {
        name: "memif: a frame of no bytes",
        tell: |client| transmit(client, &[buffer(0, 0)]),
        expect: Malformed,
    },
    Lie {
        name: "memif: a frame shorter than an Ethernet header",
        tell: |client| transmit(client, &[buffer(0, 13)]),
        expect: Malformed,
    },
    Lie {
        name: "memif: a frame of 64 KiB",
        tell: |client| transmit(client, &[buffer(0, 65_536)]),
        expect: Malformed,
    },
    Lie {
        name: "memif: a frame of 9 buffers of 2 KiB",
        tell: |client| {
            let mut parts = [(NEXT, 0, BUFFER, 0); 9];
            parts[8].0 = 0;
            transmit(client, &parts);
        },
        expect: Malformed,
    },
    Lie {
        name: "memif: a frame in the memory of its ring",
        tell: |client| transmit(client, &[(0, 0, 256, 0x2_0000)]),
        expect: Harmless,
    },
    Lie {
        name: "memif: unknown flags",
        tell: |client| transmit(client, &[(0xfffe, 0, FRAME, 0)]),
        expect: Harmless,
    },
    Lie {
        name: "memif: a frame without an end",
        tell: |client| transmit(client, &[(NEXT, 0, FRAME, 0); 4]),
        expect: Harmless,
    },
    Lie {
        name: "memif: a chain through the whole ring",
        tell: |client| transmit(client, &[(NEXT, 0, FRAME, 0); 16]),
        expect: Refused("a loop or longer than 16 descriptors"),
    },
    Lie {
        name: "memif: a chain of 300 descriptors",
        tell: |client| {
            client.log2_size = 10;
            transmit(client, &[(NEXT, 0, 1, 0); 300]);
        },
        expect: Refused("a loop or longer than 256 descriptors"),
    },
    Lie {
        name: "memif: endless frames of no bytes",
        tell: |client| {
            client.log2_size = 10;
            transmit(client, &[(0, 0, 0, 0); 1024]);
            client.storm(|client| {
                let tail = client.tail(TX);
                client.set_head(TX, tail.wrapping_add(1024));
                client.kick();
            });
        },
        expect: Malformed,
    },
    Lie {
        name: "memif: endless chains of 256 empty buffers",
        tell: |client| {
            client.log2_size = 10;
            let chain: Vec<_> = (1..=1024).map(|n| (u16::from(n % 256 > 0), 0, 0, 0)).collect();
            transmit(client, &chain);
            client.storm(|client| {
                let tail = client.tail(TX);
                client.set_head(TX, tail.wrapping_add(1024));
                client.kick();
            });
        },
        expect: Malformed,
    },
    Lie {
        name: "memif: an empty buffer outside its region",
        tell: |client| receive(client, (0, 0, BUFFER, LEN as u32 - 100)),
        expect: OUTSIDE,
    },
    Lie {
        name: "memif: an empty buffer of 4 GiB",
        tell: |client| receive(client, (0, 0, u32::MAX, 0)),
        expect: OUTSIDE,
    },
    Lie {
        name: "memif: an empty buffer in an unknown region",
        tell: |client| receive(client, (0, 9, BUFFER, 0)),
        expect: OUTSIDE,
    },
    Lie {
        name: "memif: empty buffers of no bytes",
        tell: |client| receive(client, (0, 0, 0, 0)),
        expect: Harmless,
    },
    Lie {
        name: "memif: empty buffers of one byte",
        tell: |client| receive(client, (0, 0, 1, 0x4_0000)),
        expect: Harmless,
    },
    Lie {
        name: "memif: empty buffers that overlap their own ring",
        tell: |client| receive(client, (0, 0, BUFFER, 0)),
        expect: Any,
    },
    // Files and events.
    Lie {
        name: "memif: a file truncated while it is used",
        tell: |client| {
            client.start();
            let memory = client.memory.share();
            let later = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(30));
                memory.truncate(0);
            });
            be_busy(client);
            later.join().expect("a thread");
        },
        expect: Refused("shared memory is lost"),
    },
    Lie {
        name: "memif: a file truncated before CONNECT",
        tell: |client| {
            client.init();
            client.share_all();
            client.ring(RX);
            client.ring(TX);
            client.memory.truncate(0);
            client.connected();
        },
        expect: Any,
    },
    Lie {
        name: "memif: a full, blocking event",
        tell: |client| {
            client.start();
            let event = &client.events[RX];
            fcntl_setfl(event, OFlags::empty()).expect("an eventfd");
            rustix::io::write(event, &(u64::MAX - 1).to_ne_bytes()).expect("room");
            be_busy(client);
        },
        expect: Harmless,
    },
    Lie {
        name: "memif: kicks without end",
        tell: |client| {
            client.start();
            client.storm(|client| client.kick());
        },
        expect: Harmless,
    },
    Lie {
        name: "memif: a client that leaves with frames in flight",
        tell: |client| {
            client.start();
            be_busy(client);
            client.reconnect();
        },
        expect: Left,
    },
];
