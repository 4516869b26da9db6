//! Identities with which a driver can post buffers.

use arrayvec::ArrayVec;

use crate::QueueSize;

/// The free identities of a driver, as a ring: they are taken in the order in which they were
/// returned. A device that returns buffers in order therefore finds each identity in the same place
/// in every round, and neither side's cache loses the lines of the ring.
///
/// In a loop over many identities, [`first`](Self::first) lends the slices that hold them and
/// [`returning`](Self::returning) is a local of the loop: fields behind `&mut self` would be read
/// again after every store, because the compiler cannot know that no store changes them.
#[derive(Debug)]
pub(crate) struct FreeIds {
    /// As many entries as the queue's size, a power of two.
    ring: Box<[u16]>,
    /// Running index of the first free identity.
    first: usize,
    /// Running index after the last free identity.
    end: usize,
}

/// Returns the entry of `ring` for a running index. The mask is computed from the length, in a type
/// as wide as the index, so the compiler can prove that the result is in bounds and omits the check
/// for each identity.
#[inline(always)]
fn slot(ring: &[u16], index: usize) -> usize {
    index & (ring.len() - 1)
}

impl FreeIds {
    /// Creates the set with all identities of a ring, in order.
    pub(crate) fn all(size: QueueSize) -> Self {
        Self { ring: (0..size.get()).collect(), first: 0, end: size.get().into() }
    }

    /// Returns the number of free identities.
    #[inline(always)]
    pub(crate) fn count(&self) -> u16 {
        self.end.wrapping_sub(self.first) as u16
    }

    /// Returns the free identity at `offset`, which must be below the number of free ones.
    #[inline(always)]
    pub(crate) fn at(&self, offset: u16) -> u16 {
        self.ring[slot(&self.ring, self.first.wrapping_add(offset.into()))]
    }

    /// Returns the first `count` free identities, at most as many as are free: the part up to the
    /// end of the ring, and the part from its beginning.
    #[inline(always)]
    pub(crate) fn first(&self, count: u16) -> [&[u16]; 2] {
        let count = usize::from(count);
        let (beginning, rest) = self.ring.split_at(slot(&self.ring, self.first));
        let before = rest.len().min(count);
        [&rest[..before], &beginning[..count - before]]
    }

    /// Appends the first free identities to `out`, as many as are free and fit.
    #[inline(always)]
    pub(crate) fn copy_to<const N: usize>(&self, out: &mut ArrayVec<u16, N>) {
        let count = out.remaining_capacity().min(self.count().into());
        for part in self.first(count as u16) {
            out.try_extend_from_slice(part).expect("no more than there is room for");
        }
    }

    /// Takes the first `count` identities, at most as many as are free.
    #[inline(always)]
    pub(crate) fn take(&mut self, count: u16) {
        debug_assert!(count <= self.count(), "{count} of {}", self.count());
        self.first = self.first.wrapping_add(count.into());
    }

    /// Frees an identity that was taken.
    #[inline(always)]
    pub(crate) fn put(&mut self, id: u16) {
        let mut returning = self.returning();
        returning.put(id);
        returning.done();
    }

    /// Like [`put`](Self::put), for many: the identities are free once [`done`](Returning::done) is
    /// called.
    #[inline(always)]
    pub(crate) fn returning(&mut self) -> Returning<'_> {
        Returning { end: self.end, ring: &mut self.ring, free: &mut self.end }
    }
}

/// Identities being freed.
pub(crate) struct Returning<'a> {
    ring: &'a mut [u16],
    /// Running index after the last identity put.
    end: usize,
    /// Running index after the last identity that is free.
    free: &'a mut usize,
}

impl Returning<'_> {
    /// Adds an identity that was taken.
    #[inline(always)]
    pub(crate) fn put(&mut self, id: u16) {
        self.ring[slot(self.ring, self.end)] = id;
        self.end = self.end.wrapping_add(1);
    }

    /// Frees the identities put so far.
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
    fn free_ids_are_reused_in_return_order() {
        let mut ids = FreeIds::all(QueueSize::new(8).unwrap());
        // The running indices soon wrap around.
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
            // They are returned in another order, one of them by itself.
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
    fn copying_ids_stops_at_capacity() {
        let ids = FreeIds::all(QueueSize::new(4).unwrap());
        let mut out = ArrayVec::<u16, 3>::from_iter([9]);
        ids.copy_to(&mut out);
        assert_eq!(out[..], [9, 0, 1]);
        ids.copy_to(&mut out);
        assert_eq!((out.len(), ids.count()), (3, 4));
    }
}
