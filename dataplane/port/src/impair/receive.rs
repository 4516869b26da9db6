//! The receiving half: impairs the frames of the underlying port by the plan.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use dray_wire::FRAME_MIN;
use dray_wire::test_frame::{self, Stamp, Verdict};

use super::plan::Plan;
use crate::{BATCH_MAX, Batch, Frame, Receive, Scratch, Take, Wait, clock, scratch};

/// Maximum number of delayed frames; further ones stay in the port.
const DELAYED_MAX: usize = 8 * BATCH_MAX;
/// Maximum time that a frame waits for another one to overtake it.
const SWAP_MAX: Duration = Plan::DELAY_MAX;

/// Receiving half of an impaired port ([`ImpairUri`](super::ImpairUri)).
pub(super) struct Impaired {
    port: Box<dyn Receive>,
    /// How the port waits while no frame is delayed.
    wait: Wait,
    /// True if the underlying port is set to `wait`.
    waits: bool,
    impairment: Impairment,
    scratch: Scratch,
}

/// The plan, and its state.
struct Impairment {
    plan: Plan,
    /// Number of frames so far.
    count: u64,
    /// Number of frames ahead of the rate, and the tick of that number.
    backlog: (f64, u64),
    /// Delayed frames, in order; each with the tick at which it is delivered.
    delayed: VecDeque<(u64, Vec<u8>)>,
    /// The frame that the next one overtakes, with the ticks of its arrival and its delivery.
    swapped: Option<(u64, u64, Vec<u8>)>,
    /// Free buffers for frames.
    spare: Vec<Vec<u8>>,
}

impl Impaired {
    pub(super) fn new(port: Box<dyn Receive>, wait: Wait, plan: Plan) -> Self {
        let impairment = Impairment {
            plan,
            count: 0,
            backlog: (0.0, 0),
            delayed: VecDeque::new(),
            swapped: None,
            spare: Vec::new(),
        };
        Self { port, wait, waits: true, impairment, scratch: scratch() }
    }
}

impl Receive for Impaired {
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize> {
        let Self { port, impairment, scratch, .. } = self;
        let waits = impairment.delayed.is_empty() && impairment.swapped.is_none();
        if waits != self.waits {
            port.set_wait(if waits { self.wait } else { Wait::Poll { pause_us: 0 } });
            self.waits = waits;
        }
        if impairment.delayed.len() < DELAYED_MAX {
            port.receive(&mut |frames| {
                let now = clock::ticks();
                frames.iter().for_each(|frame| impairment.enter(frame.bytes(scratch), now));
                frames.len()
            })?;
        }
        let now = clock::ticks();
        impairment.expire_swap(now);
        let due = impairment.delayed.iter().take_while(|(due, _)| *due <= now).take(BATCH_MAX);
        let batch: Batch<'_> = due.map(|(_, frame)| Frame::from(frame.as_slice())).collect();
        if batch.is_empty() {
            return Ok(0);
        }
        let lent = batch.len();
        let taken = take(&batch).min(lent);
        drop(batch);
        impairment.spare.extend(impairment.delayed.drain(..taken).map(|(_, frame)| frame));
        Ok(lent)
    }

    fn refused(&self) -> u64 {
        // Frames that the plan drops are not counted.
        self.port.refused()
    }

    fn missed(&self) -> io::Result<u64> {
        self.port.missed()
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        self.port.event()
    }

    fn arm(&mut self, on: bool) -> bool {
        // No event is signalled when a delayed frame is due.
        self.port.arm(on)
            || !self.impairment.delayed.is_empty()
            || self.impairment.swapped.is_some()
    }

    fn set_wait(&mut self, wait: Wait) {
        (self.wait, self.waits) = (wait, true);
        self.port.set_wait(wait);
    }
}

impl Impairment {
    /// Handles a frame that arrives at tick `now`.
    fn enter(&mut self, frame: &[u8], now: u64) {
        self.count += 1;
        if self.plan.panic.is_some_and(|frame| u64::from(frame) == self.count) {
            panic!("frame {}: panic planned with impair:", self.count);
        }
        let sent = sent_at(frame).filter(|sent| *sent <= now).unwrap_or(now);
        let is_each =
            |each: Option<u32>| each.is_some_and(|each| self.count.is_multiple_of(each.into()));
        let Plan { drop, duplicate, swap, late, delay, late_by, .. } = self.plan;
        let (is_late, is_swapped) = (is_each(late), is_each(swap));
        let times = if is_each(drop) { 0 } else { 1 + u8::from(is_each(duplicate)) };
        if self.exceeds_rate(sent) || times == 0 {
            return;
        }
        let due = sent + clock::to_ticks(if is_late { late_by } else { delay });
        let copy = self.copy(frame);
        if self.swapped.is_none() && is_swapped && times == 1 {
            self.swapped = Some((now, due, copy));
            return;
        }
        if times == 2 {
            let again = self.copy(frame);
            self.delayed.push_back((due, again));
        }
        self.delayed.push_back((due, copy));
        self.release_swapped();
    }

    /// Returns true if a frame sent at tick `sent` exceeds the rate.
    fn exceeds_rate(&mut self, sent: u64) -> bool {
        let Some(rate) = self.plan.rate else { return false };
        let (backlog, before) = self.backlog;
        let passed = sent.saturating_sub(before) as f64 / clock::ticks_per_second() as f64;
        let backlog = if before == 0 { 0.0 } else { (backlog - passed * rate).max(0.0) };
        let exceeds = backlog + 1.0 > f64::from(self.plan.queue.unwrap_or(Plan::QUEUE));
        self.backlog = (if exceeds { backlog } else { backlog + 1.0 }, sent.max(before));
        exceeds
    }

    fn copy(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(frame);
        copy
    }

    /// Releases the swapped frame, after the frame that has overtaken it.
    fn release_swapped(&mut self) {
        if let Some((_, due, frame)) = self.swapped.take() {
            self.delayed.push_back((due, frame));
        }
    }

    fn expire_swap(&mut self, now: u64) {
        let limit = clock::to_ticks(SWAP_MAX);
        if self.swapped.as_ref().is_some_and(|(arrived, ..)| now.saturating_sub(*arrived) > limit) {
            self.release_swapped();
        }
    }
}

/// Returns the tick at which a test frame was due.
fn sent_at(frame: &[u8]) -> Option<u64> {
    let head = frame.first_chunk::<FRAME_MIN>()?;
    match test_frame::read_head(head, frame.len()) {
        Verdict::Intact(Stamp { ticks, .. }) => Some(ticks),
        Verdict::Corrupt(_) | Verdict::Foreign => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_wire::Flow;
    use proptest::prelude::*;

    fn impairment(plan: Plan) -> Impairment {
        let port = Impaired::new(Box::new(Silent), Wait::Block, plan);
        port.impairment
    }

    struct Silent;
    impl Receive for Silent {
        fn receive(&mut self, _: &mut Take<'_>) -> io::Result<usize> {
            Ok(0)
        }
    }

    /// Builds the frame with number `sequence`, due at tick `ticks`.
    fn frame(sequence: u64, ticks: u64) -> Vec<u8> {
        let mut frame = test_frame::build(&Flow::default(), 64);
        test_frame::stamp(&mut frame, Stamp { stream: 0, sequence, ticks });
        frame
    }

    /// Returns the numbers of the frames delivered, when each of `count` frames is due at its own
    /// tick.
    fn order(plan: Plan, count: u64) -> Vec<u64> {
        let mut impairment = impairment(plan);
        (0..count).for_each(|number| impairment.enter(&frame(number, 1 + number), u64::MAX));
        let numbers = impairment.delayed.iter().map(|(_, bytes)| match test_frame::read(bytes) {
            Verdict::Intact(stamp) => stamp.sequence,
            other => panic!("{other:?}"),
        });
        numbers.collect()
    }

    #[test]
    fn every_nth_frame_is_dropped_duplicated_or_swapped() {
        let each = |each| Some(each);
        let plan = Plan { drop: each(5), duplicate: each(3), swap: each(4), ..Plan::default() };
        // Numbers from 0: the 5th and 10th are dropped, the 3rd, 6th and 9th duplicated, the 4th
        // and 8th overtaken by the next one that is not dropped.
        assert_eq!(order(plan, 11), [0, 1, 2, 2, 5, 5, 3, 6, 8, 8, 7, 10]);
        let always = Plan { swap: each(1), ..Plan::default() };
        assert_eq!(order(always, 5), [1, 0, 3, 2], "the last waits for one more");
    }

    #[test]
    fn rate_drops_frames_by_send_time() {
        let second = clock::ticks_per_second();
        let mut impairment =
            impairment(Plan { rate: Some(1000.0), queue: Some(4), ..Plan::default() });
        // One and a half times the rate, for a second.
        for number in 0..1500 {
            impairment.enter(&frame(number, second + number * second / 1500), u64::MAX);
        }
        assert!(impairment.delayed.len().abs_diff(1000) <= 5, "{}", impairment.delayed.len());
        // At the rate itself no frame is lost.
        let before = impairment.delayed.len();
        for number in 0..1000 {
            impairment.enter(&frame(number, 3 * second + number * second / 1000), u64::MAX);
        }
        assert_eq!(impairment.delayed.len(), before + 1000);
    }

    #[test]
    fn delay_counts_from_send_time() {
        let delay = Duration::from_micros(500);
        let late_by = Duration::from_millis(3);
        let mut impairment = impairment(Plan { delay, late: Some(2), late_by, ..Plan::default() });
        for number in 0..2 {
            impairment.enter(&frame(number, 1000), 2000);
        }
        let foreign = [0; 60];
        impairment.enter(&foreign, 5000);
        impairment.enter(&frame(9, u64::MAX), 7000);
        let due: Vec<u64> = impairment.delayed.iter().map(|(due, _)| *due).collect();
        let (delay, late_by) = (clock::to_ticks(delay), clock::to_ticks(late_by));
        assert_eq!(due, [1000 + delay, 1000 + late_by, 5000 + delay, 7000 + late_by]);
    }

    proptest! {
        #[test]
        fn impairment_loses_only_dropped_frames(
            count in 0_u64..500,
            drop in prop::option::of(1_u32..50),
            duplicate in prop::option::of(1_u32..50),
            swap in prop::option::of(1_u32..50),
        ) {
            let mut impairment = impairment(Plan { drop, duplicate, swap, ..Plan::default() });
            (0..count).for_each(|number| impairment.enter(&frame(number, 1), 1));
            impairment.expire_swap(u64::MAX);
            let of = |each: Option<u32>| each.map_or(0, |each| count / u64::from(each));
            let both = match (drop, duplicate) {
                (Some(a), Some(b)) => (1..=count).filter(|n| n % u64::from(a) == 0 && n % u64::from(b) == 0).count(),
                _ => 0,
            };
            let expected = count - of(drop) + of(duplicate) - both as u64;
            prop_assert_eq!(impairment.delayed.len() as u64, expected);
        }
    }
}
