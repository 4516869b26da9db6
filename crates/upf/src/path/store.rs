//! Packets that wait until their session forwards them.

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

/// Room for a fixed number of frames, for all sessions together. A session has a chain of places, and
/// remembers the first of them plus one; 0: nothing waits.
#[derive(Debug)]
pub(crate) struct Store {
    places: Box<[Place]>,
    frames: Box<[u8]>,
    frame_max: usize,
    per_session: u16,
    free: u32,
}

impl Store {
    /// Room for `count` frames of up to `frame_max` bytes, of which one session has `per_session`.
    pub(crate) fn new(count: usize, per_session: u16, frame_max: usize) -> Self {
        let place = |number: usize| Place {
            next: if number == count { 0 } else { number as u32 + 1 },
            ..Place::default()
        };
        Self {
            places: (1..=count).map(place).collect(),
            // Never touched, it takes no memory.
            frames: vec![0; count * frame_max].into(),
            frame_max,
            per_session,
            free: u32::from(count > 0),
        }
    }

    /// Keeps a copy of `frame` behind those that wait already. Whether there was room.
    pub(crate) fn keep(&mut self, first: &mut u32, frame: &Frame<'_>) -> bool {
        let head = first.checked_sub(1).map(|first| self.places[first as usize]);
        let full = head.is_some_and(|head| head.count >= self.per_session);
        if self.free == 0 || full || frame.len() > self.frame_max {
            return false;
        }
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
        true
    }

    /// The frames that wait, in order.
    pub(crate) fn waiting(&self, first: u32) -> impl Iterator<Item = &[u8]> {
        let place = |number: u32| number.checked_sub(1).map(|index| index as usize);
        std::iter::successors(place(first), move |index| place(self.places[*index].next)).map(
            |index| &self.frames[index * self.frame_max..][..usize::from(self.places[index].len)],
        )
    }

    /// Nothing waits any more; how many did.
    pub(crate) fn forget(&mut self, first: &mut u32) -> u16 {
        let Some(index) = std::mem::take(first).checked_sub(1) else { return 0 };
        let head = self.places[index as usize];
        self.places[head.last as usize - 1].next = self.free;
        self.free = index + 1;
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
            let mut store = Store::new(count, per_session, frame_max);
            let mut firsts = [0; 3];
            let mut oracle = [const { VecDeque::<Vec<u8>>::new() }; 3];
            for (number, (session, keep, len)) in ops.into_iter().enumerate() {
                if keep {
                    let bytes = vec![number as u8; len];
                    let all: usize = oracle.iter().map(VecDeque::len).sum();
                    let fits = all < count && oracle[session].len() < per_session.into() && len <= frame_max;
                    prop_assert_eq!(store.keep(&mut firsts[session], &Frame::from(&bytes[..])), fits);
                    if fits {
                        oracle[session].push_back(bytes);
                    }
                } else {
                    let forgotten = usize::from(store.forget(&mut firsts[session]));
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
