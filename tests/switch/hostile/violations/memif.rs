//! HostilePeer of a memif client.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_setfl};

use crate::hostile::Expect::{self, Any, Harmless, Left, Malformed, Refused, Unnoticed};
use crate::hostile::client::{
    ACK, ADD_REGION, BUFFER, CONNECTED, Client, DISCONNECT, Descriptor, HELLO, INIT, NEXT, RX,
    Ring, TX, buffer, connect,
};
use crate::hostile::memory::{LEN, Memory};
use crate::hostile::{Violation, violation, wait_until};

const JUMP: Expect = Refused("ring index jumped");
const OUTSIDE: Expect = Refused("is outside the shared memory");
/// Length of a valid frame.
const FRAME: u32 = 64;

type MemifLie = Violation<Client>;

/// Starts, and transmits these descriptors.
fn transmit(client: &mut Client, descriptors: &[Descriptor]) {
    client.start();
    for (entry, descriptor) in (0..).zip(descriptors) {
        client.descriptor(TX, entry, *descriptor);
    }
    client.set_head(TX, descriptors.len() as u16);
    client.kick();
}

/// Makes all 1024 descriptors available again.
fn repost(client: &mut Client) {
    client.set_head(TX, client.tail(TX).wrapping_add(1024));
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

pub(super) const VIOLATIONS: &[MemifLie] = &[
    // The one that takes longest comes first.
    violation("memif: no message", Unnoticed, |client| assert!(wait_until(|| client.is_hung_up()))),
    violation("memif: nothing after INIT", Refused("CONNECT: no message for 5s"), |client| {
        client.init();
        wait_until(|| client.is_hung_up());
    }),
    violation("memif: 200 connections without a message", Harmless, |client| {
        let sockets: Vec<_> = (0..200).map(|_| connect(client.path())).collect();
        client.keep(sockets);
        client.reconnect();
        client.start();
    }),
    violation("memif: a second client", Harmless, |client| {
        client.start();
        let second = Client::connect(client.path());
        second.init();
        assert!(wait_until(|| second.is_hung_up()));
    }),
    violation("memif: connections without end", Harmless, |client| {
        client.storm(Client::reconnect);
        client.start();
    }),
    violation("memif: handshakes without end", Any, |client| {
        client.storm(|client| {
            client.reconnect();
            client.init();
            client.share_all();
        });
    }),
    // Messages.
    violation("memif: a short message", Refused("message is not 128 bytes long"), |client| {
        client.init();
        client.raw(&[4, 0, 0], &[]);
    }),
    violation("memif: a long message", Refused("message is not 128 bytes long"), |client| {
        client.init();
        client.raw(&[4; 4000], &[]);
    }),
    violation("memif: an empty message", Any, |client| {
        client.init();
        client.raw(&[], &[]);
    }),
    violation(
        "memif: a message of an unknown kind",
        Refused("CONNECT: unexpected Other(77)"),
        |client| {
            client.init();
            client.send(77, &[], &[]);
        },
    ),
    violation("memif: a second INIT", Refused("CONNECT: unexpected Init"), |client| {
        client.init();
        client.init_with(0, 2 << 8, 0, &[]);
    }),
    violation("memif: messages of a server", Refused("CONNECT: unexpected Hello"), |client| {
        client.init();
        client.send(HELLO, &[0xff; 60], &[]);
        client.send(CONNECTED, &[], &[]);
        client.send(ACK, &[], &[]);
    }),
    violation("memif: an unknown version", Refused("INIT: version 0x100, not 0x200"), |client| {
        client.receive();
        client.init_with(0, 1 << 8, 0, &[]);
    }),
    violation("memif: frames without Ethernet headers", Refused("INIT: mode 1, not 0"), |client| {
        client.receive();
        client.init_with(0, 2 << 8, 1, &[]);
    }),
    violation("memif: an unknown id", Unnoticed, |client| {
        client.receive();
        client.init_with(u32::MAX, 2 << 8, 0, &[]);
        assert_eq!(client.receive(), Some(DISCONNECT));
    }),
    violation("memif: INIT with a descriptor", Harmless, |client| {
        client.receive();
        client.send(INIT, &[0, 2], &[client.memory.as_fd()]);
        client.receive();
        client.share_all();
        client.ring(RX);
        client.ring(TX);
        client.connected();
    }),
    violation("memif: a message after CONNECT", Refused("unexpected AddRegion"), |client| {
        client.start();
        client.send(ADD_REGION, &[], &[client.memory.as_fd()]);
    }),
    violation(
        "memif: messages without waiting for replies",
        Refused("CONNECT: unexpected Ack"),
        |client| {
            client.init();
            (0..1000).for_each(|_| client.send(ACK, &[], &[]));
        },
    ),
    violation(
        "memif: a reason with control characters",
        Refused("client disconnected: ?[2J"),
        |client| {
            client.init();
            client.send(DISCONNECT, &[0, 0, 0, 0, 0x1b, b'[', b'2', b'J'], &[]);
        },
    ),
    // Regions.
    violation(
        "memif: a region without a descriptor",
        Refused("region 0: 0 file descriptors: expected 1"),
        |client| region(client, LEN, &[]),
    ),
    violation(
        "memif: a region with 60 descriptors",
        Refused("region 0: 60 file descriptors: expected 1"),
        |client| {
            let memory = Memory::new();
            region(client, LEN, &[memory.as_fd(); 60]);
        },
    ),
    violation("memif: a region that is a pipe", Refused("allowed is a memfd"), |client| {
        let (pipe, _) = rustix::pipe::pipe().expect("a pipe");
        region(client, LEN, &[pipe.as_fd()]);
    }),
    violation("memif: a region that is a program", Refused("allowed is a memfd"), |client| {
        let file = File::open("/proc/self/exe").expect("this program");
        region(client, 4096, &[file.as_fd()]);
    }),
    violation("memif: a region of no bytes", Refused("region 0: 0 bytes"), |client| {
        let memory = Memory::new();
        region(client, 0, &[memory.as_fd()]);
    }),
    violation(
        "memif: a region longer than its file",
        Refused("1048577 bytes do not fit the file of 1048576 bytes"),
        |client| {
            let memory = Memory::new();
            region(client, LEN + 1, &[memory.as_fd()]);
        },
    ),
    violation("memif: a region of 2^64 - 1 bytes", Refused("bytes of memory: at most"), |client| {
        let memory = Memory::new();
        region(client, u64::MAX, &[memory.as_fd()]);
    }),
    violation(
        "memif: a region with a gap before it",
        Refused("region 1: expected region 0"),
        |client| {
            client.init();
            client.region(1, LEN, &[client.memory.as_fd()]);
        },
    ),
    violation("memif: region 0 twice", Refused("region 0: expected region 1"), |client| {
        client.init();
        client.share_all();
        client.share_all();
    }),
    violation(
        "memif: 33 regions",
        Refused("33 memory regions: at most 32 are allowed"),
        |client| {
            client.init();
            (0..33).for_each(|index| client.region(index, LEN, &[client.memory.as_fd()]));
        },
    ),
    // Rings before they run.
    violation(
        "memif: a ring without a descriptor",
        Refused("ring 0 from the client: 0 file descriptors: expected 1"),
        |client| {
            client.init();
            client.ring_with(client.place(TX), &[]);
        },
    ),
    violation("memif: a ring whose event is memory", Refused("is not an eventfd"), |client| {
        client.init();
        client.ring_with(client.place(TX), &[client.memory.as_fd()]);
    }),
    violation(
        "memif: a ring with a gap before it",
        Refused("ring 7 from the client: expected ring 0"),
        |client| ring(client, |ring| ring.index = 7),
    ),
    violation(
        "memif: more rings than the interface has",
        Refused("ring 1 from the client: the interface has 1"),
        |client| {
            client.init();
            client.share_all();
            client.ring(TX);
            let more = Ring { index: 1, ..client.place(TX) };
            client.ring_with(more, &[client.events[TX].as_fd()]);
        },
    ),
    violation(
        "memif: a ring of one entry",
        Refused("2^0 entries: allowed are 2 to 16384"),
        |client| {
            ring(client, |ring| ring.log2_size = 0);
        },
    ),
    violation(
        "memif: a ring of 2^15 entries",
        Refused("2^15 entries: allowed are 2 to 16384"),
        |client| ring(client, |ring| ring.log2_size = 15),
    ),
    violation("memif: a ring of 2^255 entries", Refused("2^255 entries"), |client| {
        ring(client, |ring| ring.log2_size = 255);
    }),
    violation(
        "memif: frames with private headers",
        Refused("private headers of frames are not supported: 4 bytes"),
        |client| ring(client, |ring| ring.header_len = 4),
    ),
    violation(
        "memif: CONNECT without a ring",
        Refused("CONNECT: needs a ring in each direction"),
        |client| {
            client.init();
            client.share_all();
            client.connected();
        },
    ),
    violation(
        "memif: a ring in an unknown region",
        Refused("of region 1 are not shared"),
        |client| {
            connect_with(client, |ring| ring.region = 1);
        },
    ),
    violation(
        "memif: a ring in region 65535",
        Refused("of region 65535 are not shared"),
        |client| {
            connect_with(client, |ring| ring.region = 65_535);
        },
    ),
    violation(
        "memif: a ring across the end of its region",
        Refused("384 bytes at offset 1048512 of region 0 are not shared"),
        |client| connect_with(client, |ring| ring.offset = LEN as u32 - 64),
    ),
    violation(
        "memif: a ring at the last offset",
        Refused("at offset 4294967295 of region 0 are not shared"),
        |client| connect_with(client, |ring| ring.offset = u32::MAX),
    ),
    violation("memif: a ring at an odd offset", Refused("aligned"), |client| {
        connect_with(client, |ring| ring.offset += 4);
    }),
    violation(
        "memif: a ring without a cookie",
        Refused("ring begins with 0x0 instead of memif's cookie"),
        |client| connect_with(client, |ring| ring.offset += 0x1_0000),
    ),
    violation("memif: one ring in both directions", Any, |client| {
        connect_with(client, |ring| ring.offset = 0);
        (0..16).for_each(|number| client.post(RX, buffer(number, BUFFER)));
        client.kick();
    }),
    // Indices.
    violation("memif: a head that jumps ahead", JUMP, |client| {
        client.start();
        client.set_head(TX, 17);
        client.kick();
    }),
    violation("memif: a head that goes backwards", JUMP, |client| {
        client.start();
        (0..4).for_each(|number| client.post(TX, buffer(number, FRAME)));
        client.kick();
        wait_until(|| client.tail(TX) == 4);
        client.set_head(TX, 3);
        client.kick();
    }),
    violation("memif: a head of received frames that jumps ahead", JUMP, |client| {
        client.start();
        client.set_head(RX, 0x8000);
    }),
    violation("memif: overwritten tails", Harmless, |client| {
        client.start();
        client.set_tail(RX, 0x8000);
        client.set_tail(TX, 0xffff);
        (0..4).for_each(|number| client.post(TX, buffer(number, FRAME)));
        client.kick();
    }),
    // Descriptors.
    violation("memif: a frame in an unknown region", OUTSIDE, |client| {
        transmit(client, &[(0, 1, FRAME, 0)]);
    }),
    violation(
        "memif: a frame in region 65535",
        Refused("at offset 0 of region 65535 is outside the shared memory"),
        |client| transmit(client, &[(0, 0xffff, FRAME, 0)]),
    ),
    violation("memif: a frame past the end of its region", OUTSIDE, |client| {
        transmit(client, &[(0, 0, FRAME, LEN as u32)]);
    }),
    violation("memif: a frame across the end of its region", OUTSIDE, |client| {
        transmit(client, &[(0, 0, FRAME, LEN as u32 - FRAME + 1)]);
    }),
    violation("memif: a frame at the last offset", OUTSIDE, |client| {
        transmit(client, &[(0, 0, FRAME, u32::MAX)]);
    }),
    violation("memif: a part of a frame outside its region", OUTSIDE, |client| {
        transmit(client, &[(NEXT, 0, FRAME, 0), (0, 0, FRAME, LEN as u32)]);
    }),
    violation("memif: a frame of 4 GiB", OUTSIDE, |client| {
        transmit(client, &[(0, 0, u32::MAX, 0)]);
    }),
    violation("memif: a frame of no bytes", Malformed, |client| transmit(client, &[buffer(0, 0)])),
    violation("memif: a frame shorter than an Ethernet header", Malformed, |client| {
        transmit(client, &[buffer(0, 13)]);
    }),
    violation("memif: a frame of 64 KiB", Malformed, |client| {
        transmit(client, &[buffer(0, 65_536)]);
    }),
    violation("memif: a frame of 9 buffers of 2 KiB", Malformed, |client| {
        let mut parts = [(NEXT, 0, BUFFER, 0); 9];
        parts[8].0 = 0;
        transmit(client, &parts);
    }),
    violation("memif: a frame in the memory of its ring", Harmless, |client| {
        transmit(client, &[(0, 0, 256, 0x2_0000)]);
    }),
    violation("memif: unknown flags", Harmless, |client| {
        transmit(client, &[(0xfffe, 0, FRAME, 0)]);
    }),
    violation("memif: a frame without an end", Harmless, |client| {
        transmit(client, &[(NEXT, 0, FRAME, 0); 4]);
    }),
    violation(
        "memif: a chain through the whole ring",
        Refused("a loop or longer than 16 descriptors"),
        |client| transmit(client, &[(NEXT, 0, FRAME, 0); 16]),
    ),
    violation(
        "memif: a chain of 300 descriptors",
        Refused("a loop or longer than 256 descriptors"),
        |client| {
            client.log2_size = 10;
            transmit(client, &[(NEXT, 0, 1, 0); 300]);
        },
    ),
    violation("memif: endless frames of no bytes", Malformed, |client| {
        client.log2_size = 10;
        transmit(client, &[(0, 0, 0, 0); 1024]);
        client.storm(repost);
    }),
    violation("memif: endless chains of 256 empty buffers", Malformed, |client| {
        client.log2_size = 10;
        let chain: Vec<_> = (1..=1024).map(|n| (u16::from(n % 256 > 0), 0, 0, 0)).collect();
        transmit(client, &chain);
        client.storm(repost);
    }),
    violation("memif: an empty buffer outside its region", OUTSIDE, |client| {
        receive(client, (0, 0, BUFFER, LEN as u32 - 100));
    }),
    violation("memif: an empty buffer of 4 GiB", OUTSIDE, |client| {
        receive(client, (0, 0, u32::MAX, 0));
    }),
    violation("memif: an empty buffer in an unknown region", OUTSIDE, |client| {
        receive(client, (0, 9, BUFFER, 0));
    }),
    violation("memif: empty buffers of no bytes", Harmless, |client| receive(client, (0, 0, 0, 0))),
    violation("memif: empty buffers of one byte", Harmless, |client| {
        receive(client, (0, 0, 1, 0x4_0000));
    }),
    violation("memif: empty buffers that overlap their own ring", Any, |client| {
        receive(client, (0, 0, BUFFER, 0));
    }),
    // Files and events.
    violation(
        "memif: a file truncated while it is used",
        Refused("shared memory is lost"),
        |client| {
            client.start();
            let memory = client.memory.share();
            let later = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(30));
                memory.truncate(0);
            });
            be_busy(client);
            later.join().expect("a thread");
        },
    ),
    violation("memif: a file truncated before CONNECT", Any, |client| {
        client.init();
        client.share_all();
        client.ring(RX);
        client.ring(TX);
        client.memory.truncate(0);
        client.connected();
    }),
    violation("memif: a full, blocking event", Harmless, |client| {
        client.start();
        let event = &client.events[RX];
        fcntl_setfl(event, OFlags::empty()).expect("an eventfd");
        rustix::io::write(event, &(u64::MAX - 1).to_ne_bytes()).expect("room");
        be_busy(client);
    }),
    violation("memif: kicks without end", Harmless, |client| {
        client.start();
        client.storm(|client| client.kick());
    }),
    violation("memif: a client that leaves with frames in flight", Left, |client| {
        client.start();
        be_busy(client);
        client.reconnect();
    }),
];
