//! Frames that a port has taken, and that its peer never gets.

use arrayvec::ArrayVec;

use crate::BATCH_MAX;

/// Why a frame that a port has taken can never be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The frame is longer than the peer accepts.
    TooLong,
    /// The kernel refused it, or the peer does not take over its offload.
    Undeliverable,
}

/// The frames that a transmitting half has taken and that can never be delivered.
#[derive(Clone, Debug, Default)]
pub struct Lost {
    total: u64,
    of_call: ArrayVec<(u16, Loss), BATCH_MAX>,
}

impl Lost {
    /// Creates the account of a half that has lost nothing.
    pub const fn new() -> Self {
        Self { total: 0, of_call: ArrayVec::new_const() }
    }

    /// Returns the account of a half that never loses any.
    pub(crate) fn none() -> &'static Self {
        static NONE: Lost = Lost::new();
        &NONE
    }

    /// Returns the lost frames of the last call of [`transmit`](crate::Transmit::transmit), in
    /// order: the index of each among the call's frames, and why it is lost.
    #[inline]
    pub fn of_call(&self) -> &[(u16, Loss)] {
        &self.of_call
    }

    /// Calls `each` with the frames that the last call has `taken`, in order: runs of those that
    /// reach the peer, and each that does not, with the reason.
    pub fn each_run<F>(&self, taken: &[F], mut each: impl FnMut(&[F], Option<Loss>)) {
        let mut from = 0;
        for (index, why) in &self.of_call {
            let at = usize::from(*index);
            let (Some(before), Some(one)) = (taken.get(from..at), taken.get(at..=at)) else {
                break;
            };
            if !before.is_empty() {
                each(before, None);
            }
            each(one, Some(*why));
            from = at + 1;
        }
        if from < taken.len() {
            each(&taken[from..], None);
        }
    }

    /// Returns their number since the port was opened.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Forgets the frames of the last call: another one begins.
    #[inline]
    pub fn begin(&mut self) {
        self.of_call.clear();
    }

    /// Adds the frame `index` of the call, which comes after those added before.
    #[cold]
    pub fn add(&mut self, index: usize, why: Loss) {
        self.total += 1;
        // A call has at most that many frames.
        let _ = self.of_call.try_push((index as u16, why));
    }

    /// Takes back the frames added for a call that took only `taken` of them.
    pub(crate) fn keep(&mut self, taken: usize) {
        while self.of_call.last().is_some_and(|(index, _)| usize::from(*index) >= taken) {
            self.of_call.pop();
            self.total -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_all_that_was_taken_in_order() {
        let frames: Vec<usize> = (0..8).collect();
        let long = Some(Loss::TooLong);
        for (lost, taken, runs) in [
            (vec![], 8, vec![(0..8, None)]),
            (vec![], 0, vec![]),
            (vec![0], 1, vec![(0..1, long)]),
            (
                vec![0, 3, 4],
                8,
                vec![(0..1, long), (1..3, None), (3..4, long), (4..5, long), (5..8, None)],
            ),
            // The call took no more.
            (vec![2, 6], 5, vec![(0..2, None), (2..3, long), (3..5, None)]),
        ] {
            let mut all = Lost::new();
            lost.iter().for_each(|index| all.add(*index, Loss::TooLong));
            all.keep(taken);
            assert_eq!(all.total(), lost.iter().filter(|index| **index < taken).count() as u64);
            let mut seen = Vec::new();
            all.each_run(&frames[..taken], |run, why| {
                seen.push((run[0]..run[0] + run.len(), why));
            });
            assert_eq!(seen, runs);
            all.begin();
            assert_eq!(all.of_call(), []);
        }
    }
}
