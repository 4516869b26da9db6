//! A port as the workers use it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use dray_datapath::{Bucket, Limit, TransmitQueues, lock};
use dray_port::{BypassEntry, FRAME_LIMIT, Fill, Finished, Frame, Loss, Lost, Receive};
use dray_service::PortEnd;

use super::finishing::Finishing;
use super::ledger::{self, BEFORE, LOST};
use super::pool::Pool;
use super::setting::Setting;
use super::shaper::{Released, Shaper, Step};
use super::tally::Tally;
use super::vlans::Vlans;
use crate::config::{Flow, FrameRate, PortConfig, Rate};
use crate::counters::{Counters, DropReason, Ledger};

/// Number of frames that a `storm` limit lets pass at once at any rate.
const STORM_LEAST: u64 = 32;

/// An open port. Each receiving half belongs to one worker; the transmitting halves are shared, and
/// locked for the duration of a batch.
pub(super) struct OpenPort {
    pub(super) index: u16,
    /// Number of the port in captures.
    pub(super) number: u16,
    pub(super) config: PortConfig,
    pub(super) vlans: Vlans,
    pub(super) rx: Vec<ReceiveHalf>,
    tx: TransmitQueues,
    pub(super) end: PortEnd,
    /// Length of the longest frame that it transmits, in bytes, without a VLAN tag.
    frame_max: usize,
    /// Treatment of frames that the peers of the switch's ports do not take.
    flow: Flow,
    /// Memory of the frames that wait for its rates.
    pool: Arc<Pool>,
    /// True if it transmits any frame: no frame is too long for it, and it has no rate.
    is_plain: bool,
    /// True if frames from addresses that are not its own are dropped.
    pub(super) spoof_check: bool,
    /// Maximum rate that its peer may send.
    pub(super) rate_in: Option<Shaper>,
    /// Maximum rate that its peer is sent.
    pub(super) rate_out: Option<Shaper>,
    /// Limit on flooding its peer's frames.
    pub(super) floods: Option<Bucket>,
    /// Limit on learning its peer's addresses.
    pub(super) learns: Option<Bucket>,
    /// By worker.
    finishing: Vec<Mutex<Finishing>>,
    /// Counters as published.
    pub(super) ledger: Ledger,
    /// Frames that the receiving halves had dropped when a switch before handed over, which its
    /// counters contain.
    lost_before: [AtomicU64; 2],
    failure: Failure,
}

/// Action of a port on a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Passage {
    Fits,
    TooLong,
    /// It has an offload.
    Offloaded,
}

/// Reason for a port's failure, if it has failed and no frame has passed since.
#[derive(Default)]
struct Failure {
    is_there: AtomicBool,
    why: Mutex<Option<String>>,
}

/// A receiving half, and the worker that it belongs to. Control threads access it as well, which is
/// why it is locked.
pub(super) struct ReceiveHalf {
    pub(super) worker: usize,
    pub(super) port: Mutex<Box<dyn Receive>>,
    /// A duplicate of its event descriptor, so that a worker sleeps on it without holding the lock.
    pub(super) event: Option<OwnedFd>,
}

impl OpenPort {
    /// Creates a port; `workers` gives the worker of each receiving half.
    pub(super) fn new(
        index: u16,
        config: PortConfig,
        port: dray_port::Port,
        workers: &[usize],
        (worker_count, setting): (usize, &Setting),
    ) -> io::Result<Self> {
        let end = PortEnd::new(&port)?;
        let tx = TransmitQueues::new(port.tx);
        let frame_max = tx.frame_max();
        let half = |(rx, worker): (Box<dyn Receive>, &usize)| {
            let event = rx.event().map(|event| event.try_clone_to_owned()).transpose()?;
            Ok(ReceiveHalf { worker: *worker, port: Mutex::new(rx), event })
        };
        let open = Self {
            index,
            number: 0,
            is_plain: false,
            spoof_check: false,
            rate_in: None,
            rate_out: None,
            floods: None,
            learns: None,
            vlans: Vlans::new(&config.vlan),
            config: config.clone(),
            rx: port.rx.into_iter().zip(workers).map(half).collect::<io::Result<_>>()?,
            tx,
            end,
            frame_max,
            flow: setting.flow,
            pool: setting.pool.clone(),
            finishing: (0..worker_count).map(|_| Mutex::default()).collect(),
            ledger: Ledger::new(ledger::worker(worker_count))?,
            lost_before: Default::default(),
            failure: Failure::default(),
        };
        Ok(open.configured(config))
    }

    /// Gives the port other keys; its URI stays.
    pub(super) fn configured(self, config: PortConfig) -> Self {
        let burst = config.burst.unwrap_or_default();
        let shaper = |rate: Option<Rate>, queues| {
            rate.map(|rate| Shaper::new(rate, burst, queues, &self.pool))
        };
        let limit = |rate: FrameRate| Limit::new(rate.per_second() as f64, burst.time());
        let storm = || config.storm.map(|rate| Bucket::new(limit(rate).at_least(STORM_LEAST)));
        Self {
            is_plain: self.frame_max >= FRAME_LIMIT && config.rate_out.is_none(),
            spoof_check: config.spoof_check,
            rate_in: shaper(config.rate_in, self.rx.len()),
            rate_out: shaper(config.rate_out, self.finishing.len()),
            floods: storm(),
            learns: storm(),
            vlans: Vlans::new(&config.vlan),
            config,
            ..self
        }
    }

    /// Transmits `frames` for the worker `worker`; returns how many were taken, or can never be.
    #[inline]
    pub(super) fn transmit(&self, worker: usize, frames: &[Frame<'_>], tally: &mut Tally) -> usize {
        if self.is_plain && tally.backlog.is_empty() && !have_offloads(frames) {
            return self.transmit_all(worker, frames, tally);
        }
        match &self.rate_out {
            None => self.transmit_short(worker, frames, tally),
            Some(rate) => self.transmit_shaped(rate, worker, frames, tally),
        }
    }

    /// Transmits the frames that may go now; the others wait, or are dropped.
    fn transmit_shaped(
        &self,
        rate: &Shaper,
        worker: usize,
        frames: &[Frame<'_>],
        tally: &mut Tally,
    ) -> usize {
        let done = rate.pass(worker, frames, |step| match step {
            Step::Pass(frames) => self.transmit_short(worker, frames, tally),
            Step::Wait(frames) => {
                tally.of(self.index).delayed_out += frames.len() as u64;
                frames.len()
            }
            Step::Drop(frames) => {
                tally.dropped(self, DropReason::PolicedOut, frames);
                frames.len()
            }
        });
        if rate.list(worker) {
            tally.wait_at(self.index);
        }
        done
    }

    /// Passes those of `frames`, received on the queue `queue`, that may go on now to `forward`, which
    /// returns how many are done with; the others wait, or are dropped. Returns how many of all are
    /// done with.
    #[inline(never)]
    pub(super) fn shape_in(
        &self,
        rate: &Shaper,
        queue: usize,
        frames: &[Frame<'_>],
        tally: &mut Tally,
        mut forward: impl FnMut(&[Frame<'_>], &mut Tally) -> usize,
    ) -> usize {
        rate.pass(queue, frames, |step| match step {
            Step::Pass(frames) => forward(frames, tally),
            Step::Wait(frames) => {
                tally.of(self.index).delayed_in += frames.len() as u64;
                frames.len()
            }
            Step::Drop(frames) => {
                tally.dropped(self, DropReason::PolicedIn, frames);
                frames.len()
            }
        })
    }

    /// Transmits those of the worker's frames that have waited for their time by the tick `now`.
    #[cold]
    pub(super) fn release(&self, worker: usize, now: u64, tally: &mut Tally) -> Released {
        self.release_as(self.flow(worker), worker, now, tally)
    }

    /// Transmits all of the worker's frames that wait; those that the peer does not take are dropped.
    #[cold]
    pub(super) fn flush(&self, worker: usize, tally: &mut Tally) {
        self.release_as(Flow::Drop, worker, u64::MAX, tally);
    }

    fn release_as(&self, flow: Flow, worker: usize, now: u64, tally: &mut Tally) -> Released {
        self.finish_rest(worker, tally);
        let mut released = Released::NOTHING;
        if let Some(rate) = &self.rate_out {
            released = rate.release(worker, now, |frames| {
                let taken = self.transmit_short(worker, frames, tally);
                if taken < frames.len() && flow == Flow::Drop {
                    self.refused(worker, &frames[taken..], tally);
                    return frames.len();
                }
                taken
            });
        }
        let mut finishing = lock(&self.finishing[worker]);
        if flow == Flow::Drop {
            finishing.forget_rest(|frames| self.refused(worker, frames, tally));
        }
        let has_rest = finishing.has_rest();
        released.is_blocked |= has_rest;
        released.is_empty &= !has_rest;
        released
    }

    /// Returns the treatment of frames that its peer does not take: a mirror holds up no others, and
    /// frames for a peer that has left are not for the next one.
    fn flow(&self, worker: usize) -> Flow {
        let may_wait = self.config.mirror.is_empty() && self.tx.of(worker).is_ready();
        if may_wait { self.flow } else { Flow::Drop }
    }

    /// Returns true if frames of the worker wait.
    pub(super) fn is_waiting(&self, worker: usize) -> bool {
        self.rate_out.as_ref().is_some_and(|rate| rate.is_waiting(worker))
            || lock(&self.finishing[worker]).has_rest()
    }

    #[inline]
    fn transmit_all(&self, worker: usize, frames: &[Frame<'_>], tally: &mut Tally) -> usize {
        let mut queue = self.tx.of(worker);
        let taken = match queue.transmit(frames) {
            Ok(taken) => taken,
            Err(error) => {
                drop(queue);
                self.failed(&error);
                tally.dropped(self, DropReason::ReceiverNotReady, frames);
                return frames.len();
            }
        };
        let lost = queue.lost();
        if !lost.of_call().is_empty() {
            let lost = lost.clone();
            drop(queue);
            self.transmitted_some(&lost, &frames[..taken], tally);
            return taken;
        }
        drop(queue);
        if taken > 0 {
            tally.transmitted(self, &frames[..taken]);
            self.recovered();
        }
        taken
    }

    /// Accounts for frames that were taken, and of which some are lost, without effect on the rest or on
    /// the port.
    #[cold]
    fn transmitted_some(&self, lost: &Lost, taken: &[Frame<'_>], tally: &mut Tally) {
        lost.each_run(taken, |frames, why| match why {
            None => {
                tally.transmitted(self, frames);
                self.recovered();
            }
            Some(Loss::TooLong) => tally.dropped(self, DropReason::TooLong, frames),
            Some(Loss::Undeliverable) => tally.dropped(self, DropReason::Undeliverable, frames),
        });
    }

    /// Like [`transmit`](Self::transmit), for a port that may not take frames of every length.
    #[cold]
    fn transmit_short(&self, worker: usize, frames: &[Frame<'_>], tally: &mut Tally) -> usize {
        if !self.finish_rest(worker, tally) {
            return 0;
        }
        if self.frame_max >= FRAME_LIMIT && !have_offloads(frames) {
            return self.transmit_all(worker, frames, tally);
        }
        let passage = |frame: &Frame<'_>| match frame.has_offload() {
            true => Passage::Offloaded,
            false if frame.len() <= self.frame_max => Passage::Fits,
            // A longer frame may still be accepted if it has a VLAN tag.
            false if self.tx.of(worker).accepts(frame) => Passage::Fits,
            false => Passage::TooLong,
        };
        let mut done = 0;
        for run in frames.chunk_by(|a, b| passage(a) == passage(b)) {
            if !self.finish_rest(worker, tally) {
                break;
            }
            let taken = match passage(&run[0]) {
                Passage::Fits => self.transmit_all(worker, run, tally),
                Passage::Offloaded => self.transmit_offloaded(worker, run, tally),
                Passage::TooLong => {
                    tally.dropped(self, DropReason::TooLong, run);
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

    /// Transmits frames that have an offload: as they are, if the port takes it over.
    fn transmit_offloaded(&self, worker: usize, frames: &[Frame<'_>], tally: &mut Tally) -> usize {
        let offloads = self.tx.of(worker).offloads();
        let carried = |frame: &Frame<'_>| offloads.always_handle(frame.offload());
        let mut done = 0;
        for run in frames.chunk_by(|a, b| carried(a) == carried(b)) {
            if !self.finish_rest(worker, tally) {
                break;
            }
            let taken = match carried(&run[0]) {
                true => self.transmit_all(worker, run, tally),
                false => self.finish(worker, run, tally),
            };
            done += taken;
            if taken < run.len() {
                break;
            }
        }
        done
    }

    /// Segments frames, writes their checksums, and transmits what they become. Returns how many are
    /// done with; if the rest of the last one waits for the peer, others are not tried.
    #[cold]
    fn finish(&self, worker: usize, frames: &[Frame<'_>], tally: &mut Tally) -> usize {
        let mut finishing = lock(&self.finishing[worker]);
        for (done, frame) in frames.iter().enumerate() {
            let one = &frames[done..=done];
            let take = |segments: &[Frame<'_>]| self.transmit_all(worker, segments, tally);
            match finishing.finish(frame, self.frame_max, take) {
                Finished::All => {}
                Finished::Some { taken, .. }
                    if taken > 0 && self.flow(worker) == Flow::Backpressure =>
                {
                    finishing.keep(frame, taken);
                    tally.wait_at(self.index);
                    return done + 1;
                }
                Finished::Some { .. } => return done,
                Finished::Invalid => tally.dropped(self, DropReason::Undeliverable, one),
                Finished::TooLong => tally.dropped(self, DropReason::TooLong, one),
            }
        }
        frames.len()
    }

    /// Transmits the segments left of a packet of which some were taken; returns false if some are
    /// still left.
    #[inline]
    fn finish_rest(&self, worker: usize, tally: &mut Tally) -> bool {
        // Ports with such a packet are in the backlog.
        tally.backlog.is_empty() || {
            let take = |segments: &[Frame<'_>]| self.transmit_all(worker, segments, tally);
            lock(&self.finishing[worker]).finish_rest(self.frame_max, take)
        }
    }

    /// Records why the port failed, until a frame passes again.
    #[cold]
    pub(super) fn failed(&self, error: &io::Error) {
        *lock(&self.failure.why) = Some(error.to_string());
        self.failure.is_there.store(true, Relaxed);
    }

    /// Clears a failure; called when frames have passed.
    #[inline]
    pub(super) fn recovered(&self) {
        if self.failure.is_there.load(Relaxed) {
            self.failure.is_there.store(false, Relaxed);
            *lock(&self.failure.why) = None;
        }
    }

    /// Returns why it failed, if no frame has passed since.
    pub(super) fn failure(&self) -> Option<String> {
        lock(&self.failure.why).clone()
    }

    /// Counts frames that the receiver did not take, and that are not transmitted again.
    pub(super) fn refused(&self, worker: usize, frames: &[Frame<'_>], tally: &mut Tally) {
        let ready = self.tx.of(worker).is_ready();
        let reason = if ready { DropReason::ReceiverFull } else { DropReason::ReceiverNotReady };
        tally.dropped(self, reason, frames);
    }

    /// Makes the workers, none of which uses the port, count from zero, on top of `before`; without it,
    /// of what they have counted.
    pub(super) fn count_from(&self, before: Option<Counters>) {
        let sum = before.unwrap_or_else(|| self.counted_here());
        let counted = self.ledger.get(LOST).drops;
        for ((reason, frames), before) in self.lost().into_iter().zip(&self.lost_before) {
            // A number that cannot be read any more is at least what was counted of it.
            before.store(frames.max(before.load(Relaxed) + counted.get(reason)), Relaxed);
        }
        let workers = (0..self.finishing.len()).map(ledger::worker);
        workers.chain([LOST]).for_each(|of| self.ledger.set(of, &Counters::default()));
        self.ledger.set(BEFORE, &sum);
    }

    /// Returns the number of frames that never reached a worker, by reason.
    fn lost(&self) -> [(DropReason, u64); 2] {
        let (mut missed, mut malformed) = (0, 0);
        for half in &self.rx {
            let port = lock(&half.port);
            missed += port.missed().unwrap_or(0);
            malformed += port.refused();
        }
        [(DropReason::Missed, missed), (DropReason::Malformed, malformed)]
    }

    /// Makes workers take only frames that have left the kernel already (`true`), or all. Returns true if
    /// there are such frames.
    pub(super) fn drain(&self, on: bool) -> bool {
        // Every half drains, so `fold` does not stop at the first one.
        self.rx.iter().fold(false, |any, half| lock(&half.port).drain(on) | any)
    }

    /// Returns the number of its page in the state for another process.
    pub(super) fn number_of_page(&self) -> u64 {
        self.index.into()
    }

    /// Returns how full the rings are on which it receives and those on which it transmits.
    pub(super) fn fills(&self) -> [Option<Fill>; 2] {
        let receive = self.rx.iter().map(|half| lock(&half.port).fill());
        [Fill::sum(receive), self.tx.fill()]
    }

    /// Returns its entry in a bypass, if it has one.
    pub(super) fn bypass(&self) -> Option<&BypassEntry> {
        self.end.link.as_ref()?.bypass()
    }

    /// Returns the counters, summed over all workers, and what bypassed them.
    pub(super) fn counted(&self) -> Counters {
        let mut sum = self.counted_here();
        let bypassed = self.bypass().map(BypassEntry::bypassed).unwrap_or_default();
        sum.rx_frames += bypassed.from_frames;
        sum.rx_bytes += bypassed.from_bytes;
        sum.tx_frames += bypassed.to_frames;
        sum.tx_bytes += bypassed.to_bytes;
        sum
    }

    /// Returns the counters, summed over all workers.
    fn counted_here(&self) -> Counters {
        self.count_lost();
        self.ledger.sum()
    }

    /// Counts the frames that never reached a worker.
    pub(super) fn count_lost(&self) {
        let mut lost = Counters::default();
        for ((reason, frames), before) in self.lost().into_iter().zip(&self.lost_before) {
            lost.drops.add(reason, frames.saturating_sub(before.load(Relaxed)));
        }
        // A number that cannot be read any more stays as it was.
        self.ledger.raise(LOST, &lost);
    }
}

/// Returns true if some of the frames have an offload.
#[inline]
fn have_offloads(frames: &[Frame<'_>]) -> bool {
    // Without a branch for each: most batches have none.
    frames.iter().fold(false, |some, frame| some | frame.has_offload())
}

/// Returns the total bytes of the frames.
#[inline]
pub(super) fn bytes(frames: &[Frame<'_>]) -> u64 {
    frames.iter().map(|frame| frame.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::num::NonZeroU16;
    use std::os::fd::BorrowedFd;

    use dray_port::{Receive, Take, Transmit, clock, scratch};
    use dray_wire::offload::Offload;

    use super::*;
    use crate::config::SwitchConfig;

    fn setting(flow: Flow) -> Setting {
        Setting::new(&SwitchConfig { flow, ..SwitchConfig::default() })
    }

    /// A queue with room for one frame, if the peer has started it.
    struct Queue {
        started: bool,
        taken: Arc<Mutex<usize>>,
    }

    impl Transmit for Queue {
        fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
            let taken = frames.len().min(usize::from(self.started));
            *lock(&self.taken) += taken;
            Ok(taken)
        }

        fn frame_max(&self) -> usize {
            FRAME_LIMIT
        }

        fn is_ready(&self) -> bool {
            self.started
        }
    }

    /// Lets workers 0 to 3 transmit two frames each; returns the frames taken by queue, and the
    /// drop reasons.
    fn transmitted(started: [bool; 2]) -> ([usize; 2], Vec<DropReason>) {
        let taken = [(); 2].map(|()| Arc::default());
        let queue = |(started, taken): (bool, &Arc<Mutex<usize>>)| -> Box<dyn Transmit> {
            Box::new(Queue { started, taken: taken.clone() })
        };
        let tx = started.into_iter().zip(&taken).map(queue).collect();
        let port = dray_port::Port { rx: Vec::new(), tx, link: None };
        let port =
            OpenPort::new(0, "a=null:".parse().unwrap(), port, &[], (4, &setting(Flow::Drop)))
                .unwrap();
        let frame = Frame::from(&[0; 60][..]);
        let mut tally = Tally::new(1, 0, Arc::default());
        for worker in 0..4 {
            let taken = port.transmit(worker, &[frame; 2], &mut tally);
            port.refused(worker, &[frame; 2][taken..], &mut tally);
        }
        let dropped = tally.of(0).drops.iter().filter(|(_, frames)| *frames > 0);
        (taken.map(|taken| *lock(&taken)), dropped.map(|(reason, _)| reason).collect())
    }

    /// Port to the kernel. Each call returns the next of `results`: the number of frames taken, and
    /// how many of these, the first ones, are lost.
    struct Kernel {
        results: Vec<io::Result<(usize, usize)>>,
        lost: Lost,
    }

    impl Transmit for Kernel {
        fn transmit(&mut self, _: &[Frame<'_>]) -> io::Result<usize> {
            self.lost.begin();
            let (taken, lost) = self.results.remove(0)?;
            (0..lost).for_each(|index| self.lost.add(index, Loss::Undeliverable));
            Ok(taken)
        }

        fn frame_max(&self) -> usize {
            1514
        }

        fn lost(&self) -> &Lost {
            &self.lost
        }
    }

    #[test]
    fn frame_refused_by_kernel_keeps_port_running() {
        let results = vec![
            Ok((4, 1)),
            Ok((2, 2)),
            Err(io::ErrorKind::NetworkDown.into()),
            Ok((1, 1)),
            Ok((4, 0)),
        ];
        let tx: Vec<Box<dyn Transmit>> = vec![Box::new(Kernel { results, lost: Lost::new() })];
        let port = dray_port::Port { rx: Vec::new(), tx, link: None };
        let port =
            OpenPort::new(0, "a=null:".parse().unwrap(), port, &[], (1, &setting(Flow::Drop)))
                .unwrap();
        let mut tally = Tally::new(1, 0, Arc::default());
        let mut seen = Vec::new();
        for _ in 0..5 {
            let taken = port.transmit(0, &[Frame::from(&[0; 60][..]); 4], &mut tally);
            let counters = tally.of(0);
            let drops = [DropReason::Undeliverable, DropReason::ReceiverNotReady]
                .map(|reason| counters.drops.get(reason));
            assert_eq!(counters.tx_bytes, 60 * counters.tx_frames);
            seen.push((taken, counters.tx_frames, drops, port.failure().is_some()));
        }
        let expected = [
            (4, 3, [1, 0], false),
            (2, 3, [3, 0], false),
            (4, 3, [3, 4], true),
            // No frame has passed.
            (1, 3, [4, 4], true),
            (4, 7, [4, 4], false),
        ];
        assert_eq!(seen, expected);
    }

    /// Port that refused two frames, and missed one less than this number. At 0 it cannot tell.
    struct Losing(Arc<AtomicU64>);

    impl Receive for Losing {
        fn receive(&mut self, _: &mut Take<'_>) -> io::Result<usize> {
            Ok(0)
        }

        fn missed(&self) -> io::Result<u64> {
            self.0.load(Relaxed).checked_sub(1).ok_or_else(|| io::ErrorKind::NotFound.into())
        }

        fn refused(&self) -> u64 {
            2
        }

        fn event(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    #[test]
    fn frames_missed_are_not_malformed_and_stay_counted() {
        let missed = Arc::new(AtomicU64::new(4));
        let rx: Vec<Box<dyn Receive>> = vec![Box::new(Losing(missed.clone()))];
        let port = dray_port::Port { rx, tx: Vec::new(), link: None };
        let port =
            OpenPort::new(0, "a=null:".parse().unwrap(), port, &[0], (1, &setting(Flow::Drop)))
                .unwrap();
        let drops = || {
            let drops = port.counted().drops;
            [DropReason::Missed, DropReason::Malformed].map(|reason| drops.get(reason))
        };
        assert_eq!(drops(), [3, 2]);
        // The interface is removed.
        missed.store(0, Relaxed);
        assert_eq!(drops(), [3, 2]);
        // Other keys do not change what was counted.
        port.count_from(None);
        missed.store(4, Relaxed);
        assert_eq!(drops(), [3, 2]);
    }

    #[test]
    fn first_queue_replaces_queue_not_started() {
        assert_eq!(transmitted([true, true]), ([2, 2], vec![DropReason::ReceiverFull]));
        assert_eq!(transmitted([true, false]), ([4, 0], vec![DropReason::ReceiverFull]));
        assert_eq!(transmitted([false, false]), ([0, 0], vec![DropReason::ReceiverNotReady]));
    }

    /// Length of a segment's payload, and the number of segments of a packet.
    const SEGMENT: usize = 1448;
    const SEGMENTS: usize = 45;

    /// Returns a TCP packet of [`SEGMENTS`] segments, over IPv4. Its sequence numbers tell `number` and
    /// the segment.
    fn packet(number: usize) -> Vec<u8> {
        let mut packet = vec![0; 14 + 20 + 32 + SEGMENTS * SEGMENT];
        let len = (packet.len() - 14) as u16;
        packet[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
        packet[16..18].copy_from_slice(&len.to_be_bytes());
        packet[22..24].copy_from_slice(&[64, 6]);
        packet[38..42].copy_from_slice(&((number * SEGMENTS * SEGMENT) as u32).to_be_bytes());
        packet[46] = 8 << 4;
        packet
    }

    /// A queue with room for some frames, which takes over no offload.
    #[derive(Clone, Default)]
    struct Narrow {
        room: Arc<Mutex<usize>>,
        has_left: Arc<AtomicBool>,
        /// Numbers of the segments taken, over all packets.
        seen: Arc<Mutex<Vec<usize>>>,
    }

    impl Transmit for Narrow {
        fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
            let mut room = lock(&self.room);
            let taken = frames.len().min(*room);
            *room -= taken;
            for frame in &frames[..taken] {
                let bytes = frame.bytes(&mut scratch()).to_vec();
                assert_eq!(bytes.len(), 14 + 20 + 32 + SEGMENT);
                let sequence = u32::from_be_bytes(bytes[38..42].try_into().unwrap());
                lock(&self.seen).push(sequence as usize / SEGMENT);
            }
            Ok(taken)
        }

        fn frame_max(&self) -> usize {
            1514
        }

        fn is_ready(&self) -> bool {
            !self.has_left.load(Relaxed)
        }
    }

    /// Frames wait for the port's rate, and segments for room, when its peer leaves.
    #[test]
    fn next_peer_gets_nothing_that_waited_for_the_one_before() {
        let offload = Offload::Tcp(NonZeroU16::new(SEGMENT as u16).unwrap());
        for limit in ["", ",rate_out=100Mbit/6ms"] {
            let narrow = Narrow::default();
            let tx: Vec<Box<dyn Transmit>> = vec![Box::new(narrow.clone())];
            let port = dray_port::Port { rx: Vec::new(), tx, link: None };
            let config = format!("a=null:{limit}").parse().unwrap();
            let setting = setting(Flow::Backpressure);
            let port = OpenPort::new(0, config, port, &[], (1, &setting)).unwrap();
            let mut tally = Tally::new(1, 0, Arc::default());
            *lock(&narrow.room) = 5;
            let done = (0..3)
                .map(|number| {
                    let bytes = packet(number);
                    port.transmit(0, &[Frame::with_offload(&bytes, offload)], &mut tally)
                })
                .sum::<usize>();
            assert!(done > 0 && port.is_waiting(0), "{limit}");
            narrow.has_left.store(true, Relaxed);
            *lock(&narrow.room) = 0;
            let released = port.release(0, u64::MAX, &mut tally);
            assert!(released.is_empty && !released.is_blocked && !port.is_waiting(0), "{limit}");
            let drops = tally.of(0).drops;
            assert!(drops.get(DropReason::ReceiverNotReady) > 0, "{limit}: {drops:?}");
            narrow.has_left.store(false, Relaxed);
            *lock(&narrow.room) = usize::MAX;
            port.release(0, u64::MAX, &mut tally);
            assert_eq!(lock(&narrow.seen).len(), 5, "{limit}");
        }
    }

    /// Two workers transmit to a port whose peer takes few segments at a time. Each packet leaves whole
    /// and in order, or is dropped and counted.
    #[test]
    fn packets_of_two_workers_leave_whole() {
        let offload = Offload::Tcp(NonZeroU16::new(SEGMENT as u16).unwrap());
        for limit in ["", ",rate_out=100Mbit/6ms", ",rate_out=1Gbit/6ms", ",rate_out=10Gbit/1ms"] {
            let narrow = Narrow::default();
            let tx: Vec<Box<dyn Transmit>> = vec![Box::new(narrow.clone())];
            let port = dray_port::Port { rx: Vec::new(), tx, link: None };
            let config = format!("a=null:{limit}").parse().unwrap();
            let setting = setting(Flow::Backpressure);
            let port = OpenPort::new(0, config, port, &[], (2, &setting)).unwrap();
            let mut tallies = [0, 1].map(|worker| Tally::new(1, worker, Arc::default()));
            let mut random = 1_u64;
            let mut draw = |below: usize| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) as usize % below
            };
            // Each worker has two senders, whose first packet waits until it is done with.
            let mut next = [0, 1, 2, 3];
            while next.iter().sum::<usize>() < 4 * 400 {
                *lock(&narrow.room) = draw(2 * SEGMENTS);
                let sender = draw(4);
                let (worker, bytes) = (sender % 2, packet(next[sender]));
                let frame = Frame::with_offload(&bytes, offload);
                let tally = &mut tallies[worker];
                next[sender] += 4 * port.transmit(worker, &[frame], tally);
                if draw(3) == 0 {
                    port.release(worker, clock::ticks(), tally);
                }
            }
            *lock(&narrow.room) = usize::MAX;
            let mut dropped = 0;
            for (worker, tally) in tallies.iter_mut().enumerate() {
                port.flush(worker, tally);
                dropped += tally.of(0).drops.get(DropReason::PolicedOut) as usize;
                assert!(!port.is_waiting(worker));
            }
            let mut of = HashMap::<usize, Vec<usize>>::new();
            for segment in &*lock(&narrow.seen) {
                of.entry(segment / SEGMENTS).or_default().push(segment % SEGMENTS);
            }
            let whole: Vec<_> = (0..SEGMENTS).collect();
            for (number, segments) in &of {
                assert_eq!(*segments, whole, "{limit}: packet {number}");
            }
            let offered = next.iter().enumerate().map(|(sender, next)| (next - sender) / 4);
            assert_eq!(of.len() + dropped, offered.sum::<usize>(), "{limit}");
            assert!(dropped > 0 || !limit.contains("00Mbit"), "{limit}");
        }
    }

    /// Neither packets that wait for a mirror's rate nor segments hold up the ports that it mirrors.
    #[test]
    fn full_mirror_holds_up_nothing() {
        let narrow = Narrow::default();
        let tx: Vec<Box<dyn Transmit>> = vec![Box::new(narrow.clone())];
        let port = dray_port::Port { rx: Vec::new(), tx, link: None };
        let config = "m=null:,mirror=a,rate_out=100Mbit/6ms".parse().unwrap();
        let setting = setting(Flow::Backpressure);
        let port = OpenPort::new(0, config, port, &[], (1, &setting)).unwrap();
        let mut tally = Tally::new(1, 0, Arc::default());
        let offload = Offload::Tcp(NonZeroU16::new(SEGMENT as u16).unwrap());
        *lock(&narrow.room) = SEGMENTS + 5;
        for number in 0..4 {
            let bytes = packet(number);
            let frames = [Frame::with_offload(&bytes, offload)];
            let taken = port.transmit(0, &frames, &mut tally);
            port.refused(0, &frames[taken..], &mut tally);
        }
        let released = port.release(0, u64::MAX, &mut tally);
        assert!(released.is_empty && !released.is_blocked);
        assert_eq!(lock(&narrow.seen).len(), SEGMENTS + 5);
        assert_eq!(tally.of(0).drops.get(DropReason::ReceiverFull), 3);
    }
}
