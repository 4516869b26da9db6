//! Packets that wait for the rate of their session.
//!
//! They are complete, and each has the tick from which it may leave, so that one heap serves all
//! sessions of a worker: the packets of a flow leave in order, since their ticks are.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use arrayvec::ArrayVec;
use dray_port::Frame;
use dray_wire::ethernet::ETHERNET_LEN;

use super::egress_queue::FrameClass;
use super::header_buffer::CHUNK;

/// Memory of the packets that wait at a worker, in bytes: 30 ms of 4 Gb/s.
const MEMORY: usize = 16 << 20;

/// Copies of packets that wait for their rate.
pub(super) struct ShapingQueue {
    /// By room; memory that is never touched is not allocated.
    bytes: Box<[u8]>,
    /// Length of a room.
    room: usize,
    free: Vec<u32>,
    /// Number of rooms that were ever used.
    used: u32,
    order: BinaryHeap<Reverse<Waiting>>,
    /// Number of frames that wait, by session.
    of: Vec<u32>,
    /// Number of frames that have ever waited: those with equal ticks leave in order.
    count: u64,
    /// Number of packets that were received, and wait.
    packets: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    from: u64,
    number: u64,
    room: u32,
    len: u32,
    class: FrameClass,
    /// Number of its session.
    slot: u32,
}

impl ShapingQueue {
    /// Creates memory for packets of up to `mtu` bytes.
    pub(super) fn new(mtu: usize) -> Self {
        let room = (mtu + ETHERNET_LEN).next_multiple_of(64);
        let bytes = vec![0; MEMORY / room * room].into();
        Self {
            bytes,
            room,
            free: Vec::new(),
            used: 0,
            order: BinaryHeap::new(),
            of: Vec::new(),
            count: 0,
            packets: 0,
        }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Returns true if a packet of a session may wait: the session has fewer rooms than are free,
    /// so that it leaves room for others. Some rooms stay free for fragments and for the
    /// packets of a chunk, which get theirs only when the chunk is transmitted.
    #[inline]
    pub(super) fn may_wait(&self, slot: u32) -> bool {
        let free = (self.bytes.len() / self.room).saturating_sub(self.order.len() + 4 * CHUNK);
        self.of.get(slot as usize).is_none_or(|count| (*count as usize) < free) && free > 0
    }

    /// Returns true if there is room for `count` more packets.
    pub(super) fn has_room(&self, count: usize) -> bool {
        self.order.len() + count <= self.bytes.len() / self.room
    }

    /// Returns the tick from which the next packet may leave, if there is one.
    pub(super) fn next(&self) -> Option<u64> {
        self.order.peek().map(|Reverse(first)| first.from)
    }

    /// Keeps a copy of `frame`, of the session `slot`, until the tick `from`; returns false if
    /// there is no room for it.
    pub(super) fn keep(
        &mut self,
        (frame, class): (&Frame<'_>, FrameClass),
        (slot, from): (u32, u64),
    ) -> bool {
        if frame.len() > self.room || !self.has_room(1) {
            return false;
        }
        let room = self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        });
        let start = room as usize * self.room;
        let len = frame.copy_into(&mut self.bytes[start..start + frame.len()]) as u32;
        self.order.push(Reverse(Waiting { from, number: self.count, room, len, class, slot }));
        if self.of.len() <= slot as usize {
            self.of.resize(slot as usize + 1, 0);
        }
        self.of[slot as usize] += 1;
        self.count += 1;
        self.packets += u64::from(class == FrameClass::Packet);
        true
    }

    /// Returns the tick from which the last packet of a session may leave, if it has any.
    pub(super) fn last(&self, slot: u32) -> Option<u64> {
        let has_some = self.of.get(slot as usize).is_some_and(|count| *count > 0);
        let of_session = self.order.iter().filter(|Reverse(waiting)| waiting.slot == slot);
        of_session.map(|Reverse(waiting)| waiting.from).max().filter(|_| has_some)
    }

    /// Makes all packets of a session due at once, in their order; returns false if there are none.
    pub(super) fn expedite(&mut self, slot: u32) -> bool {
        if self.of.get(slot as usize).is_none_or(|count| *count == 0) {
            return false;
        }
        let mut all = std::mem::take(&mut self.order).into_vec();
        let of_session = all.iter_mut().filter(|Reverse(waiting)| waiting.slot == slot);
        of_session.for_each(|Reverse(waiting)| waiting.from = 0);
        self.order = all.into();
        true
    }

    /// Returns the number of packets that were received, and wait.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Passes the frames that are due at the tick `now`, at most a chunk, and their classes to
    /// `send`. Returns true if there were any.
    pub(super) fn release(
        &mut self,
        now: u64,
        send: impl FnOnce(&[Frame<'_>], &[FrameClass]),
    ) -> bool {
        let mut due = ArrayVec::<Waiting, CHUNK>::new();
        while !due.is_full() && self.next().is_some_and(|from| from <= now) {
            due.extend(self.order.pop().map(|Reverse(first)| first));
        }
        let frame = |waiting: &Waiting| {
            let start = waiting.room as usize * self.room;
            Frame::from(&self.bytes[start..start + waiting.len as usize])
        };
        let frames: ArrayVec<Frame<'_>, CHUNK> = due.iter().map(frame).collect();
        if frames.is_empty() {
            return false;
        }
        let classes: ArrayVec<FrameClass, CHUNK> =
            due.iter().map(|waiting| waiting.class).collect();
        send(&frames, &classes);
        drop(frames);
        self.packets -= classes.iter().filter(|class| **class == FrameClass::Packet).count() as u64;
        due.iter().for_each(|waiting| self.of[waiting.slot as usize] -= 1);
        self.free.extend(due.iter().map(|waiting| waiting.room));
        true
    }
}

#[cfg(test)]
mod tests {
    use dray_port::scratch;

    use super::*;

    #[test]
    fn packets_leave_in_the_order_of_their_ticks() {
        let mut shaped = ShapingQueue::new(1500);
        let order = [(7, 1), (5, 2), (7, 3), (6, 4), (5, 5)];
        for (from, number) in order {
            assert!(
                shaped.keep((&Frame::from(&[number; 1514][..]), FrameClass::Packet), (0, from))
            );
        }
        assert_eq!(shaped.next(), Some(5));
        assert!(!shaped.release(4, |_, _| panic!("too early")));
        let mut left = Vec::new();
        for now in [5, 9] {
            shaped.release(now, |frames, _| {
                left.extend(frames.iter().map(|frame| frame.bytes(&mut scratch())[1513]));
            });
        }
        assert_eq!(left, [2, 5, 4, 1, 3]);
        assert!(shaped.is_empty());
    }

    #[test]
    fn packets_of_one_session_leave_early() {
        let mut shaped = ShapingQueue::new(1500);
        for (slot, from, number) in [(1, 9, 1), (2, 7, 2), (1, 8, 3), (2, 6, 4)] {
            let frame = [number; 60];
            assert!(shaped.keep((&Frame::from(&frame[..]), FrameClass::Packet), (slot, from)));
        }
        assert!(!shaped.expedite(3) && shaped.expedite(1));
        let mut left = Vec::new();
        for now in [0, 9] {
            shaped.release(now, |frames, _| {
                left.extend(frames.iter().map(|frame| frame.bytes(&mut scratch())[0]));
            });
            assert_eq!(left.len(), if now == 0 { 2 } else { 4 });
        }
        assert_eq!(left, [1, 3, 4, 2]);
    }

    #[test]
    fn one_session_leaves_room_for_others() {
        let mut shaped = ShapingQueue::new(1500);
        let frame = [0; 60];
        let frame = (&Frame::from(&frame[..]), FrameClass::Packet);
        let count = (0..100_000).take_while(|_| shaped.may_wait(7) && shaped.keep(frame, (7, 1)));
        let (count, all) = (count.count(), shaped.bytes.len() / shaped.room);
        assert!((all / 2 - 4 * CHUNK..=all / 2).contains(&count), "{count} of {all}");
        assert!(shaped.may_wait(8) && shaped.may_wait(3) && !shaped.may_wait(7));
        while shaped.release(1, |_, _| {}) {}
        assert!(shaped.may_wait(7));
    }

    #[test]
    fn memory_is_bounded_and_used_again() {
        let mut shaped = ShapingQueue::new(9000);
        let frame = [0; 9014];
        for _ in 0..3 {
            let part = (&Frame::from(&frame[..]), FrameClass::Fragment);
            let kept = (0..10_000).take_while(|_| shaped.keep(part, (0, 1))).count();
            assert_eq!(kept, MEMORY / 9024);
            assert!(!shaped.has_room(1));
            while shaped.release(1, |_, _| {}) {}
        }
        assert!(
            !shaped.keep((&Frame::from(&[0; 9018][..]), FrameClass::Fragment), (0, 1))
                || shaped.room >= 9018
        );
    }
}
