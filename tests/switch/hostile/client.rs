//! A memif client that can violate the protocol: messages, and a ring in each direction.

use std::any::Any;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, recvmsg, sendmsg, socket_with,
};
use rustix::time::Timespec;

use super::memory::{BUFFERS, LEN, Memory};

/// Kinds of messages.
pub const ACK: u16 = 1;
pub const HELLO: u16 = 2;
pub const INIT: u16 = 3;
pub const ADD_REGION: u16 = 4;
pub const ADD_RING: u16 = 5;
pub const CONNECT: u16 = 6;
pub const CONNECTED: u16 = 7;
pub const DISCONNECT: u16 = 8;

/// The two rings, by their index here: the one to the client, and the one from it.
pub const RX: usize = 0;
pub const TX: usize = 1;
/// Flag of a descriptor: the frame continues in the next one.
pub const NEXT: u16 = 1;

const COOKIE: u32 = 0x3e3_1f20;
/// Distance between the rings.
const RING_LEN: u64 = 0x2_0000;
/// Length of a buffer of the client.
pub const BUFFER: u32 = 2048;

/// Time within which the other side replies.
const REPLY: Duration = Duration::from_secs(2);

/// A ring as ADD_RING describes it.
#[derive(Clone, Copy)]
pub struct Ring {
    pub flags: u16,
    pub index: u16,
    pub region: u16,
    pub offset: u32,
    pub log2_size: u8,
    pub header_len: u16,
}

/// Flags, region, length and offset.
pub type Descriptor = (u16, u16, u32, u32);

/// A client with a connected socket that has sent nothing yet. Messages sent after a disconnect are
/// discarded.
pub struct Client {
    path: PathBuf,
    socket: OwnedFd,
    pub memory: Memory,
    /// Number of entries of each ring, as a power of two.
    pub log2_size: u8,
    /// Events, by ring.
    pub events: [OwnedFd; 2],
    /// Heads, by ring.
    heads: [u16; 2],
    /// Objects that must live as long as the client.
    kept: Vec<Box<dyn Any + Send>>,
}

/// Returns a descriptor of a whole buffer.
pub fn buffer(number: u16, len: u32) -> Descriptor {
    (0, 0, len, BUFFERS as u32 + u32::from(number) * BUFFER)
}

impl Client {
    /// Creates a client on a connected socket.
    pub fn over(socket: OwnedFd) -> Self {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("eventfd");
        Self {
            path: PathBuf::new(),
            socket,
            memory: Memory::new(),
            log2_size: 4,
            events: [event(), event()],
            heads: [0, 0],
            kept: Vec::new(),
        }
    }

    pub fn connect(path: &Path) -> Self {
        let mut client = Self::over(connect(path));
        path.clone_into(&mut client.path);
        client
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Disconnects and connects again.
    pub fn reconnect(&mut self) {
        self.socket = connect(&self.path);
        self.heads = [0, 0];
    }

    pub fn keep(&mut self, what: impl Any + Send) {
        self.kept.push(Box::new(what));
    }

    /// Returns true if the other side has disconnected.
    pub fn is_hung_up(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let _ = poll(&mut fds, Some(&Timespec::default()));
        !fds[0].revents().is_empty()
    }

    /// Sends bytes unchanged.
    pub fn raw(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)), "room for descriptors");
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // Sending fails after a disconnect, and if the other side does not read.
        let _ = sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut ancillary, flags);
    }

    pub fn send(&self, kind: u16, body: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut message = [&kind.to_ne_bytes()[..], body].concat();
        message.resize(128, 0);
        self.raw(&message, fds);
    }

    /// Returns the kind of the next message; `None` if the other side disconnects or sends nothing.
    pub fn receive(&self) -> Option<u16> {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let limit = Timespec { tv_sec: REPLY.as_secs() as i64, tv_nsec: 0 };
        let _ = poll(&mut fds, Some(&limit));
        let mut bytes = [0; 128];
        let slices = &mut [IoSliceMut::new(&mut bytes)];
        let received =
            recvmsg(&self.socket, slices, &mut Default::default(), RecvFlags::DONTWAIT).ok()?;
        (received.bytes == 128).then(|| u16::from_ne_bytes([bytes[0], bytes[1]]))
    }

    /// Requests an interface, with this version, mode and secret.
    pub fn init_with(&self, id: u32, version: u16, mode: u8, secret: &[u8]) {
        let head = [&version.to_ne_bytes()[..], &id.to_ne_bytes(), &[mode], secret].concat();
        self.send(INIT, &head, &[]);
    }

    /// Waits for HELLO and requests interface 0.
    pub fn init(&self) {
        self.receive();
        self.init_with(0, 2 << 8, 0, &[]);
        self.receive();
    }

    pub fn region(&self, index: u16, len: u64, fds: &[BorrowedFd<'_>]) {
        let body = [&index.to_ne_bytes()[..], &len.to_ne_bytes()].concat();
        self.send(ADD_REGION, &body, fds);
        self.receive();
    }

    pub fn share_all(&self) {
        self.region(0, LEN, &[self.memory.as_fd()]);
    }

    /// Returns the conforming description of a ring.
    pub fn place(&self, ring: usize) -> Ring {
        Ring {
            flags: ring as u16,
            index: 0,
            region: 0,
            offset: (ring as u64 * RING_LEN) as u32,
            log2_size: self.log2_size,
            header_len: 0,
        }
    }

    pub fn ring_with(&self, ring: Ring, fds: &[BorrowedFd<'_>]) {
        let Ring { flags, index, region, offset, log2_size, header_len } = ring;
        let [flags, index, region] = [flags, index, region].map(u16::to_ne_bytes);
        let body = [&flags[..], &index, &region, &offset.to_ne_bytes(), &[log2_size]].concat();
        self.send(ADD_RING, &[body, header_len.to_ne_bytes().to_vec()].concat(), fds);
        self.receive();
    }

    /// Makes a ring empty and adds it.
    pub fn ring(&self, ring: usize) {
        self.memory.write(ring as u64 * RING_LEN, &COOKIE.to_ne_bytes());
        self.ring_with(self.place(ring), &[self.events[ring].as_fd()]);
    }

    pub fn connected(&self) {
        self.send(CONNECT, b"peer", &[]);
        self.receive();
    }

    /// Performs an conforming handshake. Afterwards both rings run and are empty.
    pub fn start(&mut self) {
        self.init();
        self.share_all();
        self.ring(RX);
        self.ring(TX);
        self.connected();
    }

    /// Writes a descriptor.
    pub fn descriptor(&self, ring: usize, entry: u16, descriptor: Descriptor) {
        let (flags, region, len, offset) = descriptor;
        let [len, offset] = [len, offset].map(u32::to_ne_bytes);
        let bytes = [&flags.to_ne_bytes()[..], &region.to_ne_bytes(), &len, &offset].concat();
        let at = 128 + 16 * u64::from(entry % (1 << self.log2_size));
        self.memory.write(ring as u64 * RING_LEN + at, &bytes);
    }

    /// Writes the next descriptor, and makes it visible.
    pub fn post(&mut self, ring: usize, descriptor: Descriptor) {
        self.descriptor(ring, self.heads[ring], descriptor);
        self.set_head(ring, self.heads[ring].wrapping_add(1));
    }

    pub fn set_head(&mut self, ring: usize, head: u16) {
        self.heads[ring] = head;
        self.memory.write(ring as u64 * RING_LEN + 6, &head.to_ne_bytes());
    }

    pub fn set_tail(&self, ring: usize, tail: u16) {
        self.memory.write(ring as u64 * RING_LEN + 64, &tail.to_ne_bytes());
    }

    pub fn head(&self, ring: usize) -> u16 {
        self.heads[ring]
    }

    pub fn tail(&self, ring: usize) -> u16 {
        self.memory.read_u16(ring as u64 * RING_LEN + 64)
    }

    /// Signals the event of the ring from the client, which wakes a server that sleeps.
    pub fn kick(&self) {
        let _ = rustix::io::write(&self.events[TX], &1u64.to_ne_bytes());
    }

    /// Repeats `what` for a second, or until the client is disconnected.
    pub fn storm(&mut self, mut what: impl FnMut(&mut Self)) {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(1) && !self.is_hung_up() {
            what(self);
        }
    }
}

/// Connects to a packet socket.
pub fn connect(path: &Path) -> OwnedFd {
    let start = Instant::now();
    let address = SocketAddrUnix::new(path).expect("a short path");
    loop {
        let kind = SocketType::SEQPACKET;
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let socket = socket.expect("a socket");
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return socket,
            Err(error) if start.elapsed() > Duration::from_secs(20) => panic!("{path:?}: {error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}
