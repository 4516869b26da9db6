//! Transmission: each frame is taken by a queue, waits for the rate of the port, or is dropped.

use std::sync::atomic::Ordering::Relaxed;

use dray_datapath::lock;
use dray_port::{Finished, Frame, Loss};

use super::OpenPort;
use crate::config::Flow;
use crate::counters::DropReason;
use crate::path::shaper::{Released, Step};

/// Fate of frames that a port was to transmit.
#[derive(Clone, Copy)]
pub(in crate::path) enum Fate {
    Sent,
    /// They wait for the rate of the port.
    Delayed,
    Dropped(DropReason),
}

/// Result of a transmission.
pub(in crate::path) struct Outcome {
    /// Number of frames, from the first one on, that are done with. The receiver had no room for
    /// the others.
    pub(in crate::path) done: usize,
    /// True if frames of the worker wait at the port since this transmission.
    pub(in crate::path) waits: bool,
}

/// Receives the fate of frames. Of a frame that is segmented, these are the segments sent.
type Account<'a> = dyn FnMut(Fate, &[Frame<'_>]) + 'a;

/// Treatment of a frame that is to be transmitted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Treatment {
    Send,
    /// The port does not take over its offload.
    Finish,
    /// It is too long.
    Drop,
}

impl OpenPort {
    /// Transmits `frames` for the worker `worker`, and passes their fates to `account`.
    #[inline]
    pub(in crate::path) fn transmit(
        &self,
        worker: usize,
        frames: &[Frame<'_>],
        mut account: impl FnMut(Fate, &[Frame<'_>]),
    ) -> Outcome {
        if self.is_plain && self.rests.load(Relaxed) == 0 && !have_offloads(frames) {
            return Outcome { done: self.send(worker, frames, &mut account), waits: false };
        }
        self.transmit_limited(worker, frames, &mut account)
    }

    /// Transmits the frames that may go now; the others wait, or are dropped.
    #[inline(never)]
    fn transmit_limited(
        &self,
        worker: usize,
        frames: &[Frame<'_>],
        account: &mut Account<'_>,
    ) -> Outcome {
        let mut waits = false;
        let Some(rate) = &self.rate_out else {
            let done = self.transmit_now(worker, frames, &mut waits, account);
            return Outcome { done, waits };
        };
        let done = rate.pass(worker, frames, |step| {
            let (fate, frames) = match step {
                Step::Pass(frames) => {
                    return self.transmit_now(worker, frames, &mut waits, account);
                }
                Step::Wait(frames) => (Fate::Delayed, frames),
                Step::Drop(frames) => (Fate::Dropped(DropReason::PolicedOut), frames),
            };
            account(fate, frames);
            frames.len()
        });
        Outcome { done, waits: waits | rate.list(worker) }
    }

    /// Transmits frames of any length and with any offload; returns how many are done with. Sets
    /// `waits` if segments of the last of these wait.
    fn transmit_now(
        &self,
        worker: usize,
        frames: &[Frame<'_>],
        waits: &mut bool,
        account: &mut Account<'_>,
    ) -> usize {
        let offloads = self.tx.of(worker).offloads();
        let treatment = |frame: &Frame<'_>| match frame.has_offload() {
            true if offloads.always_handle(frame.offload()) => Treatment::Send,
            true => Treatment::Finish,
            // A longer frame may still be accepted if it has a VLAN tag.
            false if frame.len() <= self.frame_max || self.tx.of(worker).accepts(frame) => {
                Treatment::Send
            }
            false => Treatment::Drop,
        };
        let mut done = 0;
        for run in frames.chunk_by(|a, b| treatment(a) == treatment(b)) {
            if !self.finish_rest(worker, account) {
                break;
            }
            let taken = match treatment(&run[0]) {
                Treatment::Send => self.send(worker, run, account),
                Treatment::Finish => self.finish(worker, run, waits, account),
                Treatment::Drop => {
                    account(Fate::Dropped(DropReason::TooLong), run);
                    run.len()
                }
            };
            done += taken;
            if taken < run.len() {
                break;
            }
        }
        done
    }

    /// Hands frames to the worker's queue; returns how many it took, or can never take.
    #[inline]
    fn send<A: FnMut(Fate, &[Frame<'_>]) + ?Sized>(
        &self,
        worker: usize,
        frames: &[Frame<'_>],
        account: &mut A,
    ) -> usize {
        let mut queue = self.tx.of(worker);
        let taken = match queue.transmit(frames) {
            Ok(taken) => taken,
            Err(error) => {
                drop(queue);
                self.failed(&error);
                account(Fate::Dropped(DropReason::ReceiverNotReady), frames);
                return frames.len();
            }
        };
        let lost = queue.lost();
        if !lost.of_call().is_empty() {
            let lost = lost.clone();
            drop(queue);
            // Without effect on the other frames or on the port.
            lost.each_run(&frames[..taken], |frames, why| match why {
                None => self.sent(frames, account),
                Some(Loss::TooLong) => account(Fate::Dropped(DropReason::TooLong), frames),
                Some(Loss::Undeliverable) => {
                    account(Fate::Dropped(DropReason::Undeliverable), frames);
                }
            });
            return taken;
        }
        drop(queue);
        if taken > 0 {
            self.sent(&frames[..taken], account);
        }
        taken
    }

    #[inline]
    fn sent<A: FnMut(Fate, &[Frame<'_>]) + ?Sized>(&self, frames: &[Frame<'_>], account: &mut A) {
        account(Fate::Sent, frames);
        self.recovered();
    }

    /// Segments frames, writes their checksums, and transmits what they become. Returns how many
    /// are done with; if the rest of the last one waits for the peer, others are not tried.
    #[cold]
    fn finish(
        &self,
        worker: usize,
        frames: &[Frame<'_>],
        waits: &mut bool,
        account: &mut Account<'_>,
    ) -> usize {
        let mut finishing = lock(&self.finishing[worker]);
        for (done, frame) in frames.iter().enumerate() {
            let take = |segments: &[Frame<'_>]| self.send(worker, segments, account);
            let reason = match finishing.finish(frame, self.frame_max, take) {
                Finished::All => continue,
                Finished::Some { taken, .. }
                    if taken > 0 && self.flow(worker) == Flow::Backpressure =>
                {
                    finishing.keep(frame, taken);
                    self.rests.fetch_add(1, Relaxed);
                    *waits = true;
                    return done + 1;
                }
                Finished::Some { .. } => return done,
                Finished::Invalid => DropReason::Undeliverable,
                Finished::TooLong => DropReason::TooLong,
            };
            account(Fate::Dropped(reason), &frames[done..=done]);
        }
        frames.len()
    }

    /// Transmits the segments left of a packet of which some were taken; returns false if some are
    /// still left.
    fn finish_rest(&self, worker: usize, account: &mut Account<'_>) -> bool {
        self.rests.load(Relaxed) == 0 || {
            let mut finishing = lock(&self.finishing[worker]);
            let take = |segments: &[Frame<'_>]| self.send(worker, segments, account);
            let had_rest = finishing.has_rest();
            let is_done = finishing.finish_rest(self.frame_max, take);
            self.rests.fetch_sub(usize::from(had_rest && is_done), Relaxed);
            is_done
        }
    }

    /// Transmits those of the worker's frames that have waited for their time by the tick `now`.
    #[cold]
    pub(in crate::path) fn release(
        &self,
        worker: usize,
        now: u64,
        account: &mut Account<'_>,
    ) -> Released {
        self.release_as(self.flow(worker), worker, now, account)
    }

    /// Transmits all of the worker's frames that wait; those that the peer does not take are
    /// dropped.
    #[cold]
    pub(in crate::path) fn flush(&self, worker: usize, account: &mut Account<'_>) {
        self.release_as(Flow::Drop, worker, u64::MAX, account);
    }

    fn release_as(
        &self,
        flow: Flow,
        worker: usize,
        now: u64,
        account: &mut Account<'_>,
    ) -> Released {
        self.finish_rest(worker, account);
        let mut released = Released::NOTHING;
        if let Some(rate) = &self.rate_out {
            released = rate.release(worker, now, |frames| {
                // The port is among those at which frames wait.
                let taken = self.transmit_now(worker, frames, &mut false, account);
                if taken < frames.len() && flow == Flow::Drop {
                    account(self.refusal(worker), &frames[taken..]);
                    return frames.len();
                }
                taken
            });
        }
        let mut finishing = lock(&self.finishing[worker]);
        if flow == Flow::Drop && finishing.has_rest() {
            finishing.forget_rest(|frames| account(self.refusal(worker), frames));
            self.rests.fetch_sub(1, Relaxed);
        }
        let has_rest = finishing.has_rest();
        released.is_blocked |= has_rest;
        released.is_empty &= !has_rest;
        released
    }

    /// Returns the treatment of frames that its peer does not take: frames for a mirror do not
    /// delay others, and frames for a peer that has left are not for the next one.
    fn flow(&self, worker: usize) -> Flow {
        let may_wait = self.config.mirror.is_empty() && self.tx.of(worker).is_ready();
        if may_wait { self.flow } else { Flow::Drop }
    }

    /// Returns the fate of frames that the receiver did not take, and that are not transmitted
    /// again.
    pub(in crate::path) fn refusal(&self, worker: usize) -> Fate {
        Fate::Dropped(match self.tx.of(worker).is_ready() {
            true => DropReason::ReceiverFull,
            false => DropReason::ReceiverNotReady,
        })
    }

    /// Returns true if frames of the worker wait.
    pub(in crate::path) fn is_waiting(&self, worker: usize) -> bool {
        self.rate_out.as_ref().is_some_and(|rate| rate.is_waiting(worker))
            || lock(&self.finishing[worker]).has_rest()
    }
}

/// Returns true if some of the frames have an offload.
#[inline]
fn have_offloads(frames: &[Frame<'_>]) -> bool {
    // Without a branch for each: most batches have none.
    frames.iter().fold(false, |some, frame| some | frame.has_offload())
}
