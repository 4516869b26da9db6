//! Tracking of the fate of a stream's frames by their sequence numbers.

/// Maximum distance behind the newest frame at which a late one is recognised, in frames.
pub const WINDOW: u64 = 1024;

/// Counts the frames of one stream. Between calls `next == received + lost`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracker {
    /// Distinct frames that arrived.
    pub received: u64,
    /// Frames below the highest sequence number seen that have not arrived.
    pub lost: u64,
    /// Frames that arrived more than once. A frame more than [`WINDOW`] late counts here as well:
    /// it cannot be told from a duplicate, and this way a loss never looks smaller than it was.
    pub duplicated: u64,
    /// Frames that arrived after a later one.
    pub reordered: u64,
    /// Highest sequence number seen, plus one.
    pub next: u64,
    /// One bit for each of the last `WINDOW` sequence numbers, set if it has arrived.
    seen: [u64; (WINDOW / 64) as usize],
}

impl Tracker {
    /// Counts a frame. `sequence` must be below `u64::MAX`; that last number counts as a duplicate,
    /// since no honest stream reaches it.
    #[inline]
    pub fn record(&mut self, sequence: u64) {
        if sequence == self.next && sequence < u64::MAX {
            self.mark(sequence);
            self.next += 1;
            self.received += 1;
        } else {
            self.record_unexpected(sequence);
        }
    }

    /// Counts `count` frames numbered from `first` on, as [`record`](Self::record) does one by one.
    #[inline]
    pub fn record_run(&mut self, first: u64, count: u64) {
        if first != self.next || first.checked_add(count).is_none() {
            (0..count).for_each(|offset| self.record(first.wrapping_add(offset)));
            return;
        }
        let (mut at, end) = (first, first + count);
        while at < end {
            // As many as share a word of `seen`.
            let bits = (64 - at % 64).min(end - at);
            let mask = u64::MAX >> (64 - bits) << (at % 64);
            self.seen[(at % WINDOW / 64) as usize] |= mask;
            at += bits;
        }
        self.next = end;
        self.received += count;
    }

    #[cold]
    fn record_unexpected(&mut self, sequence: u64) {
        if sequence == u64::MAX {
            self.duplicated += 1;
        } else if sequence > self.next {
            let gap = sequence - self.next;
            if gap >= WINDOW {
                self.seen = [0; 16];
            } else {
                (self.next..sequence).for_each(|missing| self.unmark(missing));
            }
            self.mark(sequence);
            self.next = sequence + 1;
            self.lost += gap;
            self.received += 1;
        } else if self.next - sequence > WINDOW || self.is_marked(sequence) {
            self.duplicated += 1;
        } else {
            self.mark(sequence);
            self.lost -= 1;
            self.received += 1;
            self.reordered += 1;
        }
    }

    #[inline]
    fn mark(&mut self, sequence: u64) {
        self.seen[(sequence % WINDOW / 64) as usize] |= 1 << (sequence % 64);
    }

    fn unmark(&mut self, sequence: u64) {
        self.seen[(sequence % WINDOW / 64) as usize] &= !(1 << (sequence % 64));
    }

    fn is_marked(&self, sequence: u64) -> bool {
        self.seen[(sequence % WINDOW / 64) as usize] & 1 << (sequence % 64) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// Remembers every sequence number: the expected result for streams that are never more than a
    /// window out of order.
    #[derive(Default)]
    struct Oracle {
        seen: HashSet<u64>,
        duplicated: u64,
        reordered: u64,
        next: u64,
    }

    impl Oracle {
        fn record(&mut self, sequence: u64) {
            let too_old = self.next.saturating_sub(sequence) > WINDOW;
            if too_old || !self.seen.insert(sequence) {
                self.duplicated += 1;
            } else if sequence < self.next {
                self.reordered += 1;
            }
            self.next = self.next.max(sequence + 1);
        }
    }

    proptest! {
        #[test]
        fn tracker_agrees_with_oracle(
            steps in prop::collection::vec(prop_oneof![
                6 => Just(0i64),
                2 => -8i64..8,
                1 => -2000i64..2000,
            ], 0..400),
        ) {
            let (mut tracker, mut oracle) = (Tracker::default(), Oracle::default());
            for step in steps {
                let sequence = oracle.next.saturating_add_signed(step);
                tracker.record(sequence);
                oracle.record(sequence);
                prop_assert_eq!(tracker.received, oracle.seen.len() as u64);
                prop_assert_eq!(tracker.duplicated, oracle.duplicated);
                prop_assert_eq!(tracker.reordered, oracle.reordered);
                prop_assert_eq!(tracker.next, oracle.next);
                prop_assert_eq!(tracker.received + tracker.lost, tracker.next);
            }
        }

        #[test]
        fn run_counts_like_single_frames(
            runs in prop::collection::vec((-1500i64..1500, prop_oneof![0u64..3, 0u64..3000]), 0..20),
            start in prop_oneof![Just(0), any::<u64>(), Just(u64::MAX - 100)],
        ) {
            let (mut by_run, mut by_frame) = (Tracker::default(), Tracker::default());
            for (step, count) in std::iter::once((0, 1)).chain(runs) {
                let base = if by_run.next == 0 { start } else { by_run.next };
                let first = base.wrapping_add_signed(step);
                by_run.record_run(first, count);
                (0..count).for_each(|offset| by_frame.record(first.wrapping_add(offset)));
                prop_assert_eq!(&by_run, &by_frame);
            }
        }

        #[test]
        fn any_sequence_numbers_keep_counts_consistent(numbers in prop::collection::vec(any::<u64>(), 0..50)) {
            let mut tracker = Tracker::default();
            for number in numbers.into_iter().chain([u64::MAX, u64::MAX - 1, u64::MAX, 0]) {
                tracker.record(number);
                prop_assert_eq!(tracker.received + tracker.lost, tracker.next);
            }
        }
    }

    #[test]
    fn late_frame_reduces_loss() {
        let mut tracker = Tracker::default();
        for sequence in [0, 1, 4, 3, 3, 5] {
            tracker.record(sequence);
        }
        let Tracker { received, lost, duplicated, reordered, next, .. } = tracker;
        assert_eq!((received, lost, duplicated, reordered, next), (5, 1, 1, 1, 6));
    }
}
