//! Memory in huge pages that need no reservation.

use rustix::mm::{Advice, madvise};

/// Returns an empty vector with room for `capacity` values, for which the kernel is asked to use
/// huge pages if it has some (transparent huge pages, `madvise`): random accesses to a large memory
/// area then wait less for address translation.
pub fn vec_in_huge_pages<T>(capacity: usize) -> Vec<T> {
    let mut values = Vec::with_capacity(capacity);
    let room = values.spare_capacity_mut();
    let page = rustix::param::page_size();
    let start = room.as_mut_ptr().cast::<u8>();
    let skip = start.align_offset(page);
    let len = size_of_val(room).saturating_sub(skip) & !(page - 1);
    if len > 0 {
        // A kernel that does not support it keeps to small pages.
        // SAFETY: the pages are within what was just allocated; the advice changes no contents.
        let _ = unsafe { madvise(start.add(skip).cast(), len, Advice::LinuxHugepage) };
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_page_vec_has_requested_capacity() {
        for capacity in [0, 1, 100, 1_000_000] {
            let mut values = vec_in_huge_pages::<u64>(capacity);
            let start = values.as_ptr();
            values.extend(0..capacity as u64);
            assert_eq!(values.as_ptr(), start, "the vector was not reallocated");
            assert_eq!(values.last().copied(), (capacity as u64).checked_sub(1));
        }
    }
}
