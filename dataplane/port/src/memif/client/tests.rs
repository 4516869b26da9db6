//! Tests of a client against servers that violate the protocol.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use dray_shm::{Mapping, MemoryFile};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept, bind, listen, recvmsg, send, socket_with,
};

use crate::{FRAME_LIMIT, Frame, LinkState, Port, PortUri, scratch};

/// A protocol violation by the server.
type Violation<'a> = &'a dyn Fn(&Server);
/// The kind of a message, and its remaining bytes.
type PeerMessage = (u16, Vec<u8>);

/// Number of entries of each ring.
const SIZE: usize = 8;
/// Offset of the ring on which the port receives: after the other one and its buffers.
const RECEIVE_RING: usize = (4096 + SIZE * 2112usize).next_multiple_of(4096);
/// Length of the memory in bytes.
const MEMORY: usize = 2 * RECEIVE_RING;

const FLAGS: usize = 4;
const HEAD: usize = 6;
const TAIL: usize = 64;

/// The server's listening socket.
struct Listener {
    fd: OwnedFd,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Listener {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memif.sock");
        let flags = SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        bind(&fd, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&fd, 8).unwrap();
        Self { fd, path, _folder: folder }
    }

    fn port(&self, more: &str) -> Port {
        let uri = format!("memif:{}?size={SIZE}&wait=poll{more}", self.path.display());
        uri.parse::<PortUri>().unwrap().open().unwrap()
    }

    /// Serves the next client up to the end of the setup.
    fn serve(&self) -> Server {
        let socket = accept(&self.fd).unwrap();
        say(&socket, 2, &hello());
        let init = hear(&socket, 3).0;
        assert_eq!((init[2..8].to_vec(), init[8]), (vec![0, 2, 7, 0, 0, 0], 0));
        say(&socket, 1, &[]);
        let (region, file) = hear(&socket, 4);
        assert_eq!(region[4..12], (MEMORY as u64).to_ne_bytes());
        say(&socket, 1, &[]);
        let file = MemoryFile::from_peer(file.unwrap()).unwrap();
        let memory = Mapping::new(&file, 0, MEMORY as u64).unwrap();
        let rings = [(1, 0), (0, RECEIVE_RING)].map(|(flags, offset)| {
            let (ring, event) = hear(&socket, 5);
            assert_eq!(
                (ring[2], u32::from_ne_bytes(ring[8..12].try_into().unwrap())),
                (flags, offset as u32)
            );
            assert_eq!(ring[12], 3);
            say(&socket, 1, &[]);
            event.unwrap()
        });
        hear(&socket, 6);
        // As VPP and DPDK do before they reply.
        let cookie = |ring: usize| -> u32 {
            // SAFETY: `ring` is the offset of four aligned bytes of the mapping.
            unsafe { memory.start().add(ring).cast::<u32>().read() }
        };
        assert_eq!([cookie(0), cookie(RECEIVE_RING)], [0x3e3_1f20; 2]);
        say(&socket, 7, &[]);
        let [_, event] = rings;
        let server = Server { file, memory, socket, event };
        // The port posts its buffers once it is connected.
        eventually(|| server.index(RECEIVE_RING + HEAD) == SIZE as u16);
        server
    }
}

/// VPP's limits: version 2.0, 256 rings of 2^14 entries.
fn hello() -> Vec<u8> {
    [&[0; 32][..], &[0, 2, 0, 2, 255, 0, 255, 0, 255, 0, 14]].concat()
}

fn say(socket: &OwnedFd, kind: u16, bytes: &[u8]) {
    let mut message = [0; 128];
    message[..2].copy_from_slice(&kind.to_ne_bytes());
    message[2..2 + bytes.len()].copy_from_slice(bytes);
    send(socket, &message, SendFlags::NOSIGNAL).unwrap();
}

fn hear(socket: &OwnedFd, kind: u8) -> ([u8; 128], Option<OwnedFd>) {
    let mut bytes = [0; 128];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let slices = &mut [std::io::IoSliceMut::new(&mut bytes)];
    assert_eq!(recvmsg(socket, slices, &mut ancillary, flags).unwrap().bytes, 128);
    let fd = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    assert_eq!(bytes[0], kind);
    (bytes, fd)
}

fn eventually(mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < Duration::from_secs(20), "timeout");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the last reason for which a server was disconnected.
fn end(port: &Port) -> String {
    let status = || port.link.as_ref().unwrap().status();
    eventually(|| status().last_end.is_some());
    status().last_end.unwrap()
}

/// A server that has received all messages of the setup.
struct Server {
    file: MemoryFile,
    memory: Mapping,
    socket: OwnedFd,
    event: OwnedFd,
}

impl Server {
    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < MEMORY);
        // SAFETY: `offset` is within the mapping.
        unsafe { self.memory.start().add(offset) }
    }

    fn index(&self, offset: usize) -> u16 {
        // SAFETY: two aligned bytes of the mapping.
        unsafe { self.at(offset).cast::<u16>().read_volatile() }
    }

    fn set_index(&self, offset: usize, value: u16) {
        // SAFETY: two aligned bytes of the mapping.
        unsafe { self.at(offset).cast::<u16>().write_volatile(value) }
    }

    /// Returns an entry's flags, length and offset.
    fn descriptor(&self, ring: usize, entry: u16) -> (u16, u32, u32) {
        let at = self.at(ring + 128 + 16 * (usize::from(entry) % SIZE));
        // SAFETY: 16 aligned bytes of the mapping.
        unsafe {
            let words = at.cast::<u32>();
            (at.cast::<u16>().read(), words.add(1).read(), words.add(2).read())
        }
    }

    fn set_descriptor(&self, ring: usize, entry: u16, flags: u16, len: u32) {
        let at = self.at(ring + 128 + 16 * (usize::from(entry) % SIZE));
        // SAFETY: 16 aligned bytes of the mapping.
        unsafe {
            at.cast::<u16>().write(flags);
            at.cast::<u32>().add(1).write(len);
        }
    }

    /// Puts `bytes` into the next empty buffers, at most `part` bytes into each.
    fn send(&self, bytes: &[u8], part: usize) {
        let parts: Vec<&[u8]> = bytes.chunks(part).collect();
        let mut tail = self.index(RECEIVE_RING + TAIL);
        for (index, part) in parts.iter().enumerate() {
            assert_ne!(tail, self.index(RECEIVE_RING + HEAD), "no empty buffer");
            let (_, room, offset) = self.descriptor(RECEIVE_RING, tail);
            assert!(part.len() <= room as usize);
            for (byte, at) in part.iter().zip(offset as usize..) {
                // SAFETY: `at` is within the mapping.
                unsafe { self.at(at).write(*byte) };
            }
            let more = u16::from(index + 1 < parts.len());
            self.set_descriptor(RECEIVE_RING, tail, more, part.len() as u32);
            tail = tail.wrapping_add(1);
        }
        self.set_index(RECEIVE_RING + TAIL, tail);
    }

    /// Returns the next frame that the port transmits, if there is one. Overwrites its buffers, so
    /// that the port has to write every byte of its next frame in them.
    fn receive(&self) -> Option<Vec<u8>> {
        let mut tail = self.index(TAIL);
        if tail == self.index(HEAD) {
            return None;
        }
        let mut frame = Vec::new();
        loop {
            let (flags, len, offset) = self.descriptor(0, tail);
            // SAFETY: the frame's bytes are within the mapping.
            frame.extend(
                (0..len).map(|at| unsafe { self.at((offset + at) as usize).replace(0xee) }),
            );
            tail = tail.wrapping_add(1);
            if flags & 1 == 0 {
                self.set_index(TAIL, tail);
                return Some(frame);
            }
        }
    }
}

fn frame(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number + at) as u8).collect()
}

/// Returns the frames that the port receives without waiting.
fn received(port: &mut Port) -> Vec<Vec<u8>> {
    let (mut all, mut copy) = (Vec::new(), scratch());
    port.rx[0]
        .receive(&mut |frames| {
            all.extend(frames.iter().map(|frame| frame.bytes(&mut copy).to_vec()));
            frames.len()
        })
        .unwrap();
    all
}

#[test]
fn frames_of_every_length_pass_both_ways() {
    let listener = Listener::new();
    let mut port = listener.port("&id=7");
    let server = listener.serve();
    eventually(|| port.tx[0].is_ready());
    for (number, len) in [1, 60, 64, 1514, 2047, 2048, 2049, 4096, 9018, FRAME_LIMIT]
        .into_iter()
        .cycle()
        .take(100)
        .enumerate()
    {
        let wanted = frame(number, len);
        assert_eq!(port.tx[0].transmit(&[Frame::from(&wanted[..])]).unwrap(), 1);
        assert_eq!(server.receive().as_ref(), Some(&wanted), "{len}");
        server.send(&wanted, 2048);
        assert_eq!(received(&mut port), [wanted], "{len}");
    }
    assert_eq!(port.tx[0].pending(), 0);
}

#[test]
fn full_ring_refuses_frames_and_reused_buffers_are_written_whole() {
    let listener = Listener::new();
    let mut port = listener.port("&id=7");
    let server = listener.serve();
    eventually(|| port.tx[0].is_ready());
    // As a sender's: they differ in their first 64 bytes only.
    let sent: Vec<Vec<u8>> =
        (0..20u8).map(|number| [vec![number; 64], vec![7; 1436]].concat()).collect();
    let frames: Vec<Frame<'_>> = sent.iter().map(|frame| Frame::from(&frame[..])).collect();
    let mut done = 0;
    while done < frames.len() {
        let taken = port.tx[0].transmit(&frames[done..]).unwrap();
        assert_eq!(taken, SIZE.min(frames.len() - done));
        assert_eq!(port.tx[0].transmit(&frames[..1]).unwrap(), usize::from(taken < SIZE));
        for frame in &sent[done..done + taken] {
            assert_eq!(server.receive().as_ref(), Some(frame));
        }
        while server.receive().is_some() {}
        done += taken;
    }
}

#[test]
fn untaken_frames_stay_in_ring() {
    let listener = Listener::new();
    let mut port = listener.port("&id=7");
    let server = listener.serve();
    (0..4).for_each(|number| server.send(&frame(number, 3000), 2048 - 100 * number));
    for taken in [1, 0, 2] {
        port.rx[0].receive(&mut |_| taken).unwrap();
    }
    assert_eq!(received(&mut port), [frame(3, 3000)]);
}

#[test]
fn sleeping_side_is_woken() {
    let listener = Listener::new();
    let mut port = listener.port("&id=7");
    let server = listener.serve();
    eventually(|| port.tx[0].is_ready());
    assert_eq!(server.index(RECEIVE_RING + FLAGS), 1, "a port that polls wants no interrupts");
    assert!(!port.rx[0].arm(true));
    assert_eq!(server.index(RECEIVE_RING + FLAGS), 0);
    server.send(&frame(1, 60), 2048);
    rustix::io::write(&server.event, &1u64.to_ne_bytes()).unwrap();
    let event = port.rx[0].event().unwrap();
    let mut fds = [rustix::event::PollFd::new(&event, rustix::event::PollFlags::IN)];
    let limit = rustix::time::Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut fds, Some(&limit)).unwrap(), 1);
    assert!(port.rx[0].arm(true), "there is a frame");
}

/// Whatever a server writes into the memory, the port disconnects it with a reason, and serves the
/// next one.
#[test]
fn server_that_violates_protocol_is_disconnected_with_reason() {
    let listener = Listener::new();
    let mut port = listener.port("&id=7");
    let lies: [(&str, Violation<'_>); 8] = [
        ("ring index jumped", &|server| server.set_index(RECEIVE_RING + TAIL, 9)),
        ("ring index jumped", &|server| server.set_index(RECEIVE_RING + TAIL, 0xffff)),
        ("ring index jumped", &|server| server.set_index(TAIL, 1)),
        ("frame: 2049 bytes in 1", &|server| {
            server.set_descriptor(RECEIVE_RING, 0, 0, 2049);
            server.set_index(RECEIVE_RING + TAIL, 1);
        }),
        ("frame: 0 bytes in 1", &|server| {
            server.set_descriptor(RECEIVE_RING, 0, 0, 0);
            server.set_index(RECEIVE_RING + TAIL, 1);
        }),
        ("frame: 4294967295 bytes in 2", &|server| {
            server.set_descriptor(RECEIVE_RING, 0, 1, 100);
            server.set_descriptor(RECEIVE_RING, 1, 0, u32::MAX);
            server.set_index(RECEIVE_RING + TAIL, 2);
        }),
        // A frame without end, longer than any valid one.
        ("bytes in 5", &|server| {
            (0..8).for_each(|entry| server.set_descriptor(RECEIVE_RING, entry, 1, 2048));
            server.set_index(RECEIVE_RING + TAIL, 8);
        }),
        ("unexpected Ack", &|server| say(&server.socket, 1, &[])),
    ];
    for (why, violation) in lies {
        let server = listener.serve();
        eventually(|| port.tx[0].is_ready());
        let ends = port.link.as_ref().unwrap().status().ends.values().sum::<u64>();
        violation(&server);
        eventually(|| {
            received(&mut port);
            port.tx[0].pending();
            port.link.as_ref().unwrap().status().ends.values().sum::<u64>() > ends
        });
        assert!(end(&port).contains(why), "{why}: {}", end(&port));
        assert!(!port.tx[0].is_ready());
    }
    // The port determines each entry's buffer itself: the offset that the server writes is ignored.
    let server = listener.serve();
    let before = server.descriptor(RECEIVE_RING, 0).2;
    server.send(&frame(3, 100), 2048);
    // SAFETY: this is the offset field of an entry, in the mapping.
    unsafe { server.at(RECEIVE_RING + 128 + 8).cast::<u32>().write(u32::MAX) };
    eventually(|| port.link.as_ref().unwrap().status().state == LinkState::Running);
    assert_eq!(received(&mut port), [frame(3, 100)]);
    assert_eq!(server.descriptor(RECEIVE_RING, 0).2, before, "and set right again");
}

/// A former server that kept its memory neither sees what is sent to the next server nor can send
/// in its name.
#[test]
fn servers_do_not_share_memory() {
    let listener = Listener::new();
    let mut port = listener.port("&id=7");
    let first = listener.serve();
    eventually(|| port.tx[0].is_ready());
    let secret = [0x5e; 100];
    assert_eq!(port.tx[0].transmit(&[Frame::from(&secret[..])]).unwrap(), 1);
    assert_eq!(first.receive().unwrap(), secret);
    let Server { memory: kept, socket, .. } = first;
    drop(socket);
    eventually(|| !port.tx[0].is_ready());

    let second = listener.serve();
    eventually(|| port.tx[0].is_ready());
    let bytes = || -> Vec<u8> {
        // SAFETY: `at` is within the mapping.
        (0..MEMORY).map(|at| unsafe { second.at(at).read_volatile() }).collect()
    };
    assert!(!bytes().windows(16).any(|bytes| bytes == &secret[..16]), "the first one's frames");
    let before = bytes();
    for at in 0..MEMORY {
        // SAFETY: `at` is within the mapping.
        unsafe { kept.start().add(at).write_volatile(0x77) };
    }
    assert!(bytes() == before, "the first one writes into it");
    second.send(&frame(3, 100), 2048);
    assert_eq!(received(&mut port), [frame(3, 100)]);
    assert_eq!(port.link.unwrap().status().state, LinkState::Running);
}

/// A server that reconnects repeatedly, and keeps all memory that it got, does not fill ours.
#[test]
fn memory_of_disconnected_server_is_freed() {
    let listener = Listener::new();
    let mut port = listener.port("&id=7");
    let server = listener.serve();
    eventually(|| port.tx[0].is_ready());
    port.tx[0].transmit(&[Frame::from(&[1; 100][..])]).unwrap();
    assert!(rustix::fs::fstat(&server.file).unwrap().st_blocks > 0);
    let Server { file, memory: _kept, socket, .. } = server;
    drop(socket);
    eventually(|| rustix::fs::fstat(&file).unwrap().st_blocks == 0);
    assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, MEMORY as i64);
}

#[test]
fn reconnects_are_rate_limited() {
    let listener = Listener::new();
    let _port = listener.port("&id=7");
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < Duration::from_secs(1) {
        drop(accept(&listener.fd).unwrap());
        count += 1;
    }
    assert!(count < 40, "{count} connections in a second");
}

#[test]
fn invalid_server_messages_give_disconnect_reason() {
    let listener = Listener::new();
    let port = listener.port("&queues=2");
    let mut few = hello();
    few[38] = 0;
    let mut old = hello();
    old[32..36].copy_from_slice(&[0, 1, 255, 1]);
    let mut small = hello();
    small[42] = 2;
    let no = [&[0; 4][..], b"no such interface"].concat();
    let cases: [(&str, Vec<PeerMessage>); 7] = [
        ("did not send HELLO", vec![(1, vec![])]),
        ("at most 1 queues, not 2", vec![(2, few)]),
        ("versions 0x100 to 0x1ff, not 0x200", vec![(2, old)]),
        ("at most 2^2 ring entries, not 8", vec![(2, small)]),
        ("server disconnected: no such interface", vec![(2, hello()), (8, no)]),
        ("INIT: unexpected Other(77)", vec![(2, hello()), (77, vec![])]),
        ("the peer disconnected", vec![]),
    ];
    for (why, says) in cases {
        let socket = accept(&listener.fd).unwrap();
        let ends = || port.link.as_ref().unwrap().status().ends.values().sum::<u64>();
        let before = ends();
        says.iter().for_each(|(kind, bytes)| say(&socket, *kind, bytes));
        if says.is_empty() {
            drop(socket);
        }
        eventually(|| ends() > before);
        assert!(end(&port).contains(why), "{why}: {}", end(&port));
    }
    let socket = accept(&listener.fd).unwrap();
    send(&socket, &[1, 2, 3], SendFlags::NOSIGNAL).unwrap();
    eventually(|| end(&port).contains("not 128 bytes"));
}

#[test]
fn port_with_silent_server_can_be_closed() {
    let listener = Listener::new();
    let port = listener.port("");
    let _silent = accept(&listener.fd).unwrap();
    let start = Instant::now();
    drop(port);
    assert!(start.elapsed() < Duration::from_secs(4), "closing does not wait for it");
}

#[test]
fn port_waits_for_missing_server() {
    let path = Path::new("/tmp/dray-no-such-memif.sock");
    let uri = format!("memif:{}", path.display());
    let port = uri.parse::<PortUri>().unwrap().open().unwrap();
    assert!(!port.tx[0].is_ready());
    assert_eq!(port.link.unwrap().status().state, LinkState::Waiting);
}
