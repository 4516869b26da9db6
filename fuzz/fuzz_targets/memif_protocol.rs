//! A server that sends any message to a memif port, and writes anything into the memory that the
//! port shares, while frames are moved: no panic, no hang, and the port can be closed. Then a
//! second server, which sees neither the first one's frames nor what the first one writes into
//! memory that it has kept.
#![no_main]

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use dray_port::memif::{MemifUri, Role};
use dray_port::{Wait, scratch};
use dray_socket::{SocketName};
use dray_shm::{Mapping, MemoryFile};
use libfuzzer_sys::fuzz_target;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::time::Timespec;

#[path = "../../dataplane/ring/tests/ring/bytes.rs"]
#[allow(dead_code, reason = "each target uses a part of it")]
mod bytes;
#[allow(dead_code, reason = "each target uses a part of it")]
mod peer;

use bytes::Bytes;
use peer::{HANG, exchange};

/// Time within which a port replies or disconnects.
const ANSWER: Duration = Duration::from_secs(1);

/// Message types.
const ACK: u16 = 1;
const HELLO: u16 = 2;
const ADD_REGION: u16 = 4;
const ADD_RING: u16 = 5;
const CONNECT: u16 = 6;
const CONNECTED: u16 = 7;

/// Offsets of a ring's parts.
const FLAGS: usize = 4;
const HEAD: usize = 6;
const TAIL: usize = 64;
const DESCRIPTORS: usize = 128;

/// Builds a message from its type and body.
fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut message = kind.to_ne_bytes().to_vec();
    message.extend(body);
    message.resize(128, 0);
    message
}

/// VPP's hello: version 2.0, 256 rings of 2^14 entries.
fn hello() -> Vec<u8> {
    [&[0; 32][..], &[0, 2, 0, 2, 255, 0, 255, 0, 255, 0, 14]].concat()
}

/// The server's end, and what the port has sent.
struct Server {
    socket: OwnedFd,
    memory: Option<Mapping>,
    /// Offsets of the rings, in the order in which they were added.
    rings: Vec<usize>,
    /// Number of entries of each ring.
    size: usize,
    /// Files of the memory and of the rings' events.
    files: Vec<OwnedFd>,
}

impl Server {
    fn new(socket: OwnedFd) -> Self {
        Self { socket, memory: None, rings: Vec::new(), size: 1, files: Vec::new() }
    }

    fn has_run_of(&self, byte: u8) -> bool {
        let memory = self.memory.as_ref().expect("memory");
        // SAFETY: within the mapping.
        let at = |at| unsafe { memory.start().add(at).read_volatile() };
        let is = |start| (0..16).all(|offset| at(start + offset) == byte);
        (0..memory.len()).step_by(16).any(is)
    }

    fn say(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)), "room for descriptors");
        }
        // Messages are lost after a disconnect, or if the port does not read.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut ancillary, flags);
    }

    /// Receives the port's next message and returns its type; `None` if the port has disconnected
    /// or sends nothing for `patience`.
    fn hear(&mut self, patience: Duration) -> Option<u16> {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let limit = Timespec { tv_sec: 0, tv_nsec: patience.as_nanos().min(999_999_999) as i64 };
        if !matches!(poll(&mut fds, Some(&limit)), Ok(1..)) {
            return None;
        }
        let mut bytes = [0; 128];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let heard = recvmsg(&self.socket, slices, &mut ancillary, flags).ok()?;
        if heard.bytes == 0 {
            return None;
        }
        assert_eq!(heard.bytes, 128, "a message of a port");
        let fd = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let kind = u16::from_ne_bytes([bytes[0], bytes[1]]);
        match kind {
            ADD_REGION => {
                let fd = fd.expect("memory");
                self.files.push(fd.try_clone().expect("a descriptor"));
                let file = MemoryFile::from_peer(fd).expect("memory");
                self.memory = Some(Mapping::new(&file, 0, file.len()).expect("memory"));
            }
            ADD_RING => {
                self.files.push(fd.expect("an event"));
                let offset = [bytes[8], bytes[9], bytes[10], bytes[11]];
                self.rings.push(u32::from_ne_bytes(offset) as usize);
                self.size = 1 << bytes[12];
            }
            _ => {}
        }
        Some(kind)
    }

    /// Performs up to `messages` messages of an honest handshake. Returns true if it is complete.
    fn introduce(&mut self, messages: u8) -> bool {
        self.say(&message(HELLO, &hello()), &[]);
        for _ in 0..messages {
            match self.hear(ANSWER) {
                Some(CONNECT) => {
                    self.say(&message(CONNECTED, &[]), &[]);
                    return true;
                }
                Some(_) => self.say(&message(ACK, &[]), &[]),
                None => return false,
            }
        }
        false
    }

    fn has_left(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let _ = poll(&mut fds, Some(&Timespec::default()));
        !fds[0].revents().is_empty()
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        let memory = self.memory.as_ref().expect("memory");
        assert!(at + bytes.len() <= memory.len(), "{at}");
        for (byte, at) in bytes.iter().zip(at..) {
            // SAFETY: within the mapping.
            unsafe { memory.start().add(at).write_volatile(*byte) };
        }
    }

    fn index(&self, at: usize) -> u16 {
        let memory = self.memory.as_ref().expect("memory");
        assert!(at + 2 <= memory.len() && at.is_multiple_of(2), "{at}");
        // SAFETY: within the mapping, and aligned.
        unsafe { memory.start().add(at).cast::<u16>().read_volatile() }
    }

    /// Writes into a ring or anywhere else: most often what an honest server could write.
    fn scribble(&self, bytes: &mut Bytes<'_>) {
        let (Some(memory), false) = (&self.memory, self.rings.is_empty()) else { return };
        let ring = self.rings[usize::from(bytes.byte()) % self.rings.len()];
        let (head, tail) = (self.index(ring + HEAD), self.index(ring + TAIL));
        let posted = head.wrapping_sub(tail);
        match bytes.byte() % 8 {
            0 => {
                let at = bytes.u32() as usize % (memory.len() - 8);
                self.write(at, &bytes.u64().to_ne_bytes());
            }
            1 => self.write(ring + TAIL, &bytes.u16().to_ne_bytes()),
            2 => self.write(ring + FLAGS, &bytes.u16().to_ne_bytes()),
            3 => self.write(ring + HEAD, &bytes.u16().to_ne_bytes()),
            // As many frames as the bytes say: most often no more than there are entries.
            _ => {
                let count = match bytes.byte() {
                    0 => posted.wrapping_add(1),
                    255 => posted,
                    byte => u16::from(byte % 64).min(posted),
                };
                let (lie, parts) = (bytes.byte(), u16::from(bytes.byte() % 6) + 1);
                for number in 0..count {
                    let len = match lie {
                        0 => 0,
                        1 => 2049,
                        2 => bytes.u32(),
                        _ => 1 + u32::from(bytes.u16()) % 2048,
                    };
                    let more = match lie {
                        3 => u16::from(bytes.byte()),
                        _ => u16::from(!(number + 1).is_multiple_of(parts)),
                    };
                    let entry = usize::from(tail.wrapping_add(number)) % self.size;
                    let at = ring + DESCRIPTORS + 16 * entry;
                    self.write(at, &more.to_ne_bytes());
                    self.write(at + 4, &len.to_ne_bytes());
                }
                self.write(ring + TAIL, &tail.wrapping_add(count).to_ne_bytes());
            }
        }
    }

    /// Sends a valid message at any time, one that is partly invalid, or any bytes.
    fn speak(&self, bytes: &mut Bytes<'_>) {
        let mut body = match bytes.byte() % 4 {
            0 => hello(),
            1 => vec![0; usize::from(bytes.byte() % 128)],
            _ => (0..bytes.byte() % 128).map(|_| bytes.byte()).collect(),
        };
        for _ in 0..bytes.byte() % 3 {
            let at = usize::from(bytes.byte()) % (body.len() + 1);
            let byte = bytes.byte();
            body.get_mut(at).into_iter().for_each(|wrong| *wrong = byte);
        }
        let mut message = message(u16::from(bytes.byte() % 12), &body);
        if bytes.byte() < 16 {
            message.resize(usize::from(bytes.byte()), 0);
        }
        let fds: Vec<_> =
            self.files.iter().map(AsFd::as_fd).take(usize::from(bytes.byte() % 5)).collect();
        self.say(&message, &fds);
    }

    /// Misuses the files that the server received.
    fn misuse(&self, bytes: &mut Bytes<'_>) {
        let Some(file) = self.files.get(usize::from(bytes.byte() % 4)) else { return };
        // The memory cannot be shrunk. An event can be filled, and then made blocking.
        let _ = rustix::fs::ftruncate(file, bytes.u32().into());
        let _ = fcntl_setfl(file, OFlags::NONBLOCK);
        let _ = rustix::io::write(file, &(u64::MAX - 1).to_ne_bytes());
        let _ = fcntl_setfl(file, OFlags::empty());
    }
}

fuzz_target!(|input: &[u8]| {
    let start = Instant::now();
    let mut bytes = Bytes(input);
    let (flags, family) = (SocketFlags::CLOEXEC, AddressFamily::UNIX);
    let pair =
        || socketpair(family, SocketType::SEQPACKET, flags, None).expect("a pair of sockets");
    let [(ours, theirs), (next_ours, next_theirs)] = [pair(), pair()];
    let uri = MemifUri {
        socket: SocketName::File("nowhere".into()),
        id: bytes.byte().into(),
        secret: String::new(),
        queues: 1 + u16::from(bytes.byte() == 0),
        role: Role::Client {
            size: (1 << (1 + bytes.byte() % 6)).try_into().expect("a power of two"),
        },
        wait: Wait::Poll { pause_us: 0 },
    };
    let mut port = uri.open_over(vec![ours, next_ours]).expect("eventfds and a thread");
    let mut scratch = scratch();
    let mut server = Server::new(theirs);
    // Most inputs begin with running rings.
    let messages = bytes.byte();
    let is_introduced = server.introduce(if messages < 64 { messages % 8 } else { 16 });
    let wait = Instant::now();
    while is_introduced && !port.tx[0].is_ready() && !server.has_left() {
        assert!(wait.elapsed() < HANG, "it never runs");
        std::thread::yield_now();
    }
    while !bytes.is_empty() && !server.has_left() {
        match bytes.byte() % 16 {
            0 => server.speak(&mut bytes),
            1 => drop(server.hear(Duration::from_millis(1))),
            2 => server.misuse(&mut bytes),
            3..=9 => server.scribble(&mut bytes),
            _ => exchange(&mut port, &mut scratch, usize::from(bytes.byte() % 32), 1),
        }
    }
    exchange(&mut port, &mut scratch, 8, 1);
    let kept = server.memory.take();
    drop(server);
    exchange(&mut port, &mut scratch, 8, 1);
    let mut next = Server::new(next_theirs);
    if let (true, Some(kept)) = (next.introduce(64), kept) {
        // Frames that `exchange` transmits, and bytes written now.
        assert!(!next.has_run_of(0x5a), "peer sees frames of its predecessor");
        for at in 0..kept.len() {
            // SAFETY: within the mapping.
            unsafe { kept.start().add(at).write_volatile(0x77) };
        }
        exchange(&mut port, &mut scratch, 8, 1);
        assert!(!next.has_run_of(0x77), "predecessor writes into the memory");
        assert!(!next.has_left(), "predecessor caused a disconnect");
    }
    drop(port);
    assert!(start.elapsed() < HANG, "{:?}", start.elapsed());
});
