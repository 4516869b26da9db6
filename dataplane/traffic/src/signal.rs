//! Control of a running role.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use dray_port::clock;

use crate::sample::{monotonic_ns, ticks_at};

/// Phase of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Work.
    Run,
    /// Work until no frame has come for a while ([`Signal::QUIET`]).
    Drain,
    /// Stop.
    Stop,
}

/// Shared between a role and its controller. The phase only ever moves forward.
#[derive(Clone, Debug, Default)]
pub struct Signal(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    phase: AtomicU8,
    /// On the monotonic clock, in nanoseconds.
    start_at_ns: AtomicU64,
}

/// Start time of a signal that is held.
const NOT_YET: u64 = u64::MAX;

impl Signal {
    /// Time without frames after which a draining role ends.
    pub const QUIET: Duration = Duration::from_millis(60);
    /// Maximum time of draining, however many frames still come.
    pub const DRAIN_MAX: Duration = Duration::from_secs(2);

    /// Creates a signal that holds a sender until [`start_at`](Self::start_at); by default a sender
    /// begins at once.
    pub fn held() -> Self {
        let signal = Self::default();
        signal.start_at(NOT_YET);
        signal
    }

    /// Sets the start time of the sender, on the monotonic clock in nanoseconds.
    pub fn start_at(&self, ns: u64) {
        self.0.start_at_ns.store(ns, Ordering::Relaxed);
    }

    /// Returns true if the start time of the sender is known.
    pub(crate) fn begun(&self) -> bool {
        self.start_at_ns() != NOT_YET
    }

    /// Returns the start time of the sender, on the monotonic clock in nanoseconds.
    pub(crate) fn start_at_ns(&self) -> u64 {
        self.0.start_at_ns.load(Ordering::Relaxed)
    }

    /// Returns a tick just before the start of the sender: the end of time until it is known, and
    /// zero for a sender that begins at once.
    pub(crate) fn start_tick(&self) -> u64 {
        match self.start_at_ns() {
            at @ (0 | NOT_YET) => at,
            // The clocks may differ by less than this since they were last compared.
            ns => ticks_at(ns.saturating_sub(1_000_000)),
        }
    }

    /// Waits for the start time of the sender, or until the role is asked to end.
    pub(crate) fn wait_for_start(&self) {
        while monotonic_ns() < self.start_at_ns() && self.phase() == Phase::Run {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Asks the role to take what is still queued, then stop.
    pub fn drain(&self) {
        self.0.phase.fetch_max(1, Ordering::Relaxed);
    }

    /// Asks the role to stop now.
    pub fn stop(&self) {
        self.0.phase.fetch_max(2, Ordering::Relaxed);
    }

    /// Returns the current phase.
    #[inline]
    pub fn phase(&self) -> Phase {
        match self.0.phase.load(Ordering::Relaxed) {
            0 => Phase::Run,
            1 => Phase::Drain,
            _ => Phase::Stop,
        }
    }
}

/// A role's view of its [`Signal`]: ends a draining role once it has been idle for long enough.
pub(crate) struct Ending<'a> {
    signal: &'a Signal,
    quiet_ticks: u64,
    drain_ticks: u64,
    /// Tick at which draining began.
    drain_began: Option<u64>,
    /// Tick at which a draining role last found a frame, or began to drain.
    last_work: u64,
}

impl<'a> Ending<'a> {
    pub(crate) fn new(signal: &'a Signal) -> Self {
        Self {
            signal,
            quiet_ticks: clock::to_ticks(Signal::QUIET),
            drain_ticks: clock::to_ticks(Signal::DRAIN_MAX),
            drain_began: None,
            last_work: 0,
        }
    }

    /// Returns true if the role goes on; `worked` is true if the last round found a frame.
    #[inline]
    pub(crate) fn continues(&mut self, now: u64, worked: bool) -> bool {
        match self.signal.phase() {
            Phase::Run => true,
            Phase::Drain => {
                // Silence counts from the first check after draining began: a role that did not get
                // to run before has not seen the frames that wait there.
                if worked || self.drain_began.is_none() {
                    self.last_work = now;
                }
                let began = *self.drain_began.get_or_insert(now);
                now.saturating_sub(self.last_work) < self.quiet_ticks
                    && now.saturating_sub(began) < self.drain_ticks
            }
            Phase::Stop => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn start_tick_is_just_before_start() {
        assert_eq!(Signal::default().start_tick(), 0, "sends at once");
        let signal = Signal::held();
        assert_eq!(signal.start_tick(), u64::MAX, "not known yet");
        signal.start_at(monotonic_ns());
        let now = clock::ticks();
        assert!(signal.start_tick() < now && signal.start_tick() + clock::to_ticks(SECOND) > now);
    }

    #[test]
    fn drain_ends_after_silence_or_limit() {
        let signal = Signal::default();
        let mut ending = Ending::new(&signal);
        let (quiet, most) = (ending.quiet_ticks, ending.drain_ticks);
        let start = clock::ticks();
        assert!(ending.continues(start, false) && ending.continues(start + 2 * most, false));
        let start = start + 2 * most;
        signal.drain();
        assert!(ending.continues(start, false), "however long it did not run");
        assert!(ending.continues(start + quiet / 2, false), "not silent for long enough");
        assert!(ending.continues(start + quiet, true), "a frame came");
        assert!(ending.continues(start + 2 * quiet - 1, false));
        assert!(!ending.continues(start + 2 * quiet, false), "silence");
        assert!(!ending.continues(start + most, true), "a flood");
        signal.stop();
        assert!(!ending.continues(start, true));
    }
}
