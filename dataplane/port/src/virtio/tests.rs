//! Tests of the buffers that a back end returns, and of what the port makes of them.

use std::io::{IoSliceMut, Read, Write};
use std::iter;
use std::mem::MaybeUninit;
use std::os::unix::net::{UnixListener, UnixStream};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dray_ring::packed::{PackedDevice, PackedLayout};
use dray_ring::split::{SplitDevice, SplitLayout};
use dray_ring::{Access, AddressSpace, DeviceQueue};
use dray_shm::{Mapping, MemoryFile};
use dray_wire::offload::{HEADERS_MAX, Layout, Offload, Offloads, VIRTIO_NET_LEN, VirtioNet};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::memory::{HEADER_LEN, QueueOffsets, SLOT_FRAME};
use super::queue::{ReceiveQueue, Terms, TransmitQueue};
use super::{SharedMemory, VirtioUri};
use crate::ends::headers::Headers;
use crate::ends::layout::{EitherLayout, with_layout};
use crate::ends::pairs::{ReceiveQueue as _, TransmitQueue as _};
use crate::ends::slot::Failure;
use crate::frame::reassembly::ReassemblyBuffer;
use crate::lost::{Loss, Lost};
use crate::signal::control_wake::ControlWake;
use crate::signal::peer_event::PeerEvent;
use crate::{BATCH_MAX, FRAME_LIMIT, Frame, PortUri};

/// Address space in which the port's buffers have the same addresses as here.
struct SameProcess;

impl AddressSpace for SameProcess {
    fn translate(&self, address: u64, _len: u64, _hint: &mut usize) -> Option<NonNull<u8>> {
        NonNull::new(ptr::with_exposed_provenance_mut(address as usize))
    }
}

/// Returns a buffer for each of `returned`: the number of buffers that its header states for the
/// frame, and the number of bytes written.
fn give_back(device: &mut impl DeviceQueue, returned: &[(u16, usize)]) {
    for (buffers, len) in returned {
        let chain = device.pop(&SameProcess, Access::Write).unwrap().expect("all are posted");
        // SAFETY: the header lies in the buffer.
        unsafe { chain.first.start.add(HEADER_LEN - 2).cast::<u16>().write(buffers.to_le()) };
        device.push(&chain, *len as u32);
    }
    device.publish();
}

/// Memory of a port with rings of `size` entries.
fn ring(packed: bool, size: u16) -> (VirtioUri, Arc<SharedMemory>) {
    let text = format!("virtio:/nowhere?size={size}&hugepages=0&packed={}", u8::from(packed));
    let Ok(PortUri::Virtio(uri)) = text.parse() else { panic!("{text}") };
    let memory = Arc::new(SharedMemory::new(&uri).unwrap());
    (uri, memory)
}

fn event() -> PeerEvent {
    PeerEvent::for_peer(&ControlWake::new().unwrap()).unwrap()
}

fn terms(offloads: Offloads) -> Terms {
    let headers = Headers { len: HEADER_LEN as u32, mergeable: true, offloads };
    Terms { headers, malformed: Arc::default() }
}

/// Lengths of the frames that the port then lends, checked to be equal in both ring layouts.
fn received(returned: &[(u16, usize)]) -> Result<Vec<usize>, Failure> {
    let [split, packed] = [false, true].map(|packed| {
        let (uri, memory) = ring(packed, 16);
        let (offsets, terms) = (memory.offsets(0), terms(Offloads::NONE));
        let mut port = ReceiveQueue::new(&memory, &uri, &offsets, event(), event(), terms).unwrap();
        with_layout!(&mut device(&memory, &uri, &offsets), device => give_back(device, returned));
        let (mut lens, mut reassembly) = (Vec::new(), ReassemblyBuffer::new());
        let result = port.receive(&mut reassembly, &mut |frames| {
            lens.extend(frames.iter().map(Frame::len));
            frames.len()
        });
        result.map(|lent| {
            assert_eq!(lent, lens.len());
            lens
        })
    });
    assert_eq!(split, packed, "{returned:?}");
    split
}

/// Returns the device side of a virtqueue.
fn device(
    memory: &SharedMemory,
    uri: &VirtioUri,
    offsets: &QueueOffsets,
) -> EitherLayout<SplitDevice, PackedDevice> {
    let [a, b, c] =
        [offsets.descriptors, offsets.driver, offsets.device].map(|offset| memory.at(offset));
    if uri.packed {
        // SAFETY: the parts lie in the memory, which outlives the device.
        let layout = unsafe { PackedLayout::new(uri.size, a, b, c) }.unwrap();
        EitherLayout::Packed(PackedDevice::new(layout, 0x8000, false, false).unwrap())
    } else {
        // SAFETY: as above.
        let layout = unsafe { SplitLayout::new(uri.size, a, b, c) }.unwrap();
        EitherLayout::Split(SplitDevice::new(layout, 0, false, false))
    }
}

#[test]
fn frames_span_num_buffers_buffers() {
    const FULL: usize = HEADER_LEN + SLOT_FRAME;
    assert_eq!(received(&[(1, 13), (1, 72), (1, FULL)]), Ok(vec![1, 60, SLOT_FRAME]));
    // Buffers after the first have no header.
    assert_eq!(received(&[(1, 72), (2, FULL), (0, 100), (1, 72)]), Ok(vec![60, 2148, 60]));
    // The second buffer is not returned yet.
    assert_eq!(received(&[(1, 72), (2, FULL)]), Ok(vec![60]));
    // Returned unused.
    assert_eq!(received(&[(1, 0), (1, 72)]), Ok(vec![60]));
    assert_eq!(received(&[(1, 72), (1, 0)]), Ok(vec![60]));
}

/// Frames over one buffer and over several ones keep their numbers of buffers apart, however many
/// are taken at a time.
#[test]
fn frames_that_are_not_taken_are_lent_again() {
    const FULL: usize = HEADER_LEN + SLOT_FRAME;
    const SIZE: u16 = 512;
    let short = |count| vec![(1, 72); count];
    let mixed = vec![(1, 72), (2, FULL), (0, 100), (1, 92), (1, 72)];
    // The frame over two buffers is the last one of a batch.
    let many = [short(BATCH_MAX - 1), vec![(2, FULL), (0, 100)], short(40)].concat();
    for (returned, taken) in [(&mixed, 0..=4), (&many, 0..=0), (&many, 254..=256)]
        .into_iter()
        .flat_map(|(returned, taken)| taken.map(move |taken| (returned, taken)))
    {
        let heads = returned.iter().enumerate().filter(|(_, (buffers, _))| *buffers > 0);
        let frames = heads.map(|(at, (buffers, _))| {
            let parts = &returned[at..at + usize::from(*buffers)];
            (parts.len(), parts.iter().map(|(_, len)| len).sum::<usize>() - HEADER_LEN)
        });
        let frames: Vec<_> = frames.collect();
        let lens = |part: &[(usize, usize)]| {
            part.iter().map(|(_, len)| *len).take(BATCH_MAX).collect::<Vec<_>>()
        };
        for packed in [false, true] {
            let (uri, memory) = ring(packed, SIZE);
            let (offsets, terms) = (memory.offsets(0), terms(Offloads::NONE));
            let mut port =
                ReceiveQueue::new(&memory, &uri, &offsets, event(), event(), terms).unwrap();
            let mut device = device(&memory, &uri, &offsets);
            with_layout!(&mut device, device => give_back(device, returned));
            let mut reassembly = ReassemblyBuffer::new();
            let mut receive = |taken| {
                let mut lens = Vec::new();
                let take = &mut |frames: &[Frame<'_>]| {
                    lens.extend(frames.iter().map(Frame::len));
                    taken
                };
                port.receive(&mut reassembly, take).unwrap();
                lens
            };
            assert_eq!(receive(taken), lens(&frames));
            let posted = iter::from_fn(|| {
                with_layout!(&mut device, device => device.pop(&SameProcess, Access::Write))
                    .unwrap()
            });
            let back: usize = frames[..taken].iter().map(|(buffers, _)| buffers).sum();
            assert_eq!(posted.count(), usize::from(SIZE) - returned.len() + back, "{taken}");
            assert_eq!(receive(usize::MAX), lens(&frames[taken..]), "{taken}");
        }
    }
}

/// A TCP packet over IPv4 of `len` bytes in all, and its header with this offload.
fn packet(len: usize, offload: Offload) -> (VirtioNet, Vec<u8>) {
    let mut frame: Vec<u8> = (0..len).map(|at| (at * 7 / 3) as u8).collect();
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
    frame[20..22].fill(0);
    frame[23] = 6;
    frame[46] = 5 << 4;
    let layout = Layout::of(&frame[..len.min(HEADERS_MAX)], len).expect("a TCP packet");
    (VirtioNet::of(offload, &layout, len).expect("it fits"), frame)
}

/// Writes frames as a back end: each with its header, over as many buffers as it needs.
fn write(device: &mut impl DeviceQueue, frames: &[(VirtioNet, Vec<u8>)]) {
    for (header, frame) in frames {
        let buffers = (HEADER_LEN + frame.len()).div_ceil(HEADER_LEN + SLOT_FRAME) as u16;
        let bytes = [&header.bytes()[..], &buffers.to_le_bytes(), frame].concat();
        for part in bytes.chunks(HEADER_LEN + SLOT_FRAME) {
            let chain = device.pop(&SameProcess, Access::Write).unwrap().expect("all are posted");
            // SAFETY: the part is no longer than the buffer.
            unsafe { chain.first.start.as_ptr().copy_from(part.as_ptr(), part.len()) };
            device.push(&chain, part.len() as u32);
        }
    }
    device.publish();
}

#[test]
fn received_headers_say_what_is_left_to_do() {
    let segment = 1448.try_into().unwrap();
    let (tcp, longest) = packet(65_535 + 14, Offload::Tcp(segment));
    let (long, other) = packet(3000, Offload::Tcp(segment));
    let frames = [
        packet(100, Offload::None),
        packet(100, Offload::Checksum),
        (tcp, longest.clone()),
        // Not the kind of the packet, which is IPv4: dropped.
        (VirtioNet { gso_type: 4, ..long }, other),
        packet(3000, Offload::None),
        // The checksum is no TCP checksum, so it is completed here.
        (VirtioNet { csum_offset: 30, ..packet(100, Offload::Checksum).0 }, vec![0; 100]),
        // Outside the frame: dropped.
        (VirtioNet { csum_start: 99, ..packet(100, Offload::Checksum).0 }, vec![0; 100]),
        packet(60, Offload::None),
    ];
    for packed in [false, true] {
        let (uri, memory) = ring(packed, 64);
        let (offsets, terms) = (memory.offsets(0), terms(Offloads::ALL));
        let malformed = terms.malformed.clone();
        let mut port = ReceiveQueue::new(&memory, &uri, &offsets, event(), event(), terms).unwrap();
        with_layout!(&mut device(&memory, &uri, &offsets), device => write(device, &frames));
        let (mut seen, mut reassembly) = (Vec::new(), ReassemblyBuffer::new());
        for _ in 0..frames.len() {
            let take = &mut |frames: &[Frame<'_>]| {
                for frame in frames {
                    let mut bytes = vec![0; frame.len()];
                    frame.copy_from(0, &mut bytes);
                    seen.push((frame.offload(), bytes));
                }
                frames.len()
            };
            port.receive(&mut reassembly, take).unwrap();
        }
        let mut completed = vec![0; 100];
        completed[34 + 30..34 + 32].fill(0xff);
        let expected = [
            (Offload::None, frames[0].1.clone()),
            (Offload::Checksum, frames[1].1.clone()),
            (Offload::Tcp(segment), longest.clone()),
            (Offload::None, frames[4].1.clone()),
            (Offload::None, completed),
            (Offload::None, frames[7].1.clone()),
        ];
        assert_eq!(seen.len(), expected.len(), "packed {packed}");
        assert!(seen == expected, "packed {packed}");
        assert_eq!(malformed.load(Ordering::Relaxed), 2);
    }
}

/// Frames as a back end sees them: each with its header, from all its buffers.
fn read(device: &mut impl DeviceQueue) -> Vec<(VirtioNet, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some(chain) = device.pop(&SameProcess, Access::Read).unwrap() {
        let mut bytes = Vec::new();
        for segment in iter::once(&chain.first).chain(device.rest()) {
            // SAFETY: the port's buffers are mapped in this process.
            bytes.extend_from_slice(unsafe {
                std::slice::from_raw_parts(segment.start.as_ptr(), segment.len as usize)
            });
        }
        let header = VirtioNet::read(*bytes.first_chunk::<VIRTIO_NET_LEN>().unwrap());
        assert_eq!(bytes[VIRTIO_NET_LEN..HEADER_LEN], [0, 0], "num_buffers");
        frames.push((header, bytes.split_off(HEADER_LEN)));
        device.push(&chain, 0);
    }
    device.publish();
    frames
}

#[test]
fn transmitted_headers_say_what_is_left_to_do() {
    let segment = 1448.try_into().unwrap();
    let (long, short) =
        (packet(65_535 + 14, Offload::Tcp(segment)), packet(100, Offload::Checksum));
    let plain = packet(100, Offload::None);
    for packed in [false, true] {
        let (uri, memory) = ring(packed, 64);
        let offsets = memory.offsets(1);
        let terms = terms(Offloads { tcp4: true, checksum: true, ..Offloads::NONE });
        let mut lost = Lost::new();
        let mut port = TransmitQueue::new(&memory, &uri, &offsets, event(), terms).unwrap();
        let frames = [
            Frame::from(&plain.1[..]),
            Frame::with_offload(&long.1, Offload::Tcp(segment)),
            Frame::with_offload(&short.1, Offload::Checksum),
            // Not negotiated: dropped.
            Frame::with_offload(&short.1, Offload::Udp(segment)),
            Frame::from(&plain.1[..]),
            Frame::from(&plain.1[..]),
        ];
        let mut device = device(&memory, &uri, &offsets);
        // An odd number of slots a round: each of them is used with a header and without one.
        for round in 1..=64 {
            lost.begin();
            assert_eq!(port.transmit(&frames, &mut lost).unwrap(), frames.len());
            let seen = with_layout!(&mut device, device => read(device));
            assert_eq!(seen.len(), 5);
            let rest = [plain.clone(), plain.clone()];
            assert!(
                seen[..3] == [plain.clone(), long.clone(), short.clone()] && seen[3..] == rest,
                "packed {packed}, round {round}"
            );
            let expected = [(3, Loss::Undeliverable)];
            assert_eq!((lost.of_call(), lost.total()), (&expected[..], round));
        }
    }
}

/// A slot's descriptor follows the length of its frame: an odd number of frames a round, so that
/// each slot is used with all lengths.
#[test]
fn transmitted_lengths_may_alternate() {
    let frames = [60, 1500, 60, 60, 1500, 61, 60].map(|len| packet(len, Offload::None));
    let lent = frames.each_ref().map(|(_, frame)| Frame::from(&frame[..]));
    for packed in [false, true] {
        let (uri, memory) = ring(packed, 16);
        let (offsets, terms) = (memory.offsets(1), terms(Offloads::NONE));
        let mut port = TransmitQueue::new(&memory, &uri, &offsets, event(), terms).unwrap();
        let (mut device, mut lost) = (device(&memory, &uri, &offsets), Lost::new());
        for round in 0..64 {
            let count = 5 + 2 * (round % 2);
            assert_eq!(port.transmit(&lent[..count], &mut lost).unwrap(), count);
            let seen = with_layout!(&mut device, device => read(device));
            assert!(seen == frames[..count], "packed {packed}, round {round}");
        }
    }
}

#[test]
fn invalid_num_buffers_or_length_is_a_lie() {
    const FULL: usize = HEADER_LEN + SLOT_FRAME;
    const { assert!(5 * FULL > FRAME_LIMIT) };
    for returned in [
        &[(1, HEADER_LEN)][..],
        &[(2, HEADER_LEN), (0, 0)],
        &[(1, HEADER_LEN - 1)],
        &[(1, FULL + 1)],
        &[(2, FULL), (0, FULL + 1)],
        &[(0, 72)],
        &[(6, FULL), (0, FULL), (0, FULL), (0, FULL), (0, FULL), (0, FULL)],
        &[(5, FULL), (0, FULL), (0, FULL), (0, FULL), (0, FULL)],
        &[(u16::MAX, 72)],
    ] {
        let lie = received(returned);
        assert!(matches!(lie, Err(Failure::Header { .. })), "{returned:?}: {lie:?}");
    }
}

/// A back end that has received every message up to the last.
struct BackEnd {
    stream: UnixStream,
    file: MemoryFile,
    memory: Mapping,
}

impl BackEnd {
    fn serve(listener: &UnixListener) -> Self {
        const GET_FEATURES: u32 = 1;
        const SET_MEM_TABLE: u32 = 5;
        const GET_PROTOCOL_FEATURES: u32 = 15;
        const SET_VRING_ENABLE: u32 = 18;
        // MRG_RXBUF, vhost-user's own protocol features, VERSION_1 and RING_PACKED.
        const FEATURES: u64 = 1 << 15 | 1 << 30 | 1 << 32 | 1 << 34;
        let (mut stream, _) = listener.accept().unwrap();
        let (mut memory, mut enabled) = (None, 0);
        while enabled < 2 {
            let mut header = [0; 12];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let (slices, flags) = (&mut [IoSliceMut::new(&mut header)], RecvFlags::CMSG_CLOEXEC);
            assert_eq!(recvmsg(&stream, slices, &mut ancillary, flags).unwrap().bytes, 12);
            let fd = ancillary.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
                _ => None,
            });
            let [request, _, len] =
                [0, 4, 8].map(|at| u32::from_ne_bytes(*header[at..].first_chunk().unwrap()));
            stream.read_exact(&mut vec![0; len as usize]).unwrap();
            let reply = match request {
                SET_MEM_TABLE => {
                    let file = MemoryFile::from_peer(fd.unwrap()).unwrap();
                    memory = Some((Mapping::new(&file, 0, file.len()).unwrap(), file));
                    continue;
                }
                SET_VRING_ENABLE => {
                    enabled += 1;
                    continue;
                }
                GET_FEATURES => FEATURES,
                GET_PROTOCOL_FEATURES => 0,
                _ => continue,
            };
            let header = [request, 1 | 1 << 2, 8].map(u32::to_ne_bytes);
            stream.write_all(&[header.as_flattened(), &reply.to_ne_bytes()].concat()).unwrap();
        }
        let (memory, file) = memory.unwrap();
        Self { stream, file, memory }
    }

    fn bytes(&self) -> Vec<u8> {
        // SAFETY: `at` is within the mapping.
        let byte = |at| unsafe { self.memory.start().add(at).read_volatile() };
        (0..self.memory.len()).map(byte).collect()
    }
}

#[track_caller]
fn eventually(mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < Duration::from_secs(20), "timeout");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A former back end that kept its memory neither sees what is sent to the next back end nor can
/// send in its name; and its memory is freed.
#[test]
fn back_ends_do_not_share_memory() {
    let folder = tempfile::tempdir().unwrap();
    for packed in [0, 1] {
        let path = folder.path().join(packed.to_string());
        let listener = UnixListener::bind(&path).unwrap();
        let uri = format!("virtio:{}?size=8&hugepages=0&packed={packed}", path.display());
        let mut port = uri.parse::<PortUri>().unwrap().open().unwrap();
        let first = BackEnd::serve(&listener);
        eventually(|| port.tx[0].is_ready());
        let secret = [0x5e; 100];
        let holds = |bytes: &[u8]| bytes.windows(16).any(|bytes| bytes == &secret[..16]);
        assert_eq!(port.tx[0].transmit(&[Frame::from(&secret[..])]).unwrap(), 1);
        assert!(holds(&first.bytes()));
        let BackEnd { stream, file, memory: kept } = first;
        drop(stream);
        eventually(|| !port.tx[0].is_ready());

        let second = BackEnd::serve(&listener);
        eventually(|| port.tx[0].is_ready());
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_blocks, 0, "the first one's memory");
        let before = second.bytes();
        assert!(!holds(&before), "the first one's frames");
        for at in 0..kept.len() {
            // SAFETY: `at` is within the mapping.
            unsafe { kept.start().add(at).write_volatile(0x77) };
        }
        assert!(second.bytes() == before, "the first one writes into it");
        assert_eq!(port.rx[0].receive(&mut |_| panic!("nothing was sent")).unwrap(), 0);
        assert!(port.tx[0].is_ready());
    }
}
