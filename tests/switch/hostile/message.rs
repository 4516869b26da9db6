//! Messages on the socket.

use std::any::Any;
use std::io::IoSlice;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::memory::{GUEST, LEN, Memory, USER, parts};
use super::ring::Ring;

pub const GET_FEATURES: u32 = 1;
pub const SET_FEATURES: u32 = 2;
pub const SET_OWNER: u32 = 3;
pub const RESET_OWNER: u32 = 4;
pub const SET_MEM_TABLE: u32 = 5;
pub const SET_VRING_NUM: u32 = 8;
pub const SET_VRING_ADDR: u32 = 9;
pub const SET_VRING_BASE: u32 = 10;
pub const GET_VRING_BASE: u32 = 11;
pub const SET_VRING_KICK: u32 = 12;
pub const SET_VRING_CALL: u32 = 13;
pub const GET_PROTOCOL_FEATURES: u32 = 15;
pub const SET_PROTOCOL_FEATURES: u32 = 16;
pub const SET_VRING_ENABLE: u32 = 18;
pub const GET_CONFIG: u32 = 24;
pub const POSTCOPY_ADVISE: u32 = 28;
pub const ADD_MEM_REG: u32 = 37;
pub const REM_MEM_REG: u32 = 38;

/// Features of virtio, and of vhost-user itself.
pub const MERGEABLE: u64 = 1 << 15;
pub const INDIRECT: u64 = 1 << 28;
pub const EVENT_INDEX: u64 = 1 << 29;
pub const PROTOCOL: u64 = 1 << 30;
pub const VERSION_1: u64 = 1 << 32;
pub const PACKED: u64 = 1 << 34;
/// Features that every handshake here requests.
pub const PLAIN: u64 = PROTOCOL | VERSION_1;
/// Protocol features.
pub const REPLY_ACK: u64 = 1 << 3;
pub const MEM_SLOTS: u64 = 1 << 15;

/// One region of a memory table.
#[derive(Clone, Copy)]
pub struct Region {
    pub guest: u64,
    pub len: u64,
    pub user: u64,
    pub offset: u64,
}

impl Region {
    /// The whole memory.
    pub const ALL: Self = Self { guest: GUEST, len: LEN, user: USER, offset: 0 };

    /// Divides the memory into regions of equal length.
    pub fn parts<const N: usize>() -> [Self; N] {
        let len = LEN / N as u64;
        std::array::from_fn(|index| {
            let offset = index as u64 * len;
            Self { guest: GUEST + offset, len, user: USER + offset, offset }
        })
    }

    fn bytes(self) -> Vec<u8> {
        [self.guest, self.len, self.user, self.offset].map(u64::to_ne_bytes).concat()
    }
}

pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A front end with a connected socket that has sent nothing yet. Messages sent after a disconnect
/// are discarded.
pub struct HostileDriver {
    path: PathBuf,
    socket: UnixStream,
    pub memory: Memory,
    /// Number of entries of each ring that is set up from now on.
    pub size: u16,
    pub packed: bool,
    /// Eventfds, by virtqueue.
    pub kicks: [OwnedFd; 2],
    pub calls: [OwnedFd; 2],
    /// Objects that must live as long as the hostile peer.
    kept: Vec<Box<dyn Any + Send>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl HostileDriver {
    pub fn connect(path: &Path) -> Self {
        let mut driver = Self::over(connect(path));
        path.clone_into(&mut driver.path);
        driver
    }

    /// Creates a hostile peer on a connected socket.
    pub fn over(socket: UnixStream) -> Self {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("eventfd");
        Self {
            path: PathBuf::new(),
            socket,
            memory: Memory::new(),
            size: 256,
            packed: false,
            kicks: [event(), event()],
            calls: [event(), event()],
            kept: Vec::new(),
            stop: Arc::default(),
            threads: Vec::new(),
        }
    }

    /// Disconnects and connects again.
    pub fn reconnect(&mut self) {
        self.hang_up();
        self.socket = connect(&self.path);
    }

    pub fn hang_up(&self) {
        // The socket may have been shut down already.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the other side has disconnected.
    pub fn is_hung_up(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut fds = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let _ = poll(&mut fds, Some(&rustix::time::Timespec::default()));
        !fds[0].revents().is_empty()
    }

    /// Sends bytes unchanged.
    pub fn raw(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)), "room for descriptors");
        }
        let bytes = [IoSlice::new(bytes)];
        // Sending fails after a disconnect, and blocks for a while if the other side does not read.
        let _ = sendmsg(&self.socket, &bytes, &mut ancillary, SendFlags::NOSIGNAL);
    }

    pub fn send(&self, request: u32, body: &[u8], fds: &[BorrowedFd<'_>]) {
        self.raw(&[&words(&[request, 1, body.len() as u32])[..], body].concat(), fds);
    }

    /// Sends a request without a body, and returns the number in its reply.
    pub fn ask(&self, request: u32) -> Option<u64> {
        self.send(request, &[], &[]);
        self.reply()
    }

    /// Returns the next reply, if it is one number.
    pub fn reply(&self) -> Option<u64> {
        let mut reply = [0; 20];
        (&self.socket).read_exact(&mut reply).ok()?;
        reply.last_chunk().map(|value| u64::from_ne_bytes(*value))
    }

    /// Waits until the other side has handled every message so far, or has disconnected.
    pub fn sync(&self) {
        self.ask(GET_FEATURES);
    }

    pub fn keep(&mut self, what: impl Any + Send) {
        self.kept.push(Box::new(what));
    }

    /// Repeats `work` in a thread until the hostile peer is dropped.
    pub fn meanwhile(&mut self, mut work: impl FnMut() + Send + 'static) {
        let stop = self.stop.clone();
        self.threads.push(std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                work();
            }
        }));
    }

    /// Repeats `what` for a second, or until the hostile peer is disconnected. Replies are read and
    /// discarded.
    pub fn storm(&mut self, mut what: impl FnMut(&Self)) {
        let replies = self.socket.try_clone().expect("a descriptor");
        self.meanwhile(move || {
            // It returns at once if the other side has disconnected.
            if !matches!((&replies).read(&mut [0; 4096]), Ok(1..)) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_secs(1) && !self.is_hung_up() {
            what(self);
        }
    }

    /// Negotiates everything up to the features: those of `features` that are offered.
    pub fn negotiate(&mut self, features: u64) {
        let features = self.ask(GET_FEATURES).unwrap_or(0) & features;
        self.packed = features & PACKED != 0;
        self.send(SET_OWNER, &[], &[]);
        let protocol = self.ask(GET_PROTOCOL_FEATURES).unwrap_or(0) & (REPLY_ACK | MEM_SLOTS);
        self.send(SET_PROTOCOL_FEATURES, &protocol.to_ne_bytes(), &[]);
        self.send(SET_FEATURES, &features.to_ne_bytes(), &[]);
    }

    /// Sends a memory table. The regions get their descriptors one by one.
    pub fn share(&self, regions: &[Region], fds: &[BorrowedFd<'_>]) {
        let mut body = words(&[regions.len() as u32, 0]);
        regions.iter().for_each(|region| body.extend(region.bytes()));
        self.send(SET_MEM_TABLE, &body, fds);
    }

    pub fn share_all(&self) {
        self.share(&[Region::ALL], &[self.memory.as_fd()]);
    }

    /// Performs an conforming handshake, with sparse memory of `len` bytes.
    pub fn share_holes(&mut self, len: u64) {
        self.memory = Memory::of(len);
        self.negotiate(PLAIN);
        self.share(&[Region { len, ..Region::ALL }], &[self.memory.as_fd()]);
        (0..2).for_each(|index| self.set_up(index));
        (0..2).for_each(|index| self.enable(index));
    }

    /// Sends `ADD_MEM_REG` or `REM_MEM_REG`.
    pub fn region(&self, request: u32, region: Region, fds: &[BorrowedFd<'_>]) {
        self.send(request, &[vec![0; 8], region.bytes()].concat(), fds);
    }

    pub fn vring(&self, request: u32, index: u32, value: u32) {
        self.send(request, &words(&[index, value]), &[]);
    }

    /// Sends addresses in the hostile peer's own process: descriptors, driver's part, device's
    /// part.
    pub fn addresses(&self, index: u32, [descriptors, driver, device]: [u64; 3]) {
        let addresses = [descriptors, device, driver, 0].map(u64::to_ne_bytes).concat();
        self.send(SET_VRING_ADDR, &[words(&[index, 0]), addresses].concat(), &[]);
    }

    pub fn fd(&self, request: u32, index: u64, fd: BorrowedFd<'_>) {
        self.send(request, &index.to_ne_bytes(), &[fd]);
    }

    /// Sets up a virtqueue, but does not enable it.
    pub fn set_up(&self, index: u32) {
        self.vring(SET_VRING_NUM, index, self.size.into());
        self.vring(SET_VRING_BASE, index, if self.packed { 1 << 15 } else { 0 });
        self.addresses(index, parts(index).map(|part| USER + part));
        self.fd(SET_VRING_CALL, index.into(), self.calls[index as usize].as_fd());
        self.fd(SET_VRING_KICK, index.into(), self.kicks[index as usize].as_fd());
    }

    pub fn enable(&self, index: u32) {
        self.vring(SET_VRING_ENABLE, index, 1);
    }

    /// Performs an conforming handshake. Afterwards both virtqueues run and are empty.
    pub fn start(&mut self, features: u64) {
        self.negotiate(features);
        self.share_all();
        (0..2).for_each(|index| self.set_up(index));
        (0..2).for_each(|index| self.enable(index));
        self.sync();
    }

    /// Virtqueue on which the hostile peer receives.
    pub fn rx(&self) -> Ring {
        Ring::new(self.memory.share(), 0, self.size)
    }

    /// Virtqueue on which the hostile peer transmits.
    pub fn tx(&self) -> Ring {
        Ring::new(self.memory.share(), 1, self.size)
    }

    /// Kicks both virtqueues, which wakes a device that sleeps.
    pub fn kick(&self) {
        for kick in &self.kicks {
            let _ = rustix::io::write(kick, &1u64.to_ne_bytes());
        }
    }
}

impl Drop for HostileDriver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("a driver's thread");
        }
    }
}

fn connect(path: &Path) -> UnixStream {
    let start = std::time::Instant::now();
    loop {
        match UnixStream::connect(path) {
            Ok(socket) => {
                socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a socket");
                socket.set_write_timeout(Some(Duration::from_millis(100))).expect("a socket");
                return socket;
            }
            Err(error) if start.elapsed() > super::PATIENCE => panic!("{path:?}: {error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}
