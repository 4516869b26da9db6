//! Packets that wait until their session forwards them: each worker keeps those that it received.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering::Relaxed};

use dray_port::Frame;

/// What is known of a place in the store.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// The next one of the same session plus one, or the next free one; 0: none.
    next: u32,
    len: u16,
    /// In a session's first place: how many wait, and the last one plus one.
    count: u16,
    last: u32,
}

/// How many packets wait at all workers.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    all: AtomicUsize,
    /// By number of the session.
    of: Box<[AtomicU16]>,
    most: usize,
    most_per_session: u16,
}

impl Waiting {
    /// Up to `most` may wait, and of each of so many `sessions` as many as are given.
    pub(crate) fn new(most: usize, most_per_session: u16, sessions: usize) -> Arc<Self> {
        let of = (0..if most > 0 { sessions } else { 0 }).map(|_| AtomicU16::new(0)).collect();
        Arc::new(Self { all: AtomicUsize::new(0), of, most, most_per_session })
    }

    /// One more: how many of the session there were before, if there is room.
    fn add(&self, slot: u32) -> Option<u16> {
        let of = self.of.get(slot as usize)?;
        let all = |all| (all < self.most).then_some(all + 1);
        self.all.fetch_update(Relaxed, Relaxed, all).ok()?;
        let more = |count| (count < self.most_per_session).then_some(count + 1);
        let before = of.fetch_update(Relaxed, Relaxed, more);
        if before.is_err() {
            self.all.fetch_sub(1, Relaxed);
        }
        before.ok()
    }

    fn remove(&self, slot: u32, count: u16) {
        self.all.fetch_sub(count.into(), Relaxed);
        if let Some(of) = self.of.get(slot as usize) {
            of.fetch_sub(count, Relaxed);
        }
    }
}

/// Room for a fixed number of frames, for all sessions together. A session has a chain of places, and
/// remembers the first of them plus one; 0: nothing waits.
#[derive(Debug, Default)]
pub(crate) struct Store {
    places: Box<[Place]>,
    frames: Box<[u8]>,
    frame_max: usize,
    free: u32,
    waiting: Arc<Waiting>,
}

impl Store {
    /// For frames of up to `frame_max` bytes, of which as many may wait as `waiting` says.
    pub(crate) fn new(waiting: Arc<Waiting>, frame_max: usize) -> Self {
        let count = waiting.most;
        let place = |number: usize| Place {
            next: if number == count { 0 } else { number as u32 + 1 },
            ..Place::default()
        };
        Self {
            places: (1..=count).map(place).collect(),
            // Never touched, it takes no memory.
            frames: vec![0; count * frame_max].into(),
            frame_max,
            free: u32::from(count > 0),
            waiting,
        }
    }

    /// Keeps a copy of `frame` behind those of the session `slot` that wait already: whether it is the
    /// session's first at any worker, if there was room.
    pub(crate) fn keep(&mut self, slot: u32, first: &mut u32, frame: &Frame<'_>) -> Option<bool> {
        let head = first.checked_sub(1).map(|first| self.places[first as usize]);
        if self.free == 0 || frame.len() > self.frame_max {
            return None;
        }
        let before = self.waiting.add(slot)?;
        let number = self.free;
        let index = number as usize - 1;
        self.free = self.places[index].next;
        self.places[index] =
            Place { len: frame.len() as u16, count: 1, last: number, ..Place::default() };
        frame.copy_into(&mut self.frames[index * self.frame_max..][..frame.len()]);
        match head {
            None => *first = number,
            Some(head) => {
                self.places[head.last as usize - 1].next = number;
                let head = &mut self.places[*first as usize - 1];
                (head.last, head.count) = (number, head.count + 1);
            }
        }
        Some(before == 0)
    }

    /// The frames that wait, in order.
    pub(crate) fn waiting(&self, first: u32) -> impl Iterator<Item = &[u8]> {
        let place = |number: u32| number.checked_sub(1).map(|index| index as usize);
        std::iter::successors(place(first), move |index| place(self.places[*index].next)).map(
            |index| &self.frames[index * self.frame_max..][..usize::from(self.places[index].len)],
        )
    }

    /// Nothing waits any more; how many did.
    pub(crate) fn forget(&mut self, slot: u32, first: &mut u32) -> u16 {
        let Some(index) = std::mem::take(first).checked_sub(1) else { return 0 };
        let head = self.places[index as usize];
        self.places[head.last as usize - 1].next = self.free;
        self.free = index + 1;
        self.waiting.remove(slot, head.count);
        head.count
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_queues(ops in prop::collection::vec((0usize..3, any::<bool>(), 0usize..12), 0..100)) {
            let (count, per_session, frame_max) = (8, 5, 10);
            let mut store = Store::new(Waiting::new(count, per_session, 3), frame_max);
            let mut firsts = [0; 3];
            let mut oracle = [const { VecDeque::<Vec<u8>>::new() }; 3];
            for (number, (session, keep, len)) in ops.into_iter().enumerate() {
                if keep {
                    let bytes = vec![number as u8; len];
                    let all: usize = oracle.iter().map(VecDeque::len).sum();
                    let fits = all < count && oracle[session].len() < per_session.into() && len <= frame_max;
                    let kept = store.keep(session as u32, &mut firsts[session], &Frame::from(&bytes[..]));
                    prop_assert_eq!(kept, fits.then_some(oracle[session].is_empty()));
                    if fits {
                        oracle[session].push_back(bytes);
                    }
                } else {
                    let forgotten = usize::from(store.forget(session as u32, &mut firsts[session]));
                    prop_assert_eq!(forgotten, oracle[session].len());
                    oracle[session].clear();
                }
                for (first, expected) in firsts.iter().zip(&oracle) {
                    prop_assert!(store.waiting(*first).eq(expected.iter().map(Vec::as_slice)));
                }
            }
        }
    }
}
