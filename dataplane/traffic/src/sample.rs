//! Samples of a role's counters, taken at a regular interval.

use std::time::Duration;

use dray_datapath::{ArrivalClock, Arrivals};
use dray_port::clock;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::cpu_time;

/// A role's counters at one moment; all except the time count from the role's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Time of the sample, on the system's monotonic clock, in nanoseconds.
    pub at_ns: u64,
    /// Frames received, or sent by a sender. Streams have none.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// CPU time of the role in user mode, in nanoseconds.
    pub user_ns: u64,
    /// CPU time of the role in the kernel, in nanoseconds. The kernel's accounting decides if this
    /// includes soft interrupts that ran on top of the role.
    pub system_ns: u64,
    /// Time with work to do, in nanoseconds; a polling role spent the rest of its CPU time on empty
    /// polls. Unknown for roles that only sleep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_ns: Option<u64>,
}

/// Called with each new sample: the previous sample, the new one, and the frames so far with the
/// time that they took.
pub type OnSample = Box<dyn FnMut(&Sample, &Sample, &Arrivals) + Send>;

/// Returns the system's monotonic clock, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Returns the tick at which the monotonic clock shows, or showed, `ns`.
pub(crate) fn ticks_at(ns: u64) -> u64 {
    let (now_ns, now) = (monotonic_ns(), clock::ticks());
    let ticks = |ns| clock::to_ticks(Duration::from_nanos(ns));
    match ns.checked_sub(now_ns) {
        Some(ahead) => now.saturating_add(ticks(ahead)),
        None => now.saturating_sub(ticks(now_ns - ns)),
    }
}

/// Takes a sample whenever the monotonic clock passes a multiple of the interval, so that the
/// samples of all roles on a host coincide.
pub(crate) struct Sampler {
    interval_ns: u64,
    due: u64,
    /// Ticks with work to do.
    work: Option<u64>,
    samples: Vec<Sample>,
    noted: ArrivalClock,
    on_sample: Option<OnSample>,
}

impl Sampler {
    pub(crate) fn new(interval: Duration, on_sample: Option<OnSample>) -> Self {
        let interval_ns = interval.as_nanos() as u64;
        let (samples, noted) = (Vec::with_capacity(1024), ArrivalClock::default());
        let mut sampler = Self { interval_ns, due: 0, work: None, samples, noted, on_sample };
        sampler.take(0, 0);
        sampler
    }

    /// Notes when the counters grow, and records them if a sample is due.
    #[inline]
    pub(crate) fn poll(&mut self, now: u64, frames: u64, bytes: u64) {
        self.noted.note(now, frames, bytes);
        if now >= self.due {
            self.take(frames, bytes);
        }
    }

    /// Adds time with work to do; `worked(0)` marks a role that measures this time.
    #[inline]
    pub(crate) fn worked(&mut self, ticks: u64) {
        *self.work.get_or_insert(0) += ticks;
    }

    /// Returns the time until the next sample.
    pub(crate) fn until_due(&self) -> Duration {
        clock::to_duration(self.due.saturating_sub(clock::ticks()))
    }

    /// Records the counters at the end and returns all samples.
    pub(crate) fn finish(mut self, frames: u64, bytes: u64) -> Vec<Sample> {
        self.take(frames, bytes);
        self.samples
    }

    /// Returns the frames so far with the time that they took.
    pub(crate) fn arrivals(&self) -> Arrivals {
        self.noted.arrivals()
    }

    #[cold]
    fn take(&mut self, frames: u64, bytes: u64) {
        let (user_ns, system_ns) = cpu_time::of_this_thread();
        let at_ns = monotonic_ns();
        let work_ns = self.work.map(clock::nanoseconds);
        let sample = Sample { at_ns, frames, bytes, user_ns, system_ns, work_ns };
        if let (Some(on_sample), Some(last)) = (&mut self.on_sample, self.samples.last()) {
            on_sample(last, &sample, &self.noted.arrivals());
        }
        self.samples.push(sample);
        let wait_ns = self.interval_ns - at_ns % self.interval_ns;
        self.due = clock::ticks() + clock::to_ticks(Duration::from_nanos(wait_ns));
    }
}
