//! Identities with which a driver posts buffers.

use std::ops::Range;

use arrayvec::ArrayVec;

use crate::QueueSize;

/// The identities of a driver, free or posted, as a ring: they are taken in the order in which they
/// were returned. A device that returns buffers in order therefore finds each identity in the same
/// place in every round: neither side's cache loses the lines of the ring, and taking and returning
/// chains of one buffer store nothing but the ends of its parts. Out of order, each return
/// exchanges two identities.
///
/// In a loop over many identities, [`first`](Self::first) lends the slices that contain them and
/// [`returning`](Self::returning) is a local of the loop: fields behind `&mut self` would be read
/// again after every store, because the compiler must assume that a store changes them.
#[derive(Debug)]
pub(crate) struct Ids {
    /// Each identity once; as many entries as the queue's size, a power of two. The free ones are
    /// those from `first` to `end`, the posted ones the others.
    ring: Box<[u16]>,
    /// Entry of the ring that contains each identity.
    places: Box<[u16]>,
    /// Number of buffers of the chain that begins with each identity; 0 for the others of a chain.
    /// A free identity has 1, as most chains have.
    lens: Box<[u16]>,
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

impl Ids {
    /// Creates the set with all identities of a ring free, in order.
    pub(crate) fn all(size: QueueSize) -> Self {
        let size = size.get();
        let ring: Box<[u16]> = (0..size).collect();
        let (places, lens) = (ring.clone(), vec![1; size.into()].into());
        Self { ring, places, lens, first: 0, end: size.into() }
    }

    /// Returns the number of free identities.
    #[inline(always)]
    pub(crate) fn count(&self) -> u16 {
        self.end.wrapping_sub(self.first) as u16
    }

    /// Returns the number of posted identities.
    #[inline(always)]
    pub(crate) fn in_use(&self) -> u16 {
        self.ring.len() as u16 - self.count()
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

    /// Takes the first `count` identities, at most as many as are free, for a chain each.
    #[inline(always)]
    pub(crate) fn take(&mut self, count: u16) {
        debug_assert!(count <= self.count(), "{count} of {}", self.count());
        self.first = self.first.wrapping_add(count.into());
    }

    /// Takes the first `count` identities, at most as many as are free, for one chain.
    #[inline(always)]
    pub(crate) fn take_chain(&mut self, count: u16) {
        if count > 1 {
            for offset in 0..count {
                let id = usize::from(self.at(offset));
                self.lens[id] = if offset == 0 { count } else { 0 };
            }
        }
        self.take(count);
    }

    /// Returns a value that frees identities in a loop.
    #[inline(always)]
    pub(crate) fn returning(&mut self) -> Returning<'_> {
        let full = self.first.wrapping_add(self.ring.len());
        let Self { ring, places, lens, end, .. } = self;
        Returning { ring, places, lens, end: *end, full, free: end }
    }
}

/// Identities being freed.
pub(crate) struct Returning<'a> {
    ring: &'a mut [u16],
    places: &'a mut [u16],
    lens: &'a mut [u16],
    /// Running index after the last identity put.
    end: usize,
    /// Value of the counter once all are free.
    full: usize,
    /// Running index after the last identity that is free.
    free: &'a mut usize,
}

impl Returning<'_> {
    /// Adds the identity of a posted chain of one buffer. Returns false if it is not one.
    #[inline(always)]
    pub(crate) fn put(&mut self, id: u16) -> bool {
        if self.lens.get(usize::from(id)) != Some(&1) || self.end == self.full {
            return false;
        }
        let Self { ring, places, end, full, .. } = self;
        if ring[slot(ring, *end)] != id && !move_up(ring, places, *end..*full, id) {
            return false;
        }
        *end = end.wrapping_add(1);
        true
    }

    /// Adds the identities of the posted chain that begins with `head`, if it is one of at most
    /// `most` buffers; `next` returns the identity after one in its chain. Returns the number
    /// of buffers.
    pub(crate) fn put_chain(
        &mut self,
        head: u16,
        most: u16,
        next: impl Fn(u16) -> u16,
    ) -> Option<u16> {
        let count = *self.lens.get(usize::from(head))?;
        if !(1..=most).contains(&count)
            || !is_posted(self.ring, self.places, &(self.end..self.full), head)
        {
            return None;
        }
        let mut id = head;
        for _ in 0..count {
            self.lens[usize::from(id)] = 1;
            let posted = self.put(id);
            debug_assert!(posted, "{id} of chain {head}");
            id = next(id);
        }
        Some(count)
    }

    /// Frees the identities put so far.
    #[inline(always)]
    pub(crate) fn done(self) {
        *self.free = self.end;
    }
}

/// Returns true if the identity, below the ring's size, has its place between the running indices
/// `posted`.
#[inline(always)]
fn is_posted(ring: &[u16], places: &[u16], posted: &Range<usize>, id: u16) -> bool {
    let place = usize::from(places[usize::from(id)]);
    slot(ring, place.wrapping_sub(posted.start)) < posted.end.wrapping_sub(posted.start)
}

/// Makes an identity the first one of `posted`, in exchange for the one that is. Returns false if
/// it is not posted. Takes the running indices by value, so that they stay in the caller's
/// registers.
#[cold]
fn move_up(ring: &mut [u16], places: &mut [u16], posted: Range<usize>, id: u16) -> bool {
    if !is_posted(ring, places, &posted, id) {
        return false;
    }
    let to = slot(ring, posted.start);
    let (from, other) = (places[usize::from(id)], ring[to]);
    ring.swap(from.into(), to);
    places[usize::from(other)] = from;
    places[usize::from(id)] = to as u16;
    true
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn free(ids: &Ids) -> Vec<u16> {
        let parts = ids.first(ids.count()).concat();
        let each: Vec<u16> = (0..ids.count()).map(|offset| ids.at(offset)).collect();
        let mut copied = ArrayVec::<u16, 8>::new();
        ids.copy_to(&mut copied);
        assert_eq!((&parts[..], &parts[..]), (&each[..], &copied[..]));
        parts
    }

    /// Puts these, each of which is posted or not.
    fn put(ids: &mut Ids, these: impl IntoIterator<Item = u16>, posted: bool) {
        let mut returning = ids.returning();
        these.into_iter().for_each(|id| assert_eq!(returning.put(id), posted, "{id}"));
        returning.done();
    }

    fn eight() -> Ids {
        let mut ids = Ids::all(QueueSize::new(8).unwrap());
        // The running indices soon wrap around.
        ids.first = usize::MAX - 103;
        ids.end = ids.first.wrapping_add(8);
        ids
    }

    #[test]
    fn ids_are_reused_in_return_order() {
        let mut ids = eight();
        let mut expected = VecDeque::from_iter(0..8);
        let mut out = Vec::new();
        for round in 0..1000 {
            let count = 1 + round % 8;
            assert_eq!(expected, free(&ids));
            put(&mut ids, expected.iter().copied().chain([8, u16::MAX]), false);
            out.extend(expected.drain(..usize::from(count)));
            ids.take(count);
            assert_eq!(expected, free(&ids));
            put(&mut ids, expected.iter().copied(), false);
            // They are returned in another order, one of them by itself.
            let by = usize::from(round % 3).min(out.len());
            out.rotate_left(by);
            expected.extend(&out);
            put(&mut ids, [out.remove(0)], true);
            put(&mut ids, out.drain(..), true);
        }
    }

    #[test]
    fn chains_come_back_by_their_heads_only() {
        let mut ids = eight();
        let mut round = 0;
        while round < 1000 {
            round += 1;
            let before = free(&ids);
            // One of three, one of one, one of two.
            ids.take_chain(3);
            ids.take_chain(1);
            ids.take_chain(2);
            let (chain, one, two) = (&before[..3], before[3], &before[4..6]);
            let next = |id: u16| {
                let at = before.iter().position(|known| *known == id).unwrap();
                before[(at + 1) % before.len()]
            };
            let mut returning = ids.returning();
            for wrong in [chain[1], chain[2], two[1], before[6], before[7], 8] {
                assert_eq!(returning.put_chain(wrong, 8, next), None, "{wrong}");
                assert!(!returning.put(wrong), "{wrong}");
            }
            assert!(!returning.put(chain[0]) && !returning.put(two[0]));
            assert_eq!(returning.put_chain(chain[0], 2, next), None, "more than can be out");
            if round % 2 == 0 {
                assert_eq!(returning.put_chain(two[0], 8, next), Some(2));
                assert_eq!(returning.put_chain(two[0], 8, next), None, "twice");
                assert_eq!(returning.put_chain(chain[0], 8, next), Some(3));
                assert!(returning.put(one));
            } else {
                assert_eq!(returning.put_chain(one, 8, next), Some(1));
                assert_eq!(returning.put_chain(chain[0], 8, next), Some(3));
                assert_eq!(returning.put_chain(two[0], 8, next), Some(2));
            }
            assert!(before.iter().all(|id| !returning.put(*id)), "all are free");
            returning.done();
            let free_before = before[6..].to_vec();
            let expected = match round % 2 {
                0 => [&free_before, two, chain, &[one]].concat(),
                _ => [&free_before, &[one][..], chain, two].concat(),
            };
            assert_eq!(free(&ids), expected);
        }
    }

    #[test]
    fn id_that_does_not_come_back_stays_posted() {
        let mut ids = eight();
        let held = ids.at(0);
        ids.take(1);
        for _ in 0..100 {
            let mut three = free(&ids)[..3].to_vec();
            ids.take(3);
            three.reverse();
            put(&mut ids, three.iter().copied(), true);
            let mut all = free(&ids);
            assert_eq!(all[4..], three);
            all.sort_unstable();
            assert!(all.iter().copied().eq((0..8).filter(|id| *id != held)), "{all:?}");
        }
        put(&mut ids, [held], true);
        put(&mut ids, [held], false);
    }

    #[test]
    fn copying_ids_stops_at_capacity() {
        let ids = Ids::all(QueueSize::new(4).unwrap());
        let mut out = ArrayVec::<u16, 3>::from_iter([9]);
        ids.copy_to(&mut out);
        assert_eq!(out[..], [9, 0, 1]);
        ids.copy_to(&mut out);
        assert_eq!((out.len(), ids.count()), (3, 4));
    }
}
