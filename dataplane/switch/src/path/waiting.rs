//! Frames that wait for their time.

use std::collections::VecDeque;

use dray_port::{BATCH_MAX, Batch, Frame};
use dray_wire::offload::Offload;

/// Frames start at multiples of this in memory, so that many short ones are not more than the
/// memory has room for long ones.
const ALIGN: usize = 64;

/// Copies of frames, in order, each with the tick from which it may go.
pub(super) struct Waiting {
    /// A ring; a frame is contiguous. Pages that were never used take no memory.
    memory: Box<[u8]>,
    copies: VecDeque<Copy>,
    /// Where the next copy goes.
    end: usize,
}

struct Copy {
    from: u64,
    start: u32,
    len: u32,
    offload: Offload,
}

impl Waiting {
    /// Creates room for so many bytes, less than 4 GiB.
    pub(super) fn new(bytes: usize) -> Self {
        Self { memory: vec![0; bytes].into(), copies: VecDeque::new(), end: 0 }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// Returns the tick from which the first frame may go, if there is one.
    #[inline]
    pub(super) fn next(&self) -> Option<u64> {
        self.copies.front().map(|first| first.from)
    }

    /// Appends a copy of a frame that may go from the tick `from` on. Returns false if there is no
    /// room.
    pub(super) fn push(&mut self, frame: &Frame<'_>, from: u64) -> bool {
        let Some(start) = self.room(frame.len()) else { return false };
        frame.copy_into(&mut self.memory[start..start + frame.len()]);
        self.end = (start + frame.len()).next_multiple_of(ALIGN);
        let (offload, len) = (frame.offload(), frame.len() as u32);
        self.copies.push_back(Copy { from, start: start as u32, len, offload });
        true
    }

    /// Returns the start of `len` contiguous bytes that no frame is in.
    fn room(&self, len: usize) -> Option<usize> {
        let all = self.memory.len();
        let Some(first) = self.copies.front() else { return (len <= all).then_some(0) };
        let first = first.start as usize;
        if self.end <= first {
            return (self.end + len <= first).then_some(self.end);
        }
        if self.end + len <= all { Some(self.end) } else { (len <= first).then_some(0) }
    }

    /// Passes the frames whose time has come to `take`, in batches; it returns how many it took.
    /// Returns how many were taken in all, and false if not all of these were.
    pub(super) fn release(
        &mut self,
        now: u64,
        mut take: impl FnMut(&[Frame<'_>]) -> usize,
    ) -> (usize, bool) {
        let mut released = 0;
        loop {
            let due = self.copies.iter().take_while(|copy| copy.from <= now).take(BATCH_MAX);
            let frame = |copy: &Copy| {
                let start = copy.start as usize;
                let bytes = &self.memory[start..start + copy.len as usize];
                Frame::with_offload(bytes, copy.offload)
            };
            let batch: Batch<'_> = due.map(frame).collect();
            if batch.is_empty() {
                return (released, true);
            }
            let (count, taken) = (batch.len(), take(&batch));
            drop(batch);
            self.copies.drain(..taken);
            released += taken;
            if taken < count {
                return (released, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use dray_port::scratch;

    use super::*;

    #[test]
    fn frames_leave_in_order_and_unchanged() {
        let bytes: Vec<u8> = (0..=250).cycle().take(9000).collect();
        let mut waiting = Waiting::new(20_000);
        let (mut sent, mut got) = (VecDeque::new(), 0);
        for number in 10..5000_u64 {
            let len = 14 + (number as usize * 7919) % 3000;
            let start = number as usize % 5000;
            let frame = Frame::from(&bytes[start..start + len]);
            if waiting.push(&frame, number) {
                sent.push_back((number, start, len));
            } else {
                assert!(sent.iter().map(|(.., len)| len + ALIGN).sum::<usize>() > 13_000);
            }
            if number % 3 == 0 {
                waiting.release(number - 4, |frames| {
                    for frame in frames {
                        let (from, start, len) = sent.pop_front().unwrap();
                        assert!(from + 4 <= number);
                        assert_eq!(frame.bytes(&mut scratch()), &bytes[start..start + len]);
                        got += 1;
                    }
                    frames.len()
                });
                assert!(waiting.next().is_none_or(|next| next + 4 > number));
            }
        }
        assert!(got > 1000, "{got}");
    }

    #[test]
    fn frames_not_taken_stay_with_their_offload() {
        let offload = Offload::Tcp(NonZeroU16::new(1448).unwrap());
        let mut waiting = Waiting::new(200_000);
        let long = vec![3; 65_226];
        for at in 0..3 {
            assert!(waiting.push(&Frame::with_offload(&long, offload), at));
        }
        assert!(!waiting.push(&Frame::with_offload(&long, offload), 3));
        assert_eq!(waiting.release(1, |frames| frames.len().min(1)), (1, false));
        assert_eq!(waiting.next(), Some(1));
        let mut seen = 0;
        let released = waiting.release(9, |frames| {
            seen += frames.iter().filter(|frame| frame.offload() == offload).count();
            frames.len()
        });
        assert_eq!((released, seen, waiting.is_empty()), ((2, true), 2, true));
    }

    #[test]
    fn short_frames_take_no_more_than_the_memory() {
        let mut waiting = Waiting::new(1 << 16);
        let count = (0..10_000).take_while(|_| waiting.push(&Frame::from(&[0; 14][..]), 0)).count();
        assert_eq!(count, (1 << 16) / ALIGN);
    }
}
