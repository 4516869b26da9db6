//! A port as the workers use it.

mod transmit;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use dray_datapath::{Bucket, Limit, TransmitQueues, lock};
use dray_port::{BypassEntry, FRAME_LIMIT, Fill, Receive};
use dray_service::PortEnd;

use super::finishing::Finishing;
use super::pool::Pool;
use super::setting::Setting;
use super::shaper::Shaper;
use super::vlans::Vlans;
use crate::config::{Flow, FrameRate, PortConfig, Rate};
use crate::counters::{Counters, DropReason, SharedCounters};

pub(super) use transmit::{Fate, Outcome};

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
    /// Number of these that have the rest of a packet.
    rests: AtomicUsize,
    /// Published counters; control threads count frames that never reached a worker.
    pub(super) published: SharedCounters,
    /// Frames that the receiving halves had dropped before the last take-over; the counters of
    /// that switch contain them.
    lost_before: [AtomicU64; 2],
    failure: Failure,
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
    /// A duplicate of its event descriptor, so that a worker sleeps on it without holding the
    /// lock.
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
            rests: AtomicUsize::new(0),
            published: SharedCounters::new(worker_count)?,
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

    /// Resets the workers' counters, while no worker uses the port, and adds them to `before`, or
    /// to what they have counted without it.
    pub(super) fn count_from(&self, before: Option<Counters>) {
        let sum = before.unwrap_or_else(|| self.counted_here());
        let counted = self.published.get(SharedCounters::CONTROL).drops;
        for ((reason, frames), before) in self.lost().into_iter().zip(&self.lost_before) {
            // A number that cannot be read any more is at least what was counted of it.
            before.store(frames.max(before.load(Relaxed) + counted.get(reason)), Relaxed);
        }
        let workers = (0..self.finishing.len()).map(SharedCounters::row_of);
        workers
            .chain([SharedCounters::CONTROL])
            .for_each(|row| self.published.set(row, &Counters::default()));
        self.published.set(SharedCounters::BEFORE, &sum);
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

    /// Makes workers take only frames that have left the kernel already (`true`), or all. Returns
    /// true if there are such frames.
    pub(super) fn drain(&self, on: bool) -> bool {
        // Every half drains, so `fold` does not stop at the first one.
        self.rx.iter().fold(false, |any, half| lock(&half.port).drain(on) | any)
    }

    /// Returns the number of its page in the state for another process.
    pub(super) fn number_of_page(&self) -> u64 {
        self.index.into()
    }

    /// Returns the fill levels of its receive rings and of its transmit rings.
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
        self.published.sum()
    }

    /// Counts the frames that never reached a worker.
    pub(super) fn count_lost(&self) {
        let mut lost = Counters::default();
        for ((reason, frames), before) in self.lost().into_iter().zip(&self.lost_before) {
            lost.drops.add(reason, frames.saturating_sub(before.load(Relaxed)));
        }
        // A number that cannot be read any more stays as it was.
        self.published.raise(SharedCounters::CONTROL, &lost);
    }
}

#[cfg(test)]
mod tests;
