//! A back end that sends any reply to a virtio port, and writes anything into the memory that the
//! port shares, while frames are moved: no panic, no hang, and the port can be closed. Then a
//! second back end, which sees neither the first one's frames nor what the first one writes into
//! memory that it has kept.
#![no_main]

use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use dray_port::virtio::VirtioUri;
use dray_port::{Wait, scratch};
use dray_socket::{SocketName};
use dray_ring::packed::{PackedDevice, PackedLayout};
use dray_ring::split::{SplitDevice, SplitLayout};
use dray_ring::{Access, AddressSpace, DeviceQueue, QueueSize};
use dray_shm::{Mapping, MemoryFile};
use libfuzzer_sys::fuzz_target;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::time::Timespec;

#[path = "../../dataplane/ring/tests/ring/bytes.rs"]
#[allow(dead_code, reason = "each target uses a part of it")]
mod bytes;
#[allow(dead_code, reason = "each target uses a part of it")]
mod peer;

use bytes::Bytes;
use peer::{HANG, exchange};

/// Time within which a port sends its next message or disconnects.
const NEXT: Duration = Duration::from_millis(100);

const GET_FEATURES: u32 = 1;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_ADDR: u32 = 9;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_VRING_ENABLE: u32 = 18;
/// Flags of a message: version 1, a reply, and a reply is requested.
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// `MRG_RXBUF`, vhost-user's own protocol features, `VERSION_1` and `RING_PACKED`.
const FEATURES: u64 = 1 << 15 | 1 << 30 | 1 << 32 | 1 << 34;
/// All of CSUM, HOST_TSO4, HOST_TSO6, HOST_USO, and their like with GUEST.
const OFFLOADS: u64 = 0b1_1001_1000_0011 | 0b111 << 54;
/// `REPLY_ACK`.
const PROTOCOL_FEATURES: u64 = 1 << 3;
/// Length of a virtio-net header. Its last two bytes are the number of a frame's buffers.
const HEADER_LEN: usize = 12;

/// The memory that the port shares, by the port's own addresses.
struct Memory {
    mapping: Mapping,
    start: u64,
}

impl Memory {
    fn find(&self, address: u64, len: u64) -> Option<NonNull<u8>> {
        let offset = address.checked_sub(self.start)?;
        let is_inside = offset.checked_add(len)? <= self.mapping.len() as u64;
        // SAFETY: within the mapping.
        is_inside.then(|| unsafe { self.mapping.start().add(offset as usize) })
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        let to = self.find(address, bytes.len() as u64).expect("in the memory");
        for (at, byte) in bytes.iter().enumerate() {
            // SAFETY: just found.
            unsafe { to.add(at).write_volatile(*byte) };
        }
    }
}

impl Memory {
    fn has_run_of(&self, byte: u8) -> bool {
        // SAFETY: within the mapping.
        let at = |at| unsafe { self.mapping.start().add(at).read_volatile() };
        let is = |start| (0..16).all(|offset| at(start + offset) == byte);
        (0..self.mapping.len()).step_by(16).any(is)
    }
}

impl AddressSpace for Memory {
    fn translate(&self, address: u64, len: u64, _hint: &mut usize) -> Option<NonNull<u8>> {
        self.find(address, len)
    }
}

enum Queue {
    Split(SplitDevice),
    Packed(PackedDevice),
}

/// The back end, and what the port has sent.
struct BackEnd {
    stream: UnixStream,
    size: QueueSize,
    packed: bool,
    features: u64,
    memory: Option<Memory>,
    /// By virtqueue: addresses of its three parts, and its device side. The port receives on the
    /// first.
    parts: [Option<[u64; 3]>; 2],
    queues: [Option<Queue>; 2],
    events: Vec<OwnedFd>,
}

impl BackEnd {
    fn new(stream: UnixStream, size: QueueSize, packed: bool, features: u64) -> Self {
        stream.set_read_timeout(Some(NEXT)).expect("a socket");
        stream.set_write_timeout(Some(NEXT)).expect("a socket");
        let (parts, queues) = ([None; 2], [None, None]);
        Self { stream, size, packed, features, memory: None, parts, queues, events: Vec::new() }
    }

    /// Handles the port's messages up to the last of the handshake. Returns true if that arrived.
    fn introduce(&mut self, lie: &mut Option<Bytes<'_>>) -> bool {
        let (mut messages, mut enabled) = (0, 0);
        while enabled < 2 && messages < 64 {
            match self.hear(lie) {
                Some(SET_VRING_ENABLE) => enabled += 1,
                Some(_) => messages += 1,
                None => break,
            }
        }
        enabled == 2
    }

    fn reply(&mut self, request: u32, body: &[u8]) {
        let header = [request, VERSION | REPLY, body.len() as u32].map(u32::to_ne_bytes);
        let message = [header.as_flattened(), body].concat();
        // The port may have disconnected.
        let _ = self.stream.write_all(&message);
    }

    /// Receives the port's next message and sends the valid reply, or the one that the bytes say.
    /// Returns the message's type; `None` if the port has disconnected or sends nothing.
    fn hear(&mut self, lie: &mut Option<Bytes<'_>>) -> Option<u32> {
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
        let limit = Timespec { tv_sec: 0, tv_nsec: NEXT.subsec_nanos().into() };
        if !matches!(poll(&mut fds, Some(&limit)), Ok(1..)) {
            return None;
        }
        let mut header = [0; 12];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [IoSliceMut::new(&mut header)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let heard = recvmsg(&self.stream, slices, &mut ancillary, flags).ok()?;
        if heard.bytes == 0 {
            return None;
        }
        assert_eq!(heard.bytes, 12, "a header of a port");
        let fd = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let word = |bytes: &[u8], at: usize| {
            u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
        };
        let (request, flags) = (word(&header, 0), word(&header, 4));
        let mut body = vec![0; word(&header, 8) as usize];
        self.stream.read_exact(&mut body).ok()?;
        let long = |at: usize| u64::from(word(&body, at)) | u64::from(word(&body, at + 4)) << 32;
        match request {
            SET_MEM_TABLE => {
                let file = MemoryFile::from_peer(fd.expect("memory")).expect("memory");
                let mapping = Mapping::new(&file, 0, file.len()).expect("memory");
                // Count and padding, then guest address, length, and the port's own address.
                self.memory = Some(Memory { mapping, start: long(24) });
            }
            SET_VRING_ADDR => {
                let place = self.parts.get_mut(word(&body, 0) as usize).expect("two virtqueues");
                *place = Some([long(8), long(24), long(16)]);
            }
            _ => self.events.extend(fd),
        }
        let answer = match request {
            GET_FEATURES => Some(self.features),
            GET_PROTOCOL_FEATURES => Some(PROTOCOL_FEATURES),
            _ => (flags & NEED_REPLY != 0).then_some(0),
        };
        let Some(answer) = answer else { return Some(request) };
        let lies = lie.as_mut().is_some_and(|bytes| bytes.byte() >= 192);
        if let Some(bytes) = lie.as_mut().filter(|_| lies) {
            let kind = if bytes.flag() { request } else { bytes.byte().into() };
            let body: Vec<u8> = (0..bytes.byte() % 16).map(|_| bytes.byte()).collect();
            self.reply(kind, &body);
        } else {
            self.reply(request, &answer.to_ne_bytes());
        }
        Some(request)
    }

    /// Creates the device side of a virtqueue, if the port has sent its addresses.
    fn start(&mut self, index: usize) {
        let (Some(memory), Some(parts)) = (&self.memory, self.parts[index]) else { return };
        let size = self.size;
        let lens = match self.packed {
            true => [PackedLayout::descriptors_len(size), 4, 4],
            false => [
                SplitLayout::descriptors_len(size),
                SplitLayout::available_len(size),
                SplitLayout::used_len(size),
            ],
        };
        let [a, b, c] = [0, 1, 2].map(|part| {
            memory.find(parts[part], lens[part] as u64).expect("a port's ring is in its memory")
        });
        // SAFETY: all parts were just found mapped, and the memory stays as long as this.
        let queue = unsafe {
            if self.packed {
                let layout = PackedLayout::new(size, a, b, c).expect("aligned");
                let device = PackedDevice::new(layout, 1 << 15, false, false);
                Queue::Packed(device.expect("the first descriptor"))
            } else {
                let layout = SplitLayout::new(size, a, b, c).expect("aligned");
                Queue::Split(SplitDevice::new(layout, 0, false, false))
            }
        };
        self.queues[index] = Some(queue);
    }

    fn has_left(&self) -> bool {
        let mut fds = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let _ = poll(&mut fds, Some(&Timespec::default()));
        !fds[0].revents().is_empty()
    }

    /// Returns buffers: most often as an honest back end could.
    fn give_back(&mut self, bytes: &mut Bytes<'_>) {
        let index = usize::from(bytes.byte() % 4 == 0);
        let Some(memory) = &self.memory else { return };
        match &mut self.queues[index] {
            Some(Queue::Split(queue)) => give_back(queue, memory, index == 0, bytes),
            Some(Queue::Packed(queue)) => give_back(queue, memory, index == 0, bytes),
            None => {}
        }
    }

    /// Writes into a ring, or anywhere else.
    fn scribble(&self, bytes: &mut Bytes<'_>) {
        let Some(memory) = &self.memory else { return };
        let len = memory.mapping.len() as u64;
        let parts = self.parts[usize::from(bytes.flag())].unwrap_or_default();
        let at = match parts[usize::from(bytes.byte() % 3)] {
            0 => memory.start + u64::from(bytes.u32()) % (len - 8),
            start => start + u64::from(bytes.byte()) * 2,
        };
        match bytes.byte() % 3 {
            0 => memory.write(at, &[bytes.byte()]),
            1 => memory.write(at, &bytes.u16().to_le_bytes()),
            _ => memory.write(at, &bytes.u64().to_le_bytes()),
        }
    }
}

fn give_back(queue: &mut impl DeviceQueue, memory: &Memory, received: bool, bytes: &mut Bytes<'_>) {
    let access = if received { Access::Write } else { Access::Read };
    let (count, lie, merged) = (bytes.byte() % 64, bytes.byte(), u16::from(bytes.byte() % 6));
    for number in 0..u16::from(count) {
        // The scribbled bytes may be invalid for our own device too.
        let Ok(Some(mut chain)) = queue.pop(memory, access) else { break };
        let len = match lie {
            0 => 0,
            1 => u32::from(bytes.byte()) % 16,
            2 => bytes.u32(),
            3 => 2049 + HEADER_LEN as u32,
            _ => HEADER_LEN as u32 + 1 + u32::from(bytes.u16()) % 2048,
        };
        let buffers = match lie {
            4 => bytes.u16(),
            _ if merged > 1 && number % merged == 0 => merged,
            _ => 1,
        };
        if received && chain.first.len as usize >= HEADER_LEN {
            // A checksum or a segmentation that is left to the port, anything, or nothing.
            let header = match bytes.byte() % 4 {
                0 => [1, bytes.byte() % 6, 0, 0, bytes.byte(), 0, 34, 0, bytes.byte() % 32, 0],
                1 => [bytes.byte(); HEADER_LEN - 2],
                _ => [0; HEADER_LEN - 2],
            };
            let header = [&header[..], &buffers.to_le_bytes()].concat();
            let header: [u8; HEADER_LEN] = header.try_into().expect("as long");
            // SAFETY: the header lies in the buffer.
            unsafe { chain.first.start.cast::<[u8; HEADER_LEN]>().write_volatile(header) };
        }
        match lie {
            5 => chain.id = bytes.u16(),
            6 => chain.id = chain.id.wrapping_add(1),
            _ => {}
        }
        queue.push(&chain, if received { len } else { 0 });
    }
    queue.publish();
}

fuzz_target!(|input: &[u8]| {
    let begin = Instant::now();
    let mut bytes = Bytes(input);
    let [(ours, theirs), (next_ours, next_theirs)] =
        [(); 2].map(|()| UnixStream::pair().expect("sockets"));
    let (packed, size) = (bytes.flag(), QueueSize::new(2 << (bytes.byte() % 7)));
    let features = FEATURES | if bytes.flag() { OFFLOADS } else { 0 };
    let size = size.expect("a power of two");
    let uri = VirtioUri {
        socket: SocketName::File("nowhere".into()),
        queues: 1,
        size,
        packed,
        server: false,
        access: Default::default(),
        hugepages: false,
        offload: true,
        wait: Wait::Poll { pause_us: 0 },
    };
    let mut port = uri.open_over(vec![ours, next_ours]).expect("eventfds and a thread");
    let mut scratch = scratch();
    let mut back = BackEnd::new(theirs, size, packed, features);
    // Most inputs begin with running rings.
    let mut lie = (bytes.byte() >= 224).then(|| Bytes(bytes.0));
    if back.introduce(&mut lie) {
        (0..2).for_each(|index| back.start(index));
        while !port.tx[0].is_ready() && !back.has_left() {
            assert!(begin.elapsed() < HANG, "it never runs");
            std::thread::yield_now();
        }
    }
    while !bytes.is_empty() && !back.has_left() {
        match bytes.byte() % 16 {
            0 => {
                let request = bytes.byte().into();
                let body: Vec<u8> = (0..bytes.byte() % 32).map(|_| bytes.byte()).collect();
                back.reply(request, &body);
            }
            1..=3 => back.scribble(&mut bytes),
            4..=9 => back.give_back(&mut bytes),
            _ => exchange(&mut port, &mut scratch, usize::from(bytes.byte() % 32), 1),
        }
    }
    exchange(&mut port, &mut scratch, 8, 1);
    let kept = back.memory.take();
    drop(back);
    exchange(&mut port, &mut scratch, 8, 1);
    let mut next = BackEnd::new(next_theirs, size, packed, features);
    if let (true, Some(kept)) = (next.introduce(&mut None), kept) {
        let seen = next.memory.as_ref().expect("memory");
        // Frames that `exchange` transmits, and bytes written now.
        assert!(!seen.has_run_of(0x5a), "peer sees frames of its predecessor");
        kept.write(kept.start, &vec![0x77; kept.mapping.len()]);
        exchange(&mut port, &mut scratch, 8, 1);
        assert!(!seen.has_run_of(0x77), "predecessor writes into the memory");
        assert!(!next.has_left(), "predecessor caused a disconnect");
    }
    drop(port);
    assert!(begin.elapsed() < HANG, "{:?}", begin.elapsed());
});
