//! The identities that a driver may post buffers with.

use arrayvec::ArrayVec;

use crate::QueueSize;

/// The free identities of a driver, a ring of their own: they are taken in the order in which they
/// came back. A device that returns buffers in order therefore finds each identity in the same place
/// in every round, and neither side's cache loses the lines of the ring.
///
/// Where many come and go in a loop, [`first`](Self::first) lends the slices that they lie in and
/// [`returning`](Self::returning) is a local of the loop: fields behind `&mut self` would be read
/// again after every store, as the compiler cannot know that none changes them.
#[derive(Debug)]
pub(crate) struct FreeIds {
    /// As many as the queue's size, a power of two.
    ring: Box<[u16]>,
    /// The first one, running.
    first: usize,
    /// Behind the last one, running.
    end: usize,
}

/// The entry of `ring` that a running index stands for. It is made of the length and of an index as
/// wide as that, so the compiler sees that it is inside and checks nothing for each identity.
#[inline(always)]
fn slot(ring: &[u16], index: usize) -> usize {
    index & (ring.len() - 1)
}

impl FreeIds {
    /// All identities of a ring, in their order.
    pub(crate) fn all(size: QueueSize) -> Self {
        Self { ring: (0..size.get()).collect(), first: 0, end: size.get().into() }
    }

    /// How many are free.
    #[inline(always)]
    pub(crate) fn count(&self) -> u16 {
        self.end.wrapping_sub(self.first) as u16
    }

    /// The one behind the first `offset` ones, fewer than are free.
    #[inline(always)]
    pub(crate) fn at(&self, offset: u16) -> u16 {
        self.ring[slot(&self.ring, self.first.wrapping_add(offset.into()))]
    }

    /// The first `count`, no more than are free: up to the end of the ring, and from its beginning.
    #[inline(always)]
    pub(crate) fn first(&self, count: u16) -> [&[u16]; 2] {
        let count = usize::from(count);
        let (beginning, rest) = self.ring.split_at(slot(&self.ring, self.first));
        let before = rest.len().min(count);
        [&rest[..before], &beginning[..count - before]]
    }

    /// Adds the first ones to `out`, as many as are free and as it has room for.
    #[inline(always)]
    pub(crate) fn copy_to<const N: usize>(&self, out: &mut ArrayVec<u16, N>) {
        let count = out.remaining_capacity().min(self.count().into());
        for part in self.first(count as u16) {
            out.try_extend_from_slice(part).expect("no more than there is room for");
        }
    }

    /// The first `count`, no more than are free, are free no more.
    #[inline(always)]
    pub(crate) fn take(&mut self, count: u16) {
        debug_assert!(count <= self.count(), "{count} of {}", self.count());
        self.first = self.first.wrapping_add(count.into());
    }

    /// Makes one free that was taken.
    #[inline(always)]
    pub(crate) fn put(&mut self, id: u16) {
        let mut returning = self.returning();
        returning.put(id);
        returning.done();
    }

    /// As [`put`](Self::put), of many: what is put is free once that is [`done`](Returning::done).
    #[inline(always)]
    pub(crate) fn returning(&mut self) -> Returning<'_> {
        Returning { end: self.end, ring: &mut self.ring, free: &mut self.end }
    }
}

/// Identities on their way back.
pub(crate) struct Returning<'a> {
    ring: &'a mut [u16],
    /// Behind the last one, running.
    end: usize,
    /// The same, of those that are free.
    free: &'a mut usize,
}

impl Returning<'_> {
    /// Adds one that was taken.
    #[inline(always)]
    pub(crate) fn put(&mut self, id: u16) {
        self.ring[slot(self.ring, self.end)] = id;
        self.end = self.end.wrapping_add(1);
    }

    /// Makes free what was put.
    #[inline(always)]
    pub(crate) fn done(self) {
        *self.free = self.end;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn free(ids: &FreeIds) -> Vec<u16> {
        let parts = ids.first(ids.count()).concat();
        let each: Vec<u16> = (0..ids.count()).map(|offset| ids.at(offset)).collect();
        let mut copied = ArrayVec::<u16, 8>::new();
        ids.copy_to(&mut copied);
        assert_eq!((&parts[..], &parts[..]), (&each[..], &copied[..]));
        parts
    }

    #[test]
    fn identities_are_taken_in_the_order_in_which_they_came_back() {
        let mut ids = FreeIds::all(QueueSize::new(8).unwrap());
        // Soon the running indices begin anew.
        ids.first = usize::MAX - 99;
        ids.end = ids.first.wrapping_add(8);
        let mut expected = VecDeque::from([4, 5, 6, 7, 0, 1, 2, 3]);
        let mut out = Vec::new();
        for round in 0..1000 {
            let count = 1 + round % 8;
            assert_eq!(expected, free(&ids));
            out.extend(expected.drain(..usize::from(count)));
            ids.take(count);
            assert_eq!(expected, free(&ids));
            // They come back in another order, one of them by itself.
            let by = usize::from(round % 3).min(out.len());
            out.rotate_left(by);
            expected.extend(&out);
            ids.put(out.remove(0));
            let mut returning = ids.returning();
            out.drain(..).for_each(|id| returning.put(id));
            returning.done();
        }
    }

    #[test]
    fn what_there_is_no_room_for_is_left() {
        let ids = FreeIds::all(QueueSize::new(4).unwrap());
        let mut out = ArrayVec::<u16, 3>::from_iter([9]);
        ids.copy_to(&mut out);
        assert_eq!(out[..], [9, 0, 1]);
        ids.copy_to(&mut out);
        assert_eq!((out.len(), ids.count()), (3, 4));
    }
}
