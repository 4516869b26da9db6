//! Rate limit of one direction of a port.
//!
//! A frame beyond the rate waits for its time, up to [`PATIENCE`]; one that would have to wait
//! longer is dropped. A limit without a queue would suit UDP, but not TCP: between containers the
//! round trip is so short that no window fits the rate, so that TCP loses most of each burst and
//! waits for its timer.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use dray_datapath::{self as datapath, Bucket, lock};
use dray_port::{FRAME_LIMIT, Finished, Finisher, Frame, clock};

use super::pool::{Pool, Share};
use super::waiting::Waiting;
use crate::config::{Burst, Rate};

/// Maximum time that a frame waits at usual rates. With the default burst it is less than 50 ms, so
/// that any second has less than 1.05 times the rate even after a worker was delayed.
const PATIENCE: Duration = Duration::from_millis(30);
/// Frames, and bytes, that may wait longer at low rates: what a kernel transmits at once, 64 KiB
/// that become up to 64 datagrams, each with headers of its own.
const FRAMES_LEAST: u64 = 64;
const BYTES_LEAST: u64 = 72 * 1024;
/// Maximum time that a frame waits at any rate: from then on its sender takes it for lost (RFC
/// 6298, section 2.1).
const PATIENCE_MAX: Duration = Duration::from_secs(1);
/// A TCP packet to be segmented that takes longer than this at the rate is cut into its segments,
/// so that others do not wait for all of it.
const CUT: Duration = Duration::from_millis(12);

/// Rate limit, shared by all workers that use the port.
pub(super) struct Shaper {
    frames: Option<Limit>,
    bytes: Option<Limit>,
    /// [`CUT`] in ticks.
    cut: u64,
    queues: Box<[Mutex<Queue>]>,
}

/// Limit on frames or bytes per second.
struct Limit {
    bucket: Bucket,
    /// Maximum time that a frame waits, in ticks.
    patience: u64,
}

/// The frames that wait in one queue, which one worker uses.
pub(super) struct Queue {
    waiting: Waiting,
    finisher: Option<Finisher>,
    /// True if the receiver takes no more frames, which wait for it in turn.
    is_blocked: bool,
    /// True if the worker knows that frames wait.
    is_listed: bool,
}

/// Decision on frames.
pub(super) enum Step<'s, 'f> {
    /// They may pass now.
    Pass(&'s [Frame<'f>]),
    /// They have to wait.
    Wait(&'s [Frame<'f>]),
    /// They are beyond the rate.
    Drop(&'s [Frame<'f>]),
}

/// Result of [`Shaper::release`].
#[derive(Clone, Copy)]
pub(super) struct Released {
    /// Number of frames that passed.
    pub(super) frames: usize,
    /// True if the receiver did not take all of them.
    pub(super) is_blocked: bool,
    /// True if no frame waits any more.
    pub(super) is_empty: bool,
}

impl Released {
    pub(super) const NOTHING: Self = Self { frames: 0, is_blocked: false, is_empty: true };
}

impl Limit {
    fn new(per_second: f64, burst: Burst, least: u64) -> Self {
        let limit = datapath::Limit::new(per_second, burst.time());
        let longest = clock::to_ticks(PATIENCE_MAX);
        let patience = clock::to_ticks(PATIENCE).max(limit.ticks(least).min(longest));
        Self { bucket: Bucket::new(limit), patience }
    }
}

impl Shaper {
    /// Creates the limit, with queues for `queues` users, whose memory is in `pool`.
    pub(super) fn new(rate: Rate, burst: Burst, queues: usize, pool: &Arc<Pool>) -> Self {
        let burst = rate.burst.unwrap_or(burst);
        let frames =
            rate.frames.map(|rate| Limit::new(rate.per_second() as f64, burst, FRAMES_LEAST));
        let bytes =
            rate.bits.map(|rate| Limit::new(rate.per_second() as f64 / 8.0, burst, BYTES_LEAST));
        // Twice what may wait, since short frames take more room.
        let most =
            bytes.as_ref().map_or(u64::MAX, |limit| limit.bucket.limit().units(2 * limit.patience));
        let share = Arc::new(Share::new(pool.clone(), most));
        let queues = (0..queues).map(|_| Mutex::new(Queue::new(share.clone())));
        Self { frames, bytes, cut: clock::to_ticks(CUT), queues: queues.collect() }
    }

    /// Decides on `frames`, for which `act` does what has to be done; it returns how many of those
    /// that may pass the receiver took. Returns how many are done with: the others wait where they
    /// are.
    pub(super) fn pass(
        &self,
        queue: usize,
        frames: &[Frame<'_>],
        mut act: impl FnMut(Step<'_, '_>) -> usize,
    ) -> usize {
        let mut queue = lock(&self.queues[queue]);
        if queue.is_blocked {
            return 0;
        }
        let now = clock::ticks();
        let count = if queue.waiting.is_empty() { self.at_once(frames, now) } else { 0 };
        let (first, rest) = frames.split_at(count);
        if count > 0 {
            let taken = act(Step::Pass(first));
            if taken < count {
                // The frames behind have not been tried yet.
                self.give_back(&first[taken..]);
                return taken;
            }
        }
        let Queue { waiting, finisher, .. } = &mut *queue;
        for frame in rest {
            let mut add = |frame: &Frame<'_>| {
                let one = std::slice::from_ref(frame);
                match self.add(waiting, frame, now) {
                    true => act(Step::Wait(one)),
                    false => act(Step::Drop(one)),
                };
            };
            let whole = !self.must_cut(frame) || {
                let finisher = finisher.get_or_insert_default();
                let finished = finisher.finish(frame, 0, FRAME_LIMIT, |segments| {
                    segments.iter().for_each(&mut add);
                    segments.len()
                });
                finished != Finished::All
            };
            // No receiver takes a packet that cannot be cut.
            if whole {
                add(frame);
            }
        }
        frames.len()
    }

    /// Passes the frames whose time has come by the tick `now` to `take`, which returns how many it
    /// took; the others wait for the receiver.
    pub(super) fn release(
        &self,
        queue: usize,
        now: u64,
        take: impl FnMut(&[Frame<'_>]) -> usize,
    ) -> Released {
        let mut queue = lock(&self.queues[queue]);
        let (frames, all) = queue.waiting.release(now, take);
        queue.is_blocked = !all;
        let is_empty = queue.waiting.is_empty();
        queue.is_listed &= !is_empty;
        Released { frames, is_blocked: !all, is_empty }
    }

    /// Returns the tick at which a frame of the queue may pass; `None` if none waits for its time.
    pub(super) fn next(&self, queue: usize) -> Option<u64> {
        let queue = self.queue(queue);
        queue.waiting.next().filter(|_| !queue.is_blocked)
    }

    /// Returns true if frames wait in the queue, unless it has returned that since they do.
    pub(super) fn list(&self, queue: usize) -> bool {
        let mut queue = self.queue(queue);
        let is_new = !queue.is_listed && !queue.waiting.is_empty();
        queue.is_listed |= is_new;
        is_new
    }

    /// Returns true if frames wait in the queue.
    pub(super) fn is_waiting(&self, queue: usize) -> bool {
        !self.queue(queue).waiting.is_empty()
    }

    fn queue(&self, queue: usize) -> MutexGuard<'_, Queue> {
        lock(&self.queues[queue])
    }

    /// Returns how many of `frames`, from the first one on, may pass now; they are counted as
    /// passed.
    fn at_once(&self, frames: &[Frame<'_>], now: u64) -> usize {
        let passes =
            |frame: &&Frame<'_>| !self.must_cut(frame) && self.reserve(frame, now, |_| 0).is_some();
        frames.iter().take_while(passes).count()
    }

    /// Makes a frame wait; returns false if it would have to wait for too long.
    fn add(&self, waiting: &mut Waiting, frame: &Frame<'_>, now: u64) -> bool {
        let Some(from) = self.reserve(frame, now, |limit| limit.patience) else { return false };
        let is_there = waiting.push(frame, from);
        if !is_there {
            self.give_back(std::slice::from_ref(frame));
        }
        is_there
    }

    /// Counts a frame as passed; returns the tick from which it may pass.
    fn reserve(
        &self,
        frame: &Frame<'_>,
        now: u64,
        patience: impl Fn(&Limit) -> u64,
    ) -> Option<u64> {
        let reserve = |limit: &Option<Limit>, units| match limit {
            Some(limit) => limit.bucket.reserve(units, now, patience(limit)),
            None => Some(0),
        };
        let by_frames = reserve(&self.frames, 1)?;
        let by_bytes = reserve(&self.bytes, frame.len() as u64);
        if let (None, Some(limit)) = (by_bytes, &self.frames) {
            limit.bucket.refund(1);
        }
        Some(by_bytes?.max(by_frames))
    }

    fn give_back(&self, frames: &[Frame<'_>]) {
        if let Some(limit) = &self.frames {
            limit.bucket.refund(frames.len() as u64);
        }
        if let Some(limit) = &self.bytes {
            limit.bucket.refund(bytes(frames));
        }
    }

    fn must_cut(&self, frame: &Frame<'_>) -> bool {
        frame.has_offload()
            && frame.offload().segment().is_some()
            && self
                .bytes
                .as_ref()
                .is_some_and(|b| b.bucket.limit().ticks(frame.len() as u64) > self.cut)
    }
}

/// Returns the total bytes of the frames.
#[inline]
pub(super) fn bytes(frames: &[Frame<'_>]) -> u64 {
    frames.iter().map(|frame| frame.len() as u64).sum()
}

impl Queue {
    fn new(share: Arc<Share>) -> Self {
        let waiting = Waiting::new(share);
        Self { waiting, finisher: None, is_blocked: false, is_listed: false }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use dray_wire::offload::Offload;

    use super::super::pool::PORT_MAX;
    use super::*;

    /// A TCP packet of 45 segments of 1448 bytes, over IPv4.
    fn packet() -> Vec<u8> {
        let mut packet = vec![0; 14 + 20 + 32 + 45 * 1448];
        packet[12..14].copy_from_slice(&[8, 0]);
        let len = (packet.len() - 14) as u16;
        packet[14..34].copy_from_slice(&[
            0x45,
            0,
            (len >> 8) as u8,
            len as u8,
            0,
            1,
            0,
            0,
            64,
            6,
            0,
            0,
            10,
            0,
            0,
            1,
            10,
            0,
            0,
            2,
        ]);
        packet[46] = 8 << 4;
        packet
    }

    fn count(shaper: &Shaper, frame: Frame<'_>) -> [usize; 3] {
        let mut steps = [0; 3];
        shaper.pass(0, &[frame], |step| {
            let (index, frames) = match step {
                Step::Pass(frames) => (0, frames),
                Step::Wait(frames) => (1, frames),
                Step::Drop(frames) => (2, frames),
            };
            steps[index] += frames.len();
            frames.len()
        });
        steps
    }

    fn shaper(rate: &str) -> Shaper {
        Shaper::new(rate.parse().unwrap(), Burst::default(), 2, &Arc::default())
    }

    #[test]
    fn long_packet_is_cut_at_a_low_rate_only() {
        let bytes = packet();
        let offload = Offload::Tcp(NonZeroU16::new(1448).unwrap());
        let frame = Frame::with_offload(&bytes, offload);
        assert_eq!(count(&shaper("100Mbit"), frame), [1, 0, 0]);
        assert_eq!(count(&shaper("1kpps"), frame), [1, 0, 0]);
        let low = shaper("10Mbit");
        assert_eq!(count(&low, frame), [0, 45, 0]);
        let [passed, waits, dropped] = count(&low, frame);
        // 72 KiB in all, and 10 ms at the rate.
        assert_eq!((passed, waits + dropped), (0, 45));
        assert!((8..20).contains(&waits), "{waits}");
        // One whose headers are wrong is left to the receiver.
        let wrong = vec![0; bytes.len()];
        assert_eq!(count(&shaper("10Mbit"), Frame::with_offload(&wrong, offload)), [0, 1, 0]);
    }

    #[test]
    fn memory_bounds_what_waits() {
        let shaper = shaper("10Gbit/1us");
        let frame = [0; 9000];
        let most = 30 * PORT_MAX / 9000;
        let sum = |sum: [usize; 3], new: [usize; 3]| [0, 1, 2].map(|i| sum[i] + new[i]);
        let steps = (0..most).map(|_| count(&shaper, Frame::from(&frame[..])));
        let [_, waits, dropped] = steps.fold([0; 3], sum);
        assert!(waits <= PORT_MAX / 9000 && waits + dropped > 0, "{waits} {dropped}");
    }

    #[test]
    fn worker_learns_once_that_frames_wait() {
        let shaper = shaper("1kpps/1ms");
        let frame = [0; 60];
        assert_eq!(count(&shaper, Frame::from(&frame[..])), [1, 0, 0]);
        assert!(!shaper.list(0) && shaper.next(0).is_none());
        assert_eq!(count(&shaper, Frame::from(&frame[..])), [0, 1, 0]);
        assert!(shaper.list(0) && !shaper.list(0) && !shaper.list(1));
        let next = shaper.next(0).unwrap();
        assert_eq!(shaper.release(0, next - 1, |frames| frames.len()).frames, 0);
        let blocked = shaper.release(0, next, |_| 0);
        assert!(blocked.is_blocked && !blocked.is_empty && shaper.next(0).is_none());
        assert_eq!(shaper.pass(0, &[Frame::from(&frame[..])], |_| 1), 0);
        let released = shaper.release(0, next, |frames| frames.len());
        assert!(released.frames == 1 && released.is_empty && !released.is_blocked);
        assert!(!shaper.list(0));
    }

    /// However long one frame takes at the rate.
    #[test]
    fn frame_waits_for_at_most_a_second() {
        let second = clock::ticks_per_second();
        for (rate, len) in [("8kbit", 1514), ("1kbit", 60), ("1kbit", 9014), ("1pps", 60)] {
            let shaper = shaper(rate);
            let bytes = vec![0; len];
            let mut waits = 0;
            for _ in 0..40 {
                waits += count(&shaper, Frame::from(&bytes[..]))[1];
            }
            let all = shaper.release(0, clock::ticks() + second, |frames| frames.len());
            assert_eq!((all.frames, all.is_empty), (waits, true), "{rate} {len}");
        }
    }
}
