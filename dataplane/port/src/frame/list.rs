//! Lists that a loop over frames fills.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::slice;

/// Room for a [`List`].
pub(crate) struct Space<T, const N: usize>([MaybeUninit<T>; N]);

impl<T: Copy, const N: usize> Space<T, N> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; N])
    }

    /// Returns an empty list of at most `N` elements.
    #[inline(always)]
    pub(crate) fn list(&mut self) -> List<'_, T> {
        let Range { start, end } = self.0.as_mut_ptr_range();
        List { first: start.cast(), next: start.cast(), end: end.cast(), lent: PhantomData }
    }
}

/// A list in memory that is lent to it. Its end is a local of the loop that fills it, and so can
/// stay in a register: a vector stores its length for every element, and each store between the
/// frames takes a place in the processor's store buffer (docs/performance.md).
pub(crate) struct List<'s, T> {
    first: *mut T,
    next: *mut T,
    end: *mut T,
    lent: PhantomData<&'s mut [T]>,
}

impl<T: Copy> List<'_, T> {
    /// Appends an element.
    ///
    /// # Panics
    /// If the list is full.
    #[inline(always)]
    pub(crate) fn push(&mut self, element: T) {
        if self.next == self.end {
            full();
        }
        // SAFETY: there is room up to the end.
        unsafe {
            self.next.write(element);
            self.next = self.next.add(1);
        }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        // SAFETY: both point into the same room.
        unsafe { self.next.offset_from_unsigned(self.first) }
    }

    #[inline(always)]
    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: the first `len` elements were written.
        unsafe { slice::from_raw_parts(self.first, self.len()) }
    }
}

// The message has no numbers: to format them, the list would have to be in memory.
#[cold]
fn full() -> ! {
    panic!("a list is full");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_holds_what_was_pushed() {
        let mut space = Space::<_, 3>::new();
        let mut list = space.list();
        assert_eq!(list.as_slice(), [0u16; 0]);
        for (index, number) in [7, 8, 9].into_iter().enumerate() {
            list.push(number);
            assert_eq!(list.len(), index + 1);
        }
        assert_eq!(list.as_slice(), [7, 8, 9]);
        assert_eq!(space.list().len(), 0);
    }

    #[test]
    #[should_panic(expected = "a list is full")]
    fn full_list_panics() {
        let mut space = Space::<_, 1>::new();
        let mut list = space.list();
        list.push(1);
        list.push(2);
    }
}
