//! Both sides of one ring against queues of the expected results.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use dray_ring::packed::PackedLayout;
use dray_ring::split::SplitLayout;
use dray_ring::{Access, Buffer, CHAIN_MAX, Chain, DeviceQueue, DriverQueue, Plain, Segment, Used};

use crate::bytes::Bytes;
use crate::memory::{DATA, DATA_LEN, INDIRECT, Layout, Memory, NEXT, TABLE_LEN, TABLES, WRITE};

/// A chain on its way through the ring.
#[derive(Debug)]
struct Sent {
    id: u16,
    /// Number of descriptors in the driver's ring.
    descriptors: u16,
    /// Address and length of each buffer; those of an indirect table in place of the table.
    buffers: Vec<(u64, u32)>,
    /// True if its last descriptor is to be made a table.
    indirect: bool,
}

/// Events that one side asks the other for.
#[derive(Clone, Copy, Debug)]
enum Wish {
    Never,
    Always,
    /// When this place on the running line is passed.
    At(u64),
}

/// Start of the running lines: a round number for every ring, with room before it.
const LINE: u64 = 1 << 40;

/// Progress of one side, and its wish for events. Counted in the ring's units: chains in a split
/// ring, descriptors in a packed one.
#[derive(Debug)]
struct Side {
    /// Units made visible to the other side.
    published: u64,
    /// Units written, which may be more.
    written: u64,
    /// Units taken of those that the other side made visible.
    taken: u64,
    wish: Wish,
    /// True if the side asked to be woken and saw that there was nothing to do.
    asleep: bool,
}

impl Side {
    fn new(wish: Wish) -> Self {
        Self { published: LINE, written: LINE, taken: LINE, wish, asleep: false }
    }
}

struct Oracle<L: Layout> {
    memory: Memory,
    layout: L,
    event_index: bool,
    /// True if the device returns chains in order.
    in_order: bool,
    /// True if the last chain was popped as one of a batch.
    by_batch: bool,
    driver: L::Driver,
    device: L::Device,
    of_driver: Side,
    of_device: Side,
    /// In the order of a chain's life. In a packed ring, pushed chains are visible at once.
    posted: VecDeque<Sent>,
    available: VecDeque<Sent>,
    popped: VecDeque<(Chain, Sent)>,
    pushed: VecDeque<(Used, Sent)>,
    used: VecDeque<(Used, Sent)>,
    /// By identity: true if it is posted.
    out: Vec<bool>,
    free: u16,
}

/// Runs the operations in `bytes` on a ring.
pub(crate) fn run(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    if bytes.flag() {
        Oracle::<PackedLayout>::new(&mut bytes).run(&mut bytes);
    } else {
        Oracle::<SplitLayout>::new(&mut bytes).run(&mut bytes);
    }
}

impl<L: Layout> Oracle<L> {
    fn new(bytes: &mut Bytes) -> Self {
        let size = bytes.size();
        let flags = bytes.byte();
        let event_index = flags & 1 != 0;
        let access = if flags & 2 != 0 { Access::Write } else { Access::Read };
        let (memory, layout) = Memory::new::<L>(size, access);
        let driver = layout.driver(event_index);
        let base = if L::PACKED { 0x8000 } else { 0 };
        let device = layout.device(base, true, event_index);
        // Initial state without any wish: a split ring's event index is 0 at first.
        let wish = if event_index && !L::PACKED { Wish::At(LINE) } else { Wish::Never };
        let mut oracle = Self {
            memory,
            layout,
            event_index,
            in_order: flags & 4 == 0,
            by_batch: false,
            driver,
            device,
            of_driver: Side::new(wish),
            of_device: Side::new(wish),
            posted: VecDeque::new(),
            available: VecDeque::new(),
            popped: VecDeque::new(),
            pushed: VecDeque::new(),
            used: VecDeque::new(),
            out: vec![false; size.get().into()],
            free: size.get(),
        };
        let rounds = u32::from(size.get()) * 4;
        oracle.go_to(match bytes.byte() {
            // Shortly before indices wrap around.
            240.. => 65_530,
            byte @ 160..240 => u32::from(byte) % rounds,
            _ => 0,
        });
        oracle
    }

    fn run(&mut self, bytes: &mut Bytes) {
        while !bytes.is_empty() {
            match bytes.byte() % 20 {
                0..5 => self.post(bytes),
                5 | 6 => self.publish_posted(),
                7..10 => drop(self.pop()),
                10 => self.unpop(bytes),
                11 => self.push(bytes),
                12 => self.push_together(bytes),
                13 => self.publish_pushed(),
                14 | 15 => drop(self.poll()),
                16 => self.want_kicks(bytes.flag()),
                17 => self.want_calls(bytes.flag()),
                18 => self.restart(),
                _ => self.through(bytes),
            }
        }
        self.drain();
        assert_eq!(self.free, self.memory.size.get());
        assert!(!self.out.contains(&true));
    }

    /// Returns by how much a chain advances an index: its descriptors in a packed ring, else 1.
    fn units(sent: &Sent) -> u64 {
        if L::PACKED { sent.descriptors.into() } else { 1 }
    }

    /// Returns true if passing from `old` to `new` must wake a side with this wish.
    fn wakes(&self, wish: Wish, old: u64, new: u64) -> bool {
        let round = if L::PACKED { 2 * u64::from(self.memory.size.get()) } else { 1 << 16 };
        match wish {
            Wish::Never => false,
            Wish::Always => true,
            // The place may also be meant some rounds later.
            Wish::At(place) => (old..new).any(|at| at % round == place % round),
        }
    }

    fn post(&mut self, bytes: &mut Bytes) {
        let shape = bytes.byte();
        let direct = match shape & 15 {
            0..10 => 1,
            10 | 11 => 2,
            12 | 13 => u16::from(bytes.byte()) % 18,
            14 => self.free.min(CHAIN_MAX - 16),
            _ => self.free.saturating_add(1).min(CHAIN_MAX - 16),
        };
        let mut buffers: Vec<(u64, u32)> = (0..direct)
            .map(|_| {
                // Also empty buffers, and buffers that end with the region.
                let at = u64::from(bytes.u16()) * 2 + u64::from(bytes.byte() & 2);
                let len = u64::from(bytes.u16()).min(DATA_LEN - at);
                (DATA + at, len as u32)
            })
            .collect();
        let access = self.memory.access;
        let mut posts: Vec<Buffer> =
            buffers.iter().map(|&(address, len)| Buffer { address, len, access }).collect();
        let indirect = shape & 0xf0 == 0x70;
        let next_id = self.driver.next_id();
        assert_eq!(next_id.is_some(), self.free > 0);
        if let (true, Some(id)) = (indirect, next_id) {
            let (address, entries) = self.write_table(id, bytes);
            let len = 16 * entries.len() as u32;
            // The WRITE flag of a table has no meaning.
            posts.push(Buffer { address, len, access: Access::Write });
            buffers.extend(entries);
        }
        let descriptors = posts.len() as u16;
        let id = self.driver.post(&posts);
        if descriptors == 0 || descriptors > self.free {
            assert_eq!(id, None, "{descriptors} descriptors of {}", self.free);
            return;
        }
        assert_eq!(id, next_id);
        self.note_posted(Sent { id: id.unwrap(), descriptors, buffers, indirect });
    }

    fn note_posted(&mut self, sent: Sent) {
        let was_out = std::mem::replace(&mut self.out[usize::from(sent.id)], true);
        assert!(!was_out, "{} was out", sent.id);
        self.free -= sent.descriptors;
        self.of_driver.written += Self::units(&sent);
        self.posted.push_back(sent);
    }

    /// Writes an indirect table of the driver for the chain `id`; returns its address and its
    /// content.
    fn write_table(&mut self, id: u16, bytes: &mut Bytes) -> (u64, Vec<(u64, u32)>) {
        let count = 1 + u16::from(bytes.byte()) % 15;
        let table = TABLES + u64::from(id) * TABLE_LEN + u64::from(bytes.byte() & 15);
        let write = if self.memory.access == Access::Write { WRITE } else { 0 };
        let mut entries = Vec::new();
        // A split table is a chain of its own: this one goes from the first entry to the last one
        // and back from there.
        let entry = |nth: u16| if L::PACKED || nth == 0 { nth } else { count - nth };
        for nth in 0..count {
            let (address, len) = (DATA + u64::from(bytes.u16()), u32::from(bytes.byte()));
            let tail = match (L::PACKED, nth + 1 < count) {
                // Identity and flags other than WRITE have no meaning.
                (true, _) => [bytes.u16(), write | (bytes.u16() & !(WRITE | INDIRECT))],
                (false, true) => [write | NEXT, entry(nth + 1)],
                (false, false) => [write, bytes.u16()],
            };
            let at = table + 16 * u64::from(entry(nth));
            self.memory.write_descriptor(at, address, len, tail);
            entries.push((address, len));
        }
        (table, entries)
    }

    /// Turns the last descriptor of a chain, which the driver regards as a plain buffer, into a
    /// table. `start` is the place of the chain's first descriptor in a packed ring.
    fn make_indirect(&self, sent: &Sent, start: u64) {
        let memory = &self.memory;
        let flags_at = if L::PACKED {
            let last = (start + u64::from(sent.descriptors) - 1) % u64::from(memory.size.get());
            Memory::descriptor(last as u16) + 14
        } else {
            let mut last = Memory::descriptor(sent.id);
            while memory.read_u16(last + 12) & NEXT != 0 {
                last = Memory::descriptor(memory.read_u16(last + 14));
            }
            last + 12
        };
        memory.write(flags_at, (memory.read_u16(flags_at) | INDIRECT).to_le_bytes());
    }

    fn publish_posted(&mut self) {
        let (old, new) = (self.of_driver.published, self.of_driver.written);
        let kick = self.driver.publish();
        assert_eq!(
            kick,
            new > old && self.wakes(self.of_device.wish, old, new),
            "{old} {new} {:?} {}",
            self.of_device,
            self.event_index
        );
        assert!(kick || new == old || !self.of_device.asleep, "the device sleeps on");
        self.of_device.asleep &= !kick;
        self.of_driver.published = new;
        let mut start = old;
        for sent in self.posted.drain(..).collect::<Vec<_>>() {
            if sent.indirect {
                self.make_indirect(&sent, start);
            }
            start += Self::units(&sent);
            self.available.push_back(sent);
        }
    }

    /// Pops the next chain, every other time through the batch call for plain chains.
    fn next_chain(&mut self) -> Option<Chain> {
        let (memory, access) = (&self.memory.guest, self.memory.access);
        self.by_batch = !self.by_batch;
        if self.by_batch {
            let mut plain = None;
            // Takes the first one, and looks at the one behind it.
            let take = |buffer| plain.is_none().then(|| plain = Some(buffer)).is_some();
            let odd = self.device.pop_plain(memory, access, 2, take).unwrap();
            if let Some(Plain { start, len, id }) = plain {
                return Some(Chain { id, slots: 1, first: Segment { start, len }, more: false });
            }
            if !odd {
                return None;
            }
        }
        self.device.pop(memory, access).unwrap()
    }

    #[must_use]
    fn pop(&mut self) -> bool {
        let chain = self.next_chain();
        let Some(sent) = self.available.pop_front() else {
            assert_eq!(chain, None);
            return false;
        };
        let chain = chain.expect("a chain is available");
        let slots = if L::PACKED { sent.descriptors } else { 1 };
        assert_eq!((chain.id, chain.slots), (sent.id, slots));
        let rest = self.device.rest();
        assert_eq!(chain.more, !rest.is_empty());
        let found: Vec<_> =
            std::iter::once(&chain.first).chain(rest).map(|s| (s.start, s.len)).collect();
        let expected: Vec<_> = (sent.buffers.iter())
            .map(|&(address, len)| (self.memory.at(address, len.into()), len))
            .collect();
        assert_eq!(found, expected);
        self.of_device.taken += u64::from(slots);
        self.popped.push_back((chain, sent));
        true
    }

    fn unpop(&mut self, bytes: &mut Bytes) {
        // Out of order, the chains popped last may have been returned already.
        let count =
            if self.in_order { usize::from(bytes.byte()) % (self.popped.len() + 1) } else { 0 };
        let back = self.popped.split_off(self.popped.len() - count);
        let slots = back.iter().map(|(chain, _)| chain.slots).sum();
        self.device.unpop(slots);
        self.of_device.taken -= u64::from(slots);
        back.into_iter().rev().for_each(|(_, sent)| self.available.push_front(sent));
    }

    fn push(&mut self, bytes: &mut Bytes) {
        let which = if self.in_order { 0 } else { usize::from(bytes.byte()) };
        let Some((chain, sent)) = self.popped.remove(which % self.popped.len().max(1)) else {
            return;
        };
        let len = if bytes.flag() { bytes.u32() } else { 0 };
        self.device.push(&chain, len);
        self.note_pushed(chain, len, sent);
    }

    fn push_together(&mut self, bytes: &mut Bytes) {
        let count = usize::from(bytes.byte()) % (self.popped.len() + 1);
        let returned: Vec<_> =
            self.popped.drain(..count).map(|(chain, sent)| (chain, bytes.u32(), sent)).collect();
        let chains: Vec<_> = returned.iter().map(|(chain, len, _)| (*chain, *len)).collect();
        self.device.push_together(&chains);
        returned.into_iter().for_each(|(chain, len, sent)| self.note_pushed(chain, len, sent));
    }

    fn note_pushed(&mut self, chain: Chain, len: u32, sent: Sent) {
        self.of_device.written += Self::units(&sent);
        let queue = if L::PACKED { &mut self.used } else { &mut self.pushed };
        queue.push_back((Used { id: chain.id, len }, sent));
    }

    fn publish_pushed(&mut self) {
        let (old, new) = (self.of_device.published, self.of_device.written);
        let call = self.device.publish();
        assert_eq!(call, new > old && self.wakes(self.of_driver.wish, old, new), "{old} {new}");
        self.of_device.published = new;
        self.used.append(&mut self.pushed);
        assert!(call || self.used.is_empty() || !self.of_driver.asleep, "the driver sleeps on");
        self.of_driver.asleep &= !call;
    }

    #[must_use]
    fn poll(&mut self) -> bool {
        let used = if self.by_batch {
            let mut used = ArrayVec::<Used, 1>::new();
            self.driver.poll_each(used.capacity(), |one| used.push(one)).unwrap();
            used.pop()
        } else {
            self.driver.poll().unwrap()
        };
        let Some((expected, sent)) = self.used.pop_front() else {
            assert_eq!(used, None);
            return false;
        };
        assert_eq!(used, Some(expected));
        self.out[usize::from(sent.id)] = false;
        self.free += sent.descriptors;
        self.of_driver.taken += Self::units(&sent);
        true
    }

    /// Returns the wish of a side that switched events on or off and has taken all up to `taken`.
    fn wish(&self, on: bool, taken: u64) -> Wish {
        match (on, self.event_index) {
            (true, false) => Wish::Always,
            (true, true) => Wish::At(taken),
            // The closest that an event index can express.
            (false, true) if !L::PACKED => Wish::At(taken - 1),
            (false, _) => Wish::Never,
        }
    }

    fn want_kicks(&mut self, on: bool) {
        let work = self.device.want_kicks(on);
        assert_eq!(work, !self.available.is_empty());
        self.of_device.wish = self.wish(on, self.of_device.taken);
        self.of_device.asleep = on && !work;
    }

    fn want_calls(&mut self, on: bool) {
        let work = self.driver.want_calls(on);
        assert_eq!(work, !self.used.is_empty());
        self.of_driver.wish = self.wish(on, self.of_driver.taken);
        self.of_driver.asleep = on && !work;
    }

    /// Replaces the device by one that continues at its position, unless the old one has popped or
    /// unpublished chains.
    fn restart(&mut self) {
        if !self.popped.is_empty() || self.of_device.written != self.of_device.published {
            return;
        }
        let base = self.device.base();
        self.device = self.layout.device(base, true, self.event_index);
        assert_eq!(self.device.base(), base);
        // An event index is in the ring and outlives the device.
        if L::PACKED || !self.event_index {
            self.of_device.wish = Wish::Never;
            self.of_device.asleep = false;
        }
    }

    /// Passes chains of one buffer through the whole ring, without publishing to the driver.
    fn through(&mut self, bytes: &mut Bytes) {
        for _ in 0..bytes.byte() {
            self.post(&mut Bytes(&[0]));
            self.publish_posted();
            let _ = self.pop();
            self.push(&mut Bytes(&[]));
            let _ = self.poll();
        }
    }

    /// Empties the ring.
    fn drain(&mut self) {
        self.publish_posted();
        while self.pop() {}
        while !self.popped.is_empty() {
            self.push(&mut Bytes(&[]));
        }
        self.publish_pushed();
        while self.poll() {}
    }

    /// Advances the empty ring to `place` with chains of one buffer, without the oracle, for speed.
    fn go_to(&mut self, place: u32) {
        let buffer = Buffer { address: DATA, len: 1, access: self.memory.access };
        let mut missing = place;
        while missing > 0 {
            let batch = missing.min(self.free.into());
            for _ in 0..batch {
                self.driver.post(&[buffer]).expect("there is room");
            }
            self.driver.publish();
            for _ in 0..batch {
                let chain = self.device.pop(&self.memory.guest, self.memory.access).unwrap();
                self.device.push(&chain.expect("it is available"), 0);
            }
            self.device.publish();
            for _ in 0..batch {
                self.driver.poll().unwrap().expect("it was returned");
            }
            missing -= batch;
        }
        for side in [&mut self.of_driver, &mut self.of_device] {
            let place = LINE + u64::from(place);
            (side.published, side.written, side.taken) = (place, place, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn ring_agrees_with_oracle(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
            run(&bytes);
        }
    }

    /// Every layout, size and start, each with random operations.
    #[test]
    fn rings_of_every_size_agree_with_oracle() {
        let mut seed = 1u64;
        for first in 0..2u8 {
            for size in 230..=255 {
                for start in [0, 190, 239, 255] {
                    let mut bytes = vec![first, size, seed as u8, start];
                    bytes.extend((0..2000).map(|_| {
                        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (seed >> 56) as u8
                    }));
                    run(&bytes);
                }
            }
        }
    }
}
