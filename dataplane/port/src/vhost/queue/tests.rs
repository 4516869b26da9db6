//! The queues against drivers whose buffers are of any kind.

use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use dray_ring::{Access, CHAIN_MAX, Chain, Plain, Segment};
use dray_wire::offload::{self, Offload, VirtioNet};

use super::*;
use crate::BATCH_MAX;
use crate::ends::limits::DESCRIPTORS_PER_CALL;
use crate::frame::FRAME_LIMIT;
use crate::lost::Loss;

/// A driver whose ring is full of chains of `buffers` buffers of `len` bytes.
struct Full {
    buffers: usize,
    len: u32,
    budget: u32,
    /// Number of descriptors read, in all.
    read: u32,
    rest: Vec<Segment>,
    memory: Vec<u8>,
}

impl Full {
    fn new(buffers: usize, len: u32) -> Self {
        let memory = vec![0; len as usize + 1];
        Self { buffers, len, budget: u32::MAX, read: 0, rest: Vec::new(), memory }
    }

    fn segment(&mut self) -> Segment {
        Segment { start: NonNull::from(&mut self.memory[0]), len: self.len }
    }

    fn count(&mut self, descriptors: usize) {
        self.read += descriptors as u32;
        self.budget = self.budget.saturating_sub(descriptors as u32);
    }
}

impl DeviceQueue for Full {
    fn size(&self) -> u16 {
        u16::MAX
    }

    fn set_budget(&mut self, descriptors: u32) {
        self.budget = descriptors;
    }

    fn pop<M: dray_ring::AddressSpace>(
        &mut self,
        _: &M,
        _: Access,
    ) -> Result<Option<Chain>, RingError> {
        if self.budget == 0 {
            return Ok(None);
        }
        self.count(self.buffers + 1);
        self.rest = vec![self.segment(); self.buffers - 1];
        Ok(Some(Chain { id: 0, slots: 1, first: self.segment(), more: self.buffers > 1 }))
    }

    fn pop_plain<M: dray_ring::AddressSpace>(
        &mut self,
        _: &M,
        _: Access,
        most: usize,
        mut take: impl FnMut(Plain) -> bool,
    ) -> Result<bool, RingError> {
        if self.buffers > 1 {
            return Ok(true);
        }
        let most = most.min(self.budget as usize);
        let Segment { start, len } = self.segment();
        for _ in 0..most {
            self.read += 1;
            if !take(Plain { start, len, id: 0 }) {
                break;
            }
            self.budget -= 1;
        }
        Ok(false)
    }

    fn push_plain(&mut self, _: impl Iterator<Item = (u16, u32)>) {}
    fn rest(&self) -> &[Segment] {
        &self.rest
    }
    fn unpop(&mut self, _: u16) {}
    fn push(&mut self, _: &Chain, _: u32) {}
    fn push_together(&mut self, _: &[(Chain, u32)]) {}
    fn publish_progress(&mut self, _: dray_shm::SharedWord) {}
    fn commit(&mut self) {}
    fn publish(&mut self) -> bool {
        false
    }
    fn want_kicks(&mut self, _: bool) -> bool {
        false
    }
    fn base(&self) -> u16 {
        0
    }
}

const PLAIN: Headers = Headers { len: 12, mergeable: true, offloads: Offloads::NONE };

/// Up to the end of a chain and of its table; and a buffer for each frame that does not fit it.
const MOST: u32 = DESCRIPTORS_PER_CALL + CHAIN_MAX as u32 + 1 + BATCH_MAX as u32;

#[test]
fn descriptors_read_per_call_are_bounded() {
    let (memory, malformed) = (GuestMemory::default(), AtomicU64::new(0));
    let mut lost = Lost::new();
    let long = vec![7; 9018];
    let frames: Vec<Frame<'_>> = (0..BATCH_MAX).map(|_| Frame::from(&long[..])).collect();
    for mergeable in [false, true] {
        for (buffers, len) in [(256, 0), (256, 1), (2, 0), (1, 0), (1, 11), (1, 256), (1, 2048)] {
            let headers = Headers { mergeable, ..PLAIN };
            let mut queue = Full::new(buffers, len);
            let (taken, _) =
                transmit(&mut queue, &memory, headers, &mut Copier::new(), &frames, &mut lost)
                    .unwrap();
            assert!(queue.read <= MOST, "{buffers} of {len}: {} descriptors", queue.read);
            assert!(taken > 0, "{buffers} of {len}: no frame was transmitted");

            let mut queue = Full::new(buffers, len);
            let mut reassembly = ReassemblyBuffer::new();
            let take: &mut Take<'_> = &mut |frames| frames.len();
            receive::<_, false>(&mut queue, &memory, PLAIN, &mut reassembly, &malformed, take)
                .unwrap();
            assert!(queue.read <= MOST, "{buffers} of {len}: {} descriptors", queue.read);
        }
    }
}

#[test]
fn batch_of_long_frames_fits_usual_buffers() {
    let (memory, mut lost) = (GuestMemory::default(), Lost::new());
    let long = vec![7; 9018];
    let frames: Vec<Frame<'_>> = (0..BATCH_MAX).map(|_| Frame::from(&long[..])).collect();
    for len in [1526, 2048, 4096, 9030] {
        let mut queue = Full::new(1, len);
        let (taken, _) =
            transmit(&mut queue, &memory, PLAIN, &mut Copier::new(), &frames, &mut lost).unwrap();
        assert_eq!(taken, BATCH_MAX, "{len}");
    }
    assert_eq!(lost.total(), 0);
}

/// A driver with chains of buffers of its own.
#[derive(Default)]
struct Chains {
    ready: Vec<Vec<Vec<u8>>>,
    next: usize,
    rest: Vec<Segment>,
    /// Lengths with which the chains were returned.
    returned: Vec<u32>,
    /// Number of entries of the ring.
    size: u16,
}

impl Chains {
    fn of(chains: impl IntoIterator<Item = Vec<Vec<u8>>>) -> Self {
        Self { ready: chains.into_iter().collect(), size: 256, ..Self::default() }
    }
}

impl DeviceQueue for Chains {
    fn size(&self) -> u16 {
        self.size
    }

    fn set_budget(&mut self, _: u32) {}

    fn pop<M: dray_ring::AddressSpace>(
        &mut self,
        _: &M,
        _: Access,
    ) -> Result<Option<Chain>, RingError> {
        let Some(buffers) = self.ready.get_mut(self.next) else { return Ok(None) };
        self.next += 1;
        let segment = |buffer: &mut Vec<u8>| Segment {
            start: NonNull::new(buffer.as_mut_ptr()).unwrap(),
            len: buffer.len() as u32,
        };
        let mut segments = buffers.iter_mut().map(segment);
        let first = segments.next().unwrap();
        self.rest = segments.collect();
        Ok(Some(Chain { id: 0, slots: 1, first, more: !self.rest.is_empty() }))
    }

    fn pop_plain<M: dray_ring::AddressSpace>(
        &mut self,
        memory: &M,
        access: Access,
        most: usize,
        mut take: impl FnMut(Plain) -> bool,
    ) -> Result<bool, RingError> {
        for _ in 0..most.min(self.ready.len() - self.next) {
            if self.ready[self.next].len() > 1 {
                return Ok(true);
            }
            let Segment { start, len } = self.pop(memory, access)?.unwrap().first;
            if !take(Plain { start, len, id: 0 }) {
                self.unpop(1);
                break;
            }
        }
        Ok(false)
    }

    fn push_plain(&mut self, used: impl Iterator<Item = (u16, u32)>) {
        self.returned.extend(used.map(|(_, len)| len));
    }

    fn publish_progress(&mut self, _: dray_shm::SharedWord) {}

    fn commit(&mut self) {}

    fn rest(&self) -> &[Segment] {
        &self.rest
    }

    fn unpop(&mut self, slots: u16) {
        self.next -= usize::from(slots);
    }

    fn push(&mut self, _: &Chain, len: u32) {
        self.returned.push(len);
    }

    fn push_together(&mut self, chains: &[(Chain, u32)]) {
        self.returned.extend(chains.iter().map(|(_, len)| *len));
    }

    fn publish(&mut self) -> bool {
        false
    }

    fn want_kicks(&mut self, _: bool) -> bool {
        false
    }

    fn base(&self) -> u16 {
        0
    }
}

/// Everything was negotiated.
const ALL: Headers = Headers { len: 12, mergeable: true, offloads: Offloads::ALL };

/// A TCP packet over IPv4 with this payload, and its virtio-net header for segments of 1448
/// bytes.
fn packet(payload: usize) -> (VirtioNet, Vec<u8>) {
    let mut bytes = vec![2; 12];
    bytes.extend([0x08, 0x00, 0x45, 0]);
    bytes.extend(((40 + payload) as u16).to_be_bytes());
    bytes.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([0, 80, 0, 81, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    bytes.extend((0..payload).map(|at| (at / 7) as u8));
    let (gso_type, gso_size) = if payload > 1448 { (1, 1448) } else { (0, 0) };
    let (flags, hdr_len, csum_start, csum_offset) = (1, 54, 34, 16);
    (VirtioNet { flags, gso_type, hdr_len, gso_size, csum_start, csum_offset }, bytes)
}

/// A chain of buffers of `len` bytes with header and frame, the header in a buffer of its own
/// if `apart`.
fn chain((header, frame): &(VirtioNet, Vec<u8>), len: usize, apart: bool) -> Vec<Vec<u8>> {
    let header = [&header.bytes()[..], &[0, 0]].concat();
    if apart {
        let frame = frame.chunks(len).map(<[u8]>::to_vec);
        return std::iter::once(header).chain(frame).collect();
    }
    [header, frame.clone()].concat().chunks(len).map(<[u8]>::to_vec).collect()
}

/// Receives everything; returns the frames and the number of malformed ones.
fn received(queue: &mut Chains, headers: Headers) -> (Vec<(Vec<u8>, Offload)>, u64) {
    let (memory, malformed) = (GuestMemory::default(), AtomicU64::new(0));
    let (mut reassembly, mut frames) = (ReassemblyBuffer::new(), Vec::new());
    let take: &mut Take<'_> = &mut |batch| {
        frames.extend(batch.iter().map(|frame| {
            let mut bytes = vec![0; frame.len()];
            frame.copy_into(&mut bytes);
            (bytes, frame.offload())
        }));
        batch.len()
    };
    for _ in 0..2 * queue.ready.len() {
        receive::<_, true>(queue, &memory, headers, &mut reassembly, &malformed, take).unwrap();
    }
    assert_eq!(queue.returned.len(), queue.ready.len());
    (frames, malformed.into_inner())
}

#[test]
fn packets_of_64_kib_are_lent_whole() {
    let long = packet(65_000);
    let tcp = Offload::Tcp(std::num::NonZeroU16::new(1448).unwrap());
    for (len, apart) in
        [(100_000, false), (100_000, true), (4096, false), (4096, true), (999, false)]
    {
        // More than there is room for at once, and short ones between them.
        let short = packet(100);
        let chains = (0..20).map(|number| match number % 3 {
            0 => chain(&short, len, apart),
            _ => chain(&long, len, apart),
        });
        let (frames, malformed) = received(&mut Chains::of(chains), ALL);
        assert_eq!((frames.len(), malformed), (20, 0), "{len}");
        for (number, frame) in frames.into_iter().enumerate() {
            let (sent, offload) =
                if number % 3 == 0 { (&short, Offload::Checksum) } else { (&long, tcp) };
            assert_eq!(frame, (sent.1.clone(), offload), "{len}");
        }
    }
}

#[test]
fn hostile_headers_are_counted_and_dropped() {
    let (good, bytes) = packet(5000);
    let without_tcp = Headers { offloads: Offloads { tcp4: false, ..Offloads::ALL }, ..ALL };
    let without_ecn = Headers { offloads: Offloads { ecn: false, ..Offloads::ALL }, ..ALL };
    for (header, headers) in [
        (VirtioNet { gso_size: 0, ..good }, ALL),
        (VirtioNet { hdr_len: u16::MAX, ..good }, ALL),
        (VirtioNet { csum_start: 6000, ..good }, ALL),
        (VirtioNet { csum_start: u16::MAX, csum_offset: u16::MAX, ..good }, ALL),
        (VirtioNet { gso_type: 4, ..good }, ALL),
        (VirtioNet { gso_type: 5, ..good }, ALL),
        (VirtioNet { gso_type: 3, ..good }, ALL),
        (VirtioNet { flags: 0, ..good }, ALL),
        (good, without_tcp),
        (VirtioNet { gso_type: 0x81, ..good }, without_ecn),
    ] {
        for (len, apart) in [(100_000, false), (100_000, true), (1000, true), (11, false)] {
            let plain = (VirtioNet::default(), vec![7; 60]);
            let hostile = chain(&(header, bytes.clone()), len, apart);
            let chains = [chain(&plain, len, apart), hostile, chain(&plain, len, apart)];
            let (frames, malformed) = received(&mut Chains::of(chains), headers);
            let expected = vec![(vec![7; 60], Offload::None); 2];
            assert_eq!((frames, malformed), (expected, 1), "{header:?} {len}");
        }
    }
    // A long frame is not allowed without segmentation.
    let long = (VirtioNet::default(), vec![7; FRAME_LIMIT + 1]);
    for (len, apart) in [(100_000, false), (100_000, true), (1000, true)] {
        let (frames, malformed) = received(&mut Chains::of([chain(&long, len, apart)]), ALL);
        assert_eq!((frames, malformed), (vec![], 1), "{len}");
    }
}

#[test]
fn checksum_of_other_protocol_is_completed() {
    let header = VirtioNet { flags: 1, csum_start: 20, csum_offset: 4, ..VirtioNet::default() };
    for (len, apart) in [(1000, false), (1000, true), (30, false)] {
        let sent = (header, (0..100).collect::<Vec<u8>>());
        let (frames, malformed) = received(&mut Chains::of([chain(&sent, len, apart)]), ALL);
        let mut expected = sent.1;
        offload::complete(&mut expected, 20, 24);
        assert_eq!((frames, malformed), (vec![(expected, Offload::None)], 0), "{len}");
    }
}

/// Transmits frames; returns how many were taken, and those of them that were lost.
fn sent(queue: &mut Chains, headers: Headers, frames: &[Frame<'_>]) -> (usize, Vec<(u16, Loss)>) {
    let (memory, mut lost) = (GuestMemory::default(), Lost::new());
    let (taken, _) =
        transmit(queue, &memory, headers, &mut Copier::new(), frames, &mut lost).unwrap();
    (taken, lost.of_call().to_vec())
}

#[test]
fn packets_of_64_kib_are_spread_over_buffers() {
    let (header, bytes) = packet(65_000);
    let tcp = Offload::Tcp(std::num::NonZeroU16::new(1448).unwrap());
    let frame = Frame::with_offload(&bytes, tcp);
    let send = |queue: &mut Chains, headers, mergeable| {
        sent(queue, Headers { mergeable, ..headers }, &[frame])
    };
    let all = (1, vec![]);
    let read = |queue: &Chains| {
        let used = queue.returned.iter().sum::<u32>() as usize;
        let mut all = queue.ready[..queue.next].concat().concat();
        all.truncate(used);
        let (head, frame) = all.split_at(12);
        let buffers = u16::from_le_bytes([head[10], head[11]]);
        (VirtioNet::read(*head.first_chunk().unwrap()), usize::from(buffers), frame.to_vec())
    };
    // One large buffer, one chain of several, and several chains.
    let mut one = Chains::of([vec![vec![0; 70_000]]]);
    assert_eq!(send(&mut one, ALL, false), all);
    assert_eq!(read(&one), (header, 1, bytes.clone()));
    let mut several = Chains::of([vec![vec![0; 4096]; 17]]);
    assert_eq!(send(&mut several, ALL, false), all);
    assert_eq!(read(&several), (header, 1, bytes.clone()));
    // The header over several buffers, the last of which has the frame's first bytes.
    let mut odd = Chains::of([vec![vec![0; 5], vec![0; 5], vec![0; 70_000]]]);
    assert_eq!(send(&mut odd, ALL, false), all);
    assert_eq!(read(&odd), (header, 1, bytes.clone()));
    let mut merged = Chains::of(vec![vec![vec![0; 1536]]; 50]);
    assert_eq!(send(&mut merged, ALL, true), all);
    assert_eq!(read(&merged), (header, (12 + bytes.len()).div_ceil(1536), bytes.clone()));
    // Without room it waits.
    let mut few = Chains::of(vec![vec![vec![0; 1536]]; 20]);
    assert_eq!(send(&mut few, ALL, true), (0, vec![]));
    assert_eq!((few.next, few.returned.len()), (0, 0));
    // Not negotiated.
    let mut all = Chains::of([vec![vec![0; 70_000]]]);
    let without_tcp = Headers { offloads: Offloads { tcp4: false, ..Offloads::ALL }, ..ALL };
    assert_eq!(send(&mut all, without_tcp, true), (1, vec![(0, Loss::Undeliverable)]));
    assert_eq!(send(&mut all, PLAIN, true), (1, vec![(0, Loss::Undeliverable)]));
    assert_eq!((all.next, all.returned.len()), (0, 0));
}

#[test]
fn frame_that_never_fits_is_lost_and_leaves_its_buffers() {
    let (short, long) = (vec![7; 60], vec![8; 4000]);
    let [short, long] = [&short, &long].map(|bytes| Frame::from(&bytes[..]));
    let frames = [long, short, long, short];
    let one = |len: usize| vec![vec![0; len]];
    for (chains, mergeable, size, filled) in [
        // Too short a buffer, a chain of them, too many chains, and a ring that is too small.
        (vec![one(1526); 4], false, 256, vec![72, 72]),
        (vec![vec![vec![0; 12], vec![0; 600]]; 4], false, 256, vec![72, 72]),
        (vec![one(48); 256], true, 256, vec![48, 24, 48, 24]),
        (vec![one(512); 8], true, 4, vec![72, 72]),
        // The first has no room for a header.
        (vec![one(8), one(5000)], true, 256, vec![]),
    ] {
        let mut queue = Chains { size, ..Chains::of(chains) };
        let headers = Headers { mergeable, ..PLAIN };
        let (taken, lost) = sent(&mut queue, headers, &frames);
        let expected = match filled.is_empty() {
            true => (0..4).map(|index| (index, Loss::TooLong)).collect(),
            false => vec![(0, Loss::TooLong), (2, Loss::TooLong)],
        };
        assert_eq!((taken, lost), (4, expected), "{mergeable} {size}");
        assert_eq!((queue.next, &queue.returned), (filled.len(), &filled), "nothing else is used");
    }
}

#[test]
fn batch_goes_on_after_a_frame_that_fits_no_buffer() {
    let (short, long) = (vec![7; 60], vec![8; 300]);
    let len = std::num::NonZeroU16::new(1448).unwrap();
    let send = |middle: Frame<'_>| {
        let mut queue = Chains::of(std::iter::repeat_n(vec![vec![0; 112]], 6));
        let frames = [Frame::from(&short[..]), middle, Frame::from(&short[..])];
        let (taken, lost) = sent(&mut queue, PLAIN, &frames);
        assert_eq!(taken, 3);
        assert_eq!(queue.next, queue.returned.len(), "what was not filled is still there");
        let last = &queue.ready[queue.next - 1][0];
        assert_eq!((&last[12..72], &last[72..]), (&short[..], &[0; 40][..]));
        (queue.returned, lost)
    };
    assert_eq!(send(Frame::from(&long[..])), (vec![72, 112, 112, 88, 72], vec![]));
    let unwanted = Frame::with_offload(&long[..80], Offload::Tcp(len));
    assert_eq!(send(unwanted), (vec![72, 72], vec![(1, Loss::Undeliverable)]));
}
