//! Rings and buffers in memory of our own, with a kernel that the tests play.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::calls::Pages;
use super::layout::{
    BUFFER_CHANGED, Interface, MORE_FRAGMENTS, RINGS_AT, RingHeader, SLOTS_AT, Slot,
};
use super::receive::NetmapReceive;
use super::region::{Place, Region};
use super::registration::{Gone, Registration};
use super::ring::Ring;
use super::transmit::NetmapTransmit;
use super::uri::Kind;

use crate::{Frame, Transmit, Wait};

/// Number of slots of a ring.
const SLOTS: u32 = 8;
const BUFFER_LEN: usize = 2048;
/// Number of buffers: those of two rings, the first two of netmap, and some more.
const BUFFERS: usize = 24;
/// Where the transmit ring and the receive ring lie.
const RINGS: [usize; 2] = [4096, 8192];
const BUFFERS_AT: usize = 12288;
const LEN: usize = BUFFERS_AT + BUFFERS * BUFFER_LEN;

/// The kernel's view of a region with a transmit and a receive ring.
struct Kernel {
    memory: OwnedFd,
    pages: Pages,
}

impl Kernel {
    fn new() -> Self {
        let memory = memfd_create("netmap", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&memory, LEN as u64).unwrap();
        let kernel = Self { pages: Pages::map(&memory, LEN).unwrap(), memory };
        let interface = kernel.at::<Interface>(0);
        interface.tx_rings.store(1, Ordering::Relaxed);
        interface.rx_rings.store(1, Ordering::Relaxed);
        for (number, at) in RINGS.into_iter().enumerate() {
            kernel.at::<AtomicI64>(RINGS_AT + number * 8).store(at as i64, Ordering::Relaxed);
            let header = kernel.header(number);
            header.buffers_at.store((BUFFERS_AT - at) as i64, Ordering::Relaxed);
            header.slots.store(SLOTS, Ordering::Relaxed);
            header.buffer_len.store(BUFFER_LEN as u32, Ordering::Relaxed);
            for index in 0..SLOTS {
                let buffer = 2 + number as u32 * SLOTS + index;
                kernel.slot(number, index).buffer.store(buffer, Ordering::Relaxed);
            }
        }
        kernel.header(0).tail.store(SLOTS - 1, Ordering::Relaxed);
        kernel
    }

    fn at<T>(&self, offset: usize) -> &T {
        assert!(offset + size_of::<T>() <= LEN);
        // SAFETY: it lies in the mapping; the type consists of atomic fields.
        unsafe { self.pages.start.add(offset).cast().as_ref() }
    }

    fn header(&self, ring: usize) -> &RingHeader {
        self.at(RINGS[ring])
    }

    fn slot(&self, ring: usize, index: u32) -> &Slot {
        self.at(RINGS[ring] + SLOTS_AT + index as usize * size_of::<Slot>())
    }

    fn set_tail(&self, ring: usize, tail: u32) {
        self.header(ring).tail.store(tail, Ordering::Release);
    }

    /// Maps the memory once more, as a program does.
    fn map(&self) -> Pages {
        Pages::map(&self.memory, LEN).unwrap()
    }

    /// Opens the region and both rings, the transmit ring first.
    fn open(&self) -> (Arc<Region>, [Ring; 2]) {
        let region = Arc::new(Region::new(self.map(), 0, 0).unwrap());
        let rings = [false, true].map(|receives| Ring::open(&region, 0, 0, receives).unwrap());
        (region, rings)
    }

    /// Opens both halves of a port of this `kind`. Syncing them fails.
    fn halves(&self, kind: Kind) -> (NetmapTransmit, NetmapReceive) {
        let (_, [tx, rx]) = self.open();
        let device = self.memory.try_clone().unwrap();
        let registration = Arc::new(Registration { device, gone: Arc::new(Gone::default()) });
        let tx = NetmapTransmit::new(registration.clone(), tx, kind, 9014);
        (tx, NetmapReceive::new(registration, rx, Wait::POLL))
    }

    /// Writes `bytes` into the buffer of a slot of the receive ring.
    fn fill(&self, index: u32, bytes: &[u8]) {
        let slot = self.slot(1, index);
        slot.len.store(bytes.len() as u16, Ordering::Relaxed);
        let buffer = slot.buffer.load(Ordering::Relaxed);
        for (at, byte) in bytes.iter().enumerate() {
            let at = BUFFERS_AT + buffer as usize * BUFFER_LEN + at;
            self.at::<AtomicU8>(at).store(*byte, Ordering::Relaxed);
        }
    }

    /// Returns the frame parts that the slots of the transmit ring have, up to `end`.
    fn sent(&self, end: u32) -> Vec<(Vec<u8>, u16)> {
        let part = |index| {
            let slot = self.slot(0, index);
            let at = BUFFERS_AT + slot.buffer.load(Ordering::Relaxed) as usize * BUFFER_LEN;
            let len = usize::from(slot.len.load(Ordering::Relaxed));
            let byte = |at| self.at::<AtomicU8>(at).load(Ordering::Relaxed);
            ((at..at + len).map(byte).collect(), slot.flags.load(Ordering::Relaxed))
        };
        (0..end).map(part).collect()
    }

    /// Returns the buffers of a ring's slots.
    fn buffers(&self, ring: usize) -> Vec<u32> {
        (0..SLOTS).map(|index| self.slot(ring, index).buffer.load(Ordering::Relaxed)).collect()
    }

    /// Returns the error of opening a ring.
    fn refused(&self) -> String {
        let region = Region::new(self.map(), 0, 0).map(Arc::new);
        let ring = region.and_then(|region| Ring::open(&region, 0, 0, true));
        ring.map(|_| ()).unwrap_err().to_string()
    }
}

#[test]
fn indices_wrap_at_ring_end() {
    let kernel = Kernel::new();
    let (_, [tx, mut rx]) = kernel.open();
    assert_eq!((tx.available().unwrap(), rx.available().unwrap()), (SLOTS - 1, 0));
    for round in 0..30 {
        let count = 1 + round % (SLOTS - 1);
        let head = kernel.header(1).head.load(Ordering::Relaxed);
        for index in 0..count {
            let slot = kernel.slot(1, (head + index) % SLOTS);
            slot.len.store((round * 10 + index) as u16, Ordering::Relaxed);
        }
        kernel.set_tail(1, (head + count) % SLOTS);
        assert_eq!(rx.available().unwrap(), count);
        for index in 0..count {
            let entry = rx.read(index);
            assert_eq!(u32::from(entry.len), round * 10 + index);
            assert_eq!(entry.place.buffer, 2 + SLOTS + (head + index) % SLOTS);
        }
        rx.release(count);
        rx.check().unwrap();
        let indices = [&kernel.header(1).head, &kernel.header(1).current];
        assert!(indices.iter().all(|at| at.load(Ordering::Relaxed) == (head + count) % SLOTS));
        assert_eq!(rx.available().unwrap(), 0);
    }
}

#[test]
fn tail_outside_ring_is_refused() {
    let kernel = Kernel::new();
    let (_, [_, rx]) = kernel.open();
    for tail in [SLOTS, u32::MAX] {
        kernel.set_tail(1, tail);
        let error = rx.available().unwrap_err().to_string();
        assert!(error.contains("overwritten the indices of a ring of 8 slots"), "{error}");
    }
    kernel.header(1).head.store(3, Ordering::Relaxed);
    assert!(rx.check().is_err());
}

#[test]
fn place_outside_buffers_is_not_found() {
    let (region, _) = Kernel::new().open();
    let found = |buffer, offset, len| region.find(Place { buffer, offset }, len).is_some();
    assert!(found(2, 0, BUFFER_LEN) && found(BUFFERS as u32 - 1, 48, BUFFER_LEN - 48));
    for (buffer, offset, len) in [
        (0, 0, 60),
        (1, 0, 60),
        (BUFFERS as u32, 0, 60),
        (u32::MAX, 0, 60),
        (2, 0, BUFFER_LEN + 1),
        (2, 8, BUFFER_LEN),
        (2, u32::MAX, 60),
    ] {
        assert!(!found(buffer, offset, len), "{buffer} {offset} {len}");
    }
}

#[test]
fn every_buffer_stays_in_one_slot() {
    let (region, [tx, rx]) = Kernel::new().open();
    let buffers = |rings: [&Ring; 2]| {
        let all = rings.iter().flat_map(|ring| {
            (0..SLOTS).map(|index| ring.read(index).place.buffer).collect::<Vec<_>>()
        });
        let mut all: Vec<u32> = all.collect();
        all.sort_unstable();
        all
    };
    let before = buffers([&tx, &rx]);
    for index in 0..SLOTS {
        let (own, received) = (tx.read(index).place, rx.read(index).place);
        let start = region.find(received, 60).unwrap();
        // SAFETY: the bytes are mapped as long as the region.
        let frame = unsafe { Frame::shared(start, 60) };
        assert_eq!(region.exchange(&frame, own), Some(received.buffer));
        tx.replace(index, received.buffer);
        // A second receiver gets a copy, and the frame is not overwritten meanwhile.
        assert_eq!(region.exchange(&frame, rx.read(0).place), None);
        assert!(region.is_lent(received.buffer) && !region.is_lent(own.buffer));
        let now = region.take_back(received.buffer);
        assert_eq!(now, own.buffer);
        rx.replace(index, now);
        assert!(!region.is_lent(received.buffer));
        assert_eq!(region.take_back(now), now);
    }
    assert_eq!(buffers([&tx, &rx]), before);
    assert_eq!(tx.read(0).place.buffer, 2 + SLOTS);
}

#[test]
fn forwarded_frames_exchange_buffers() {
    let kernel = Kernel::new();
    let (mut tx, mut rx) = kernel.halves(Kind::Pipe);
    let before = [kernel.buffers(0), kernel.buffers(1)];
    (0..3).for_each(|index| kernel.fill(index, &[index as u8; 60]));
    kernel.set_tail(1, 3);
    // The third frame is not taken, and stays queued.
    let lent = rx.lend(3, &mut |frames| tx.push_all(&frames[..2]).unwrap());
    assert_eq!((lent, kernel.header(1).head.load(Ordering::Relaxed)), (3, 2));
    let sent = [0, 1].map(|byte| (vec![byte; 60], BUFFER_CHANGED));
    assert_eq!(kernel.sent(2), sent);
    let after = [kernel.buffers(0), kernel.buffers(1)];
    assert_eq!((&after[0][..2], &after[1][..2]), (&before[1][..2], &before[0][..2]));
    assert_eq!((&after[0][2..], &after[1][2..]), (&before[0][2..], &before[1][2..]));
    assert_eq!(kernel.slot(1, 0).flags.load(Ordering::Relaxed), BUFFER_CHANGED);
}

#[test]
fn frame_for_several_ports_is_copied_after_first() {
    let kernel = Kernel::new();
    let (mut tx, mut rx) = kernel.halves(Kind::Vale);
    kernel.fill(0, &[7; 60]);
    kernel.set_tail(1, 1);
    let lent = rx.lend(1, &mut |frames| {
        assert_eq!(tx.push_all(frames).unwrap() + tx.push_all(frames).unwrap(), 2);
        1
    });
    assert_eq!((lent, kernel.header(1).head.load(Ordering::Relaxed)), (1, 1));
    assert_eq!(kernel.sent(2), [(vec![7; 60], BUFFER_CHANGED), (vec![7; 60], 0)]);
}

#[test]
fn taken_over_buffer_returns_when_receiver_closes() {
    let kernel = Kernel::new();
    let (mut tx, mut rx) = kernel.halves(Kind::Vale);
    kernel.fill(0, &[7; 60]);
    kernel.set_tail(1, 1);
    let lent = rx.lend(1, &mut |frames| {
        tx.push_all(frames).unwrap();
        // The caller lends it again later, to another port.
        0
    });
    assert_eq!(lent, 1);
    assert_eq!(kernel.buffers(0)[0], kernel.buffers(1)[0]);
    drop(rx);
    let mut all = [kernel.buffers(0), kernel.buffers(1)].concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 2 * SLOTS as usize);
}

#[test]
fn pipe_that_never_waits_copies() {
    let kernel = Kernel::new();
    let (mut tx, mut rx) = kernel.halves(Kind::Pipe);
    tx.never_wait();
    kernel.fill(0, &[7; 60]);
    kernel.set_tail(1, 1);
    let before = kernel.buffers(0);
    rx.lend(1, &mut |frames| tx.push_all(frames).unwrap());
    assert_eq!((kernel.buffers(0), kernel.sent(1)), (before, vec![(vec![7; 60], 0)]));
}

#[test]
fn long_frame_takes_chain_of_slots() {
    let kernel = Kernel::new();
    let (mut tx, mut rx) = kernel.halves(Kind::Pipe);
    let long: Vec<u8> = (0..9014_u32).map(|byte| byte as u8).collect();
    // The second one finds no room.
    let frames = [Frame::from(&long[..]), Frame::from(&long[..])];
    assert_eq!(tx.push_all(&frames).unwrap(), 1);
    let sent = kernel.sent(5);
    assert_eq!(sent.iter().flat_map(|(part, _)| part.clone()).collect::<Vec<_>>(), long);
    let flags: Vec<u16> = sent.iter().map(|(_, flags)| *flags).collect();
    assert_eq!(flags, [MORE_FRAGMENTS, MORE_FRAGMENTS, MORE_FRAGMENTS, MORE_FRAGMENTS, 0]);
    // Frame by frame, and the parts of the second one when all have arrived.
    kernel.fill(0, &[1; 60]);
    for (index, (part, flags)) in (1..).zip(&sent) {
        kernel.fill(index, part);
        kernel.slot(1, index).flags.store(*flags, Ordering::Relaxed);
    }
    let mut received = Vec::new();
    let mut take = |frames: &[Frame<'_>]| {
        received.extend(frames.iter().map(|frame| frame.bytes(&mut crate::scratch()).to_vec()));
        frames.len()
    };
    for (tail, lent) in [(3, 1), (5, 0), (6, 1)] {
        kernel.set_tail(1, tail);
        let head = kernel.header(1).head.load(Ordering::Relaxed);
        assert_eq!(rx.lend(tail - head, &mut take), lent);
    }
    assert_eq!(received, [vec![1; 60], long]);
}

#[test]
fn unusable_slots_are_skipped_and_counted() {
    use crate::Receive;
    let kernel = Kernel::new();
    let (_, mut rx) = kernel.halves(Kind::Pipe);
    kernel.fill(0, &[1; 60]);
    kernel.slot(1, 0).buffer.store(77, Ordering::Relaxed);
    kernel.slot(1, 1).len.store(BUFFER_LEN as u16 + 1, Ordering::Relaxed);
    // A chain without an end that is longer than a frame can be.
    (2..7).for_each(|index| kernel.slot(1, index).flags.store(MORE_FRAGMENTS, Ordering::Relaxed));
    kernel.set_tail(1, 7);
    for (available, head) in [(7, 1), (6, 2)] {
        assert_eq!(rx.lend(available, &mut |_| panic!("nothing is lent")), 0);
        assert_eq!(kernel.header(1).head.load(Ordering::Relaxed), head);
    }
    assert_eq!(rx.dropped().unwrap(), 2);
}

#[test]
fn frames_of_wrong_length_are_dropped() {
    let kernel = Kernel::new();
    let (mut tx, _) = kernel.halves(Kind::Interface);
    let long = vec![0; 9019];
    let bytes = [&long[..13], &long[..9015], &long[..4000], &long[..60]];
    let frames: Vec<_> =
        bytes.iter().map(|bytes| Frame::from(&bytes[..bytes.len().min(9018)])).collect();
    assert_eq!((tx.push_all(&frames).unwrap(), tx.dropped()), (4, 3));
    assert_eq!(kernel.header(0).head.load(Ordering::Relaxed), 1);
}

#[test]
fn exchange_refuses_other_memory_and_offset() {
    let (region, [tx, rx]) = Kernel::new().open();
    let own = tx.read(0).place;
    assert_eq!(region.exchange(&Frame::from(&[0; 60][..]), own), None);
    let shifted = Place { offset: 64, ..rx.read(0).place };
    let start = region.find(shifted, 60).unwrap();
    // SAFETY: the bytes are mapped as long as the region.
    let frame = unsafe { Frame::shared(start, 60) };
    assert_eq!(region.exchange(&frame, own), None);
    assert_eq!(region.exchange(&frame, Place { offset: 64, ..own }), Some(shifted.buffer));
}

#[test]
fn offset_is_read_from_masked_bits() {
    let kernel = Kernel::new();
    kernel.slot(1, 0).pointer.store(0xdead_0000_0040, Ordering::Relaxed);
    for (mask, offset) in [(0, 0), (0xffff, 64), (u64::MAX, u32::MAX)] {
        kernel.header(1).offset_mask.store(mask, Ordering::Relaxed);
        let region = Arc::new(Region::new(kernel.map(), 0, 0).unwrap());
        let ring = Ring::open(&region, 0, 0, true).unwrap();
        assert_eq!(ring.read(0).place.offset, offset, "{mask:x}");
        ring.write(0, 60, MORE_FRAGMENTS);
        assert_eq!(ring.read(0).place.offset, offset, "kept");
    }
}

#[test]
fn contradictory_memory_is_refused() {
    let refused = |spoil: &dyn Fn(&Kernel)| {
        let kernel = Kernel::new();
        spoil(&kernel);
        kernel.refused()
    };
    let ring = |kernel: &Kernel, number: usize, value: i64| {
        kernel.at::<AtomicI64>(RINGS_AT + number * 8).store(value, Ordering::Relaxed);
    };
    for value in [-8, LEN as i64, i64::MAX, 4097] {
        assert!(refused(&|kernel| ring(kernel, 1, value)).contains("ring outside"), "{value}");
    }
    for slots in [0, 1, 100_000, u32::MAX] {
        let error = refused(&|kernel| kernel.header(1).slots.store(slots, Ordering::Relaxed));
        assert!(error.contains("more slots than fit"), "{slots}: {error}");
    }
    for at in [-5000, LEN as i64, i64::MAX] {
        let error = refused(&|kernel| kernel.header(0).buffers_at.store(at, Ordering::Relaxed));
        assert!(error.contains("buffers outside"), "{at}: {error}");
    }
    let other = refused(&|kernel| kernel.header(1).buffer_len.store(4096, Ordering::Relaxed));
    assert!(other.contains("other buffers"), "{other}");
}

proptest! {
    /// Whatever another process writes into the memory, opening it ends in a ring or an error.
    #[test]
    fn any_header_is_opened_or_refused(words in proptest::collection::vec(any::<u64>(), 12), at in 0_usize..1100) {
        let kernel = Kernel::new();
        for (index, word) in words.iter().enumerate() {
            let offset = at * 8 % (LEN / 8 - 96) + index * 8;
            kernel.at::<AtomicU64>(offset).store(*word, Ordering::Relaxed);
        }
        let region = Region::new(kernel.map(), 0, 0).map(Arc::new);
        if let Ok(ring) = region.and_then(|region| Ring::open(&region, 0, 0, true)) {
            for index in 0..ring.available().unwrap_or(0) {
                let entry = ring.read(index);
                let _ = ring.region().find(entry.place, entry.len.into());
            }
        }
    }
}
