//! Sequence numbers from a hostile sender: the counts always add up.
#![no_main]

use dray_traffic::sequence::Tracker;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut tracker = Tracker::default();
    let mut frames = 0;
    for chunk in bytes.chunks_exact(3) {
        // Mostly near the expected number, sometimes anywhere.
        let offset = i64::from(i16::from_le_bytes([chunk[1], chunk[2]]));
        let sequence = match chunk[0] {
            0 => u64::MAX,
            1 => u64::MAX - 1,
            2 => offset.unsigned_abs(),
            shift => tracker.next.saturating_add_signed(offset >> (shift % 16)),
        };
        tracker.record(sequence);
        frames += 1;
        assert_eq!(tracker.received + tracker.lost, tracker.next);
        assert_eq!(tracker.received + tracker.duplicated, frames);
        assert!(tracker.reordered <= tracker.received);
    }
});
