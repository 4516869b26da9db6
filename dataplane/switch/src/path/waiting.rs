//! Frames that wait for their time.

use std::collections::VecDeque;
use std::sync::Arc;

use dray_port::Frame;

use super::block::Block;
use super::pool::Share;

/// Copies of frames, in order, each with the tick from which it may go.
pub(super) struct Waiting {
    /// Blocks of frames; no block is empty.
    blocks: VecDeque<Block>,
    share: Arc<Share>,
}

impl Waiting {
    /// Creates a queue without frames, which takes its memory from `share`.
    pub(super) fn new(share: Arc<Share>) -> Self {
        Self { blocks: VecDeque::new(), share }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the tick from which the first frame may go, if there is one.
    #[inline]
    pub(super) fn next(&self) -> Option<u64> {
        self.blocks.front()?.next()
    }

    /// Appends a copy of a frame that may go from the tick `from` on. Returns false if there is no
    /// memory.
    pub(super) fn push(&mut self, frame: &Frame<'_>, from: u64) -> bool {
        if !self.blocks.back().is_some_and(|last| last.has_room(frame.len())) {
            let Some(block) = self.share.take(self.blocks.len()) else { return false };
            self.blocks.push_back(block);
        }
        self.blocks.back_mut().into_iter().for_each(|last| last.push(frame, from));
        true
    }

    /// Passes the frames whose time has come to `take`, in batches; it returns how many it took.
    /// Returns how many were taken in all, and false if not all of these were.
    pub(super) fn release(
        &mut self,
        now: u64,
        mut take: impl FnMut(&[Frame<'_>]) -> usize,
    ) -> (usize, bool) {
        let mut released = 0;
        while let Some(first) = self.blocks.front_mut() {
            let (count, taken) = first.release(now, &mut take);
            released += taken;
            if first.next().is_none() {
                let first = self.blocks.pop_front();
                first.into_iter().for_each(|first| self.share.give(first));
            }
            if taken < count {
                return (released, false);
            }
            if count == 0 {
                break;
            }
        }
        (released, true)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.blocks.drain(..).for_each(|block| self.share.give(block));
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use dray_port::scratch;
    use dray_wire::offload::Offload;

    use super::super::block::BLOCK;
    use super::super::pool::Pool;
    use super::*;

    /// Creates a queue with `blocks` blocks, at least two.
    fn waiting(blocks: usize) -> (Waiting, Arc<Pool>) {
        let pool = Arc::new(Pool::default());
        let share = Share::new(pool.clone(), ((blocks - 1) * BLOCK) as u64);
        (Waiting::new(Arc::new(share)), pool)
    }

    #[test]
    fn frames_leave_in_order_and_unchanged() {
        let bytes: Vec<u8> = (0..=250).cycle().take(9000).collect();
        let (mut waiting, pool) = waiting(3);
        let (mut sent, mut got, mut refused) = (VecDeque::new(), 0, 0);
        for number in 10..5000_u64 {
            let len = 14 + (number as usize * 7919) % 3000;
            let start = number as usize % 5000;
            let frame = Frame::from(&bytes[start..start + len]);
            if waiting.push(&frame, number) {
                sent.push_back((number, start, len));
            } else {
                let there = sent.iter().map(|(.., len)| len + 64).sum::<usize>();
                assert!(there > 2 * BLOCK - 3100, "{there}");
                refused += 1;
            }
            if number % 300 == 0 {
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
        assert!(got > 1000 && refused > 100, "{got} {refused}");
        assert!(waiting.release(u64::MAX, |frames| frames.len()).1 && waiting.is_empty());
        assert!(pool.bytes() <= 3 * BLOCK, "{}", pool.bytes());
    }

    #[test]
    fn frames_not_taken_stay_with_their_offload() {
        let offload = Offload::Tcp(NonZeroU16::new(1448).unwrap());
        let (mut waiting, _) = waiting(2);
        let long = vec![3; 65_226];
        for at in 0..4 {
            assert!(waiting.push(&Frame::with_offload(&long, offload), at));
        }
        assert!(!waiting.push(&Frame::with_offload(&long, offload), 4));
        assert_eq!(waiting.release(1, |frames| frames.len().min(1)), (1, false));
        assert_eq!(waiting.next(), Some(1));
        let mut seen = 0;
        let released = waiting.release(9, |frames| {
            seen += frames.iter().filter(|frame| frame.offload() == offload).count();
            frames.len()
        });
        assert_eq!((released, seen, waiting.is_empty()), ((3, true), 3, true));
    }

    #[test]
    fn short_frames_take_no_more_than_the_memory() {
        let (mut waiting, _) = waiting(2);
        let count = (0..10_000).take_while(|_| waiting.push(&Frame::from(&[0; 14][..]), 0)).count();
        assert_eq!(count, 2 * BLOCK / 64);
    }

    /// A queue with few frames uses the rest of its memory again while frames wait in it.
    #[test]
    fn queue_that_is_never_empty_takes_all() {
        let (mut waiting, _) = waiting(2);
        for number in 0..5000 {
            assert!(waiting.push(&Frame::from(&[0; 1514][..]), number), "frame {number}");
            if number >= 80 {
                assert_eq!(waiting.release(number - 80, |frames| frames.len()), (1, true));
            }
        }
    }

    #[test]
    fn memory_of_a_queue_goes_with_it() {
        let (mut waiting, pool) = waiting(2);
        assert!(waiting.push(&Frame::from(&[0; 60][..]), 0));
        drop(waiting);
        let share = Share::new(pool, u64::MAX);
        let count = (0..).map_while(|count| share.take(count)).count();
        // All but the part that others may use.
        assert_eq!(count, super::super::pool::PORT_MAX / BLOCK - 1);
    }
}
