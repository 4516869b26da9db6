//! Numbers that never go back, from counters of the kernel that may.

use std::cell::Cell;
use std::io;

/// Growth of a counter of the kernel since this was created. The counter may be narrow, begin anew,
/// or vanish with its interface.
#[derive(Debug)]
pub(crate) struct Total {
    last: Cell<u64>,
    total: Cell<u64>,
    /// Largest number that the kernel's counter can have.
    most: u64,
}

impl Total {
    /// Starts at the counter's present value; `most` is its largest one.
    pub(crate) fn new(first: &io::Result<u64>, most: u64) -> Self {
        let first = first.as_ref().copied().unwrap_or(0);
        Self { last: Cell::new(first), total: Cell::new(0), most }
    }

    /// Returns the total after the counter was `read`. If it could not be read, that of before.
    pub(crate) fn at(&self, read: &io::Result<u64>) -> u64 {
        if let Ok(now) = *read {
            let last = self.last.replace(now);
            let more = match now.checked_sub(last) {
                Some(more) => more,
                // The counter has wrapped if it was near its end; otherwise it has begun anew.
                None if last > self.most / 2 => self.most - last + now + 1,
                None => now,
            };
            self.total.set(self.total.get() + more);
        }
        self.total.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_never_goes_back() {
        let total = Total::new(&Ok(10), u32::MAX.into());
        let gone = || Err(io::ErrorKind::NotFound.into());
        let steps = [
            (Ok(10), 0),
            (Ok(15), 5),
            (gone(), 5),
            (Ok(2), 7),
            (Ok(u32::MAX.into()), u64::from(u32::MAX) + 5),
            (Ok(3), u64::from(u32::MAX) + 9),
            (gone(), u64::from(u32::MAX) + 9),
        ];
        for (read, expected) in steps {
            assert_eq!(total.at(&read), expected, "{read:?}");
        }
        let wide = Total::new(&gone(), u64::MAX);
        assert_eq!([wide.at(&Ok(7)), wide.at(&Ok(1))], [7, 8]);
    }
}
