//! Packets that wait until their session forwards them, or until the Ethernet address of their next
//! hop is known ([`Unresolved`](super::unresolved::Unresolved)). Each worker stores the packets
//! that it received.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering::Relaxed};

use dray_port::Frame;

use crate::counters::DropReason;

/// A session may use up to 1/`PART_OF_FREE` of the free room. Sessions of unreachable users thus
/// leave room for others, however many packets are sent to them.
const PART_OF_FREE: usize = 8;

/// A place in the store. Numbers of places are indexes plus one; 0: none.
#[derive(Clone, Copy, Debug, Default)]
struct Entry<T> {
    /// Next place of the same chain, or next free place.
    next: u32,
    /// Places filled just before and just after this one, of any chain.
    older: u32,
    newer: u32,
    /// Number of the session or next hop that the chain belongs to.
    owner: u32,
    /// Tick at which the packet expires.
    due: u64,
    len: u16,
    /// In a chain's first place: number of packets, and the last place.
    count: u16,
    last: u32,
    note: T,
}

/// Number of packets buffered by all workers, and the sessions that were reported to the control
/// plane.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    all: AtomicUsize,
    /// Number of packets, by session number.
    of: Box<[AtomicU16]>,
    /// Tick of the last report, by session number; 0: none.
    reported: Box<[AtomicU64]>,
    most: usize,
    most_per_session: u16,
    /// Lifetime of a buffered packet, in ticks.
    lifetime: u64,
}

impl Waiting {
    /// Returns the number of packets of all sessions.
    pub(crate) fn total(&self) -> usize {
        self.all.load(Relaxed)
    }

    /// Allows up to `most` buffered packets, each for `lifetime` ticks, and up to
    /// `most_per_session` for each of `sessions` sessions.
    pub(crate) fn new(
        most: usize,
        most_per_session: u16,
        lifetime: u64,
        sessions: usize,
    ) -> Arc<Self> {
        let of = (0..if most > 0 { sessions } else { 0 }).map(|_| AtomicU16::new(0)).collect();
        let reported = (0..sessions).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { all: AtomicUsize::new(0), of, reported, most, most_per_session, lifetime })
    }

    /// Reserves room for one more packet of a session.
    pub(super) fn add(&self, slot: u32) -> Result<(), DropReason> {
        let of = self.of.get(slot as usize).ok_or(DropReason::BufferFull)?;
        let all = |all| (all < self.most).then_some(all + 1);
        let all = self.all.fetch_update(Relaxed, Relaxed, all);
        let free = self.most - all.map_err(|_| DropReason::BufferFull)?;
        let most = (free / PART_OF_FREE).max(1).min(self.most_per_session.into());
        let more = |count: u16| (usize::from(count) < most).then_some(count + 1);
        match of.fetch_update(Relaxed, Relaxed, more) {
            Ok(_) => Ok(()),
            Err(_) => {
                self.all.fetch_sub(1, Relaxed);
                Err(DropReason::BufferSession)
            }
        }
    }

    /// Returns the number of packets of a session.
    pub(crate) fn count(&self, slot: u32) -> u16 {
        self.of.get(slot as usize).map_or(0, |of| of.load(Relaxed))
    }

    pub(super) fn remove(&self, slot: u32, count: u16) {
        self.all.fetch_sub(count.into(), Relaxed);
        if let Some(of) = self.of.get(slot as usize) {
            of.fetch_sub(count, Relaxed);
        }
    }

    /// Returns true, to one caller only, if a report of packets for a session is due at the tick
    /// `now`: there was no report yet, or the last one is older than a packet's lifetime.
    pub(super) fn must_report(&self, slot: u32, now: u64) -> bool {
        let due = |last| (last == 0 || now.saturating_sub(last) > self.lifetime).then_some(now);
        let reported = self.reported.get(slot as usize);
        reported.is_some_and(|reported| reported.fetch_update(Relaxed, Relaxed, due).is_ok())
    }

    /// Makes the next packet for a session be reported again.
    pub(super) fn forget_report(&self, slot: u32) {
        if let Some(reported) = self.reported.get(slot as usize) {
            reported.store(0, Relaxed);
        }
    }
}

/// Storage for a fixed number of frames, each with a note. Each owner has a chain of places and
/// stores the number of the first one; 0: no packet. All used places are also linked by age.
#[derive(Debug, Default)]
pub(crate) struct PacketBuffer<T = ()> {
    places: Box<[Entry<T>]>,
    frames: Box<[u8]>,
    frame_max: usize,
    /// Lifetime of a packet, in ticks.
    lifetime: u64,
    free: u32,
    oldest: u32,
    newest: u32,
    len: u64,
}

impl<T: Copy + Default> PacketBuffer<T> {
    /// Creates a store for `count` frames of up to `frame_max` bytes, which expire after `lifetime`
    /// ticks.
    pub(crate) fn new(count: usize, frame_max: usize, lifetime: u64) -> Self {
        let place = |number: usize| Entry {
            next: if number == count { 0 } else { number as u32 + 1 },
            ..Entry::default()
        };
        Self {
            places: (1..=count).map(place).collect(),
            // Memory that is never touched is not allocated.
            frames: vec![0; count * frame_max].into(),
            frame_max,
            lifetime,
            free: u32::from(count > 0),
            oldest: 0,
            newest: 0,
            len: 0,
        }
    }

    fn place(&mut self, number: u32) -> Option<&mut Entry<T>> {
        self.places.get_mut((number as usize).wrapping_sub(1))
    }

    /// Returns an error if there is no room for a frame of `len` bytes.
    pub(super) fn check_room(&self, len: usize) -> Result<(), DropReason> {
        match () {
            () if len > self.frame_max => Err(DropReason::TooBig),
            () if self.free == 0 => Err(DropReason::BufferFull),
            () => Ok(()),
        }
    }

    /// Appends a copy of the first `len` bytes of `frame` to the chain of `owner`, and returns the
    /// copy; the caller has checked that there is [room](Self::check_room).
    pub(crate) fn keep(
        &mut self,
        (owner, note): (u32, T),
        first: &mut u32,
        frame: &Frame<'_>,
        len: usize,
        now: u64,
    ) -> &mut [u8] {
        let (number, newest) = (self.free, self.newest);
        let due = now + self.lifetime;
        let index = number as usize - 1;
        self.free = self.places[index].next;
        self.places[index] = Entry {
            next: 0,
            older: newest,
            newer: 0,
            owner,
            due,
            len: len as u16,
            count: 1,
            last: number,
            note,
        };
        frame.copy_from(0, &mut self.frames[index * self.frame_max..][..len]);
        match self.place(newest) {
            None => self.oldest = number,
            Some(newest) => newest.newer = number,
        }
        self.newest = number;
        self.len += 1;
        match self.place(*first).copied() {
            None => *first = number,
            Some(head) => {
                self.places[head.last as usize - 1].next = number;
                let head = &mut self.places[*first as usize - 1];
                (head.last, head.count) = (number, head.count + 1);
            }
        }
        &mut self.frames[index * self.frame_max..][..len]
    }

    /// Returns the number of frames of a chain.
    pub(super) fn count(&self, first: u32) -> u16 {
        let place = self.places.get((first as usize).wrapping_sub(1));
        place.map_or(0, |place| place.count)
    }

    /// Returns the frames of a chain, in order.
    pub(crate) fn waiting(&self, first: u32) -> impl Iterator<Item = &[u8]> {
        let place = |number: u32| number.checked_sub(1).map(|index| index as usize);
        std::iter::successors(place(first), move |index| place(self.places[*index].next))
            .map(|index| self.frame(index))
    }

    /// Returns the first frame of a chain, its note, and the number of the place that follows, if
    /// there is one.
    pub(super) fn first_mut(&mut self, first: u32) -> Option<(&mut [u8], T, u32)> {
        let index = first.checked_sub(1)? as usize;
        let Entry { len, next, note, .. } = self.places[index];
        Some((&mut self.frames[index * self.frame_max..][..usize::from(len)], note, next))
    }

    fn frame(&self, index: usize) -> &[u8] {
        &self.frames[index * self.frame_max..][..usize::from(self.places[index].len)]
    }

    /// Splits a chain: frames for which `stays` returns true stay in it; the others form the
    /// returned chain. Both keep their order.
    pub(crate) fn divide(&mut self, first: &mut u32, mut stays: impl FnMut(&[u8]) -> bool) -> u32 {
        let mut number = std::mem::take(first);
        let mut leaving = 0;
        while let Some(index) = number.checked_sub(1).map(|index| index as usize) {
            let chain = if stays(self.frame(index)) { &mut *first } else { &mut leaving };
            let place = &mut self.places[index];
            let next = std::mem::take(&mut place.next);
            (place.count, place.last) = (1, number);
            match *chain {
                0 => *chain = number,
                head => {
                    let head = &mut self.places[head as usize - 1];
                    let last = std::mem::replace(&mut head.last, number);
                    head.count += 1;
                    self.places[last as usize - 1].next = number;
                }
            }
            number = next;
        }
        leaving
    }

    /// Frees a chain, and returns its number of frames.
    pub(crate) fn forget(&mut self, first: &mut u32) -> u16 {
        let head = *first;
        let Some(Entry { count, last, .. }) = self.place(head).copied() else { return 0 };
        let mut number = std::mem::take(first);
        while let Some(place) = self.place(number).copied() {
            self.unlink(place);
            number = place.next;
        }
        self.places[last as usize - 1].next = self.free;
        self.free = head;
        self.len -= u64::from(count);
        count
    }

    /// Removes a place from the list by age.
    fn unlink(&mut self, place: Entry<T>) {
        match self.place(place.older) {
            None => self.oldest = place.newer,
            Some(older) => older.newer = place.newer,
        }
        match self.place(place.newer) {
            None => self.newest = place.older,
            Some(newer) => newer.older = place.older,
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.oldest == 0
    }

    /// Returns the number of frames.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the owner of the oldest frame, which is the first of its chain, and the tick at
    /// which it expires.
    pub(crate) fn oldest(&self) -> Option<(u32, u64)> {
        let oldest = &self.places[self.oldest.checked_sub(1)? as usize];
        Some((oldest.owner, oldest.due))
    }

    /// Returns the owner of a frame that has expired at the tick `now`; the frame is the first of
    /// its chain.
    pub(crate) fn expired(&self, now: u64) -> Option<u32> {
        self.oldest().filter(|(_, due)| *due <= now).map(|(owner, _)| owner)
    }

    /// Frees the first frame of a chain.
    pub(crate) fn forget_first(&mut self, first: &mut u32) {
        let Some(head) = self.place(*first).copied() else { return };
        if let Some(next) = self.place(head.next) {
            (next.count, next.last) = (head.count - 1, head.last);
        }
        let Some(place) = self.place(*first) else { return };
        (place.next, place.count, place.last) = (0, 1, *first);
        let mut alone = std::mem::replace(first, head.next);
        self.forget(&mut alone);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const SESSIONS: usize = 3;
    const LIFETIME: u64 = 20;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Keep(usize),
        Forget,
        /// Frames whose first byte has this bit stay.
        Divide(u8),
        Expire,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0usize..12).prop_map(Step::Keep),
            1 => Just(Step::Forget),
            1 => (0u8..3).prop_map(Step::Divide),
            2 => Just(Step::Expire),
        ]
    }

    proptest! {
        #[test]
        fn store_agrees_with_queues(steps in prop::collection::vec((0..SESSIONS, step(), 0u64..4), 0..150)) {
            let (count, per_session, frame_max) = (40, 4, 10);
            let waiting = Waiting::new(count, per_session, LIFETIME, SESSIONS);
            let mut store = PacketBuffer::<()>::new(count, frame_max, LIFETIME);
            let mut firsts = [0; SESSIONS];
            let mut oracle = [const { VecDeque::<(u64, Vec<u8>)>::new() }; SESSIONS];
            let mut now = 1;
            for (number, (session, step, shaped)) in steps.into_iter().enumerate() {
                now += shaped;
                let (slot, first) = (session as u32, &mut firsts[session]);
                let all: usize = oracle.iter().map(VecDeque::len).sum();
                match step {
                    Step::Keep(len) => {
                        let bytes = [number as u8; 12];
                        let most = ((count - all) / PART_OF_FREE).clamp(1, per_session.into());
                        let expected = match () {
                            () if len > frame_max => Err(DropReason::TooBig),
                            () if all == count => Err(DropReason::BufferFull),
                            () if oracle[session].len() >= most => Err(DropReason::BufferSession),
                            () => Ok(()),
                        };
                        let frame = Frame::from(&bytes[..]);
                        let admitted = store.check_room(len).and_then(|()| waiting.add(slot));
                        prop_assert_eq!(admitted, expected);
                        if expected.is_ok() {
                            store.keep((slot, ()), first, &frame, len, now);
                            oracle[session].push_back((now, bytes[..len].to_vec()));
                        }
                    }
                    Step::Forget => {
                        let gone = store.forget(first);
                        waiting.remove(slot, gone);
                        prop_assert_eq!(usize::from(gone), oracle[session].len());
                        oracle[session].clear();
                    }
                    Step::Divide(bit) => {
                        let stays = |bytes: &[u8]| bytes.first().is_some_and(|byte| byte >> bit & 1 != 0);
                        let mut leaving = store.divide(first, stays);
                        let (stay, leave): (Vec<_>, Vec<_>) =
                            oracle[session].drain(..).partition(|(_, bytes)| stays(bytes));
                        prop_assert!(store.waiting(leaving).eq(leave.iter().map(|it| &it.1[..])));
                        let gone = store.forget(&mut leaving);
                        waiting.remove(slot, gone);
                        prop_assert_eq!(usize::from(gone), leave.len());
                        oracle[session].extend(stay);
                    }
                    Step::Expire => {
                        let mut expired = [0; SESSIONS];
                        while let Some(slot) = store.expired(now) {
                            store.forget_first(&mut firsts[slot as usize]);
                            waiting.remove(slot, 1);
                            expired[slot as usize] += 1;
                        }
                        for (queue, expired) in oracle.iter_mut().zip(expired) {
                            let before = queue.len();
                            queue.retain(|(kept, _)| kept + LIFETIME > now);
                            prop_assert_eq!(before - queue.len(), expired);
                        }
                    }
                }
                for (first, expected) in firsts.iter().zip(&oracle) {
                    prop_assert_eq!(usize::from(store.count(*first)), expected.len());
                    prop_assert!(store.waiting(*first).eq(expected.iter().map(|it| &it.1[..])));
                }
                let all: usize = oracle.iter().map(VecDeque::len).sum();
                prop_assert_eq!((waiting.all.load(Relaxed), store.len()), (all, all as u64));
                prop_assert_eq!(store.is_empty(), all == 0);
            }
        }
    }
}
