//! How a running role is told to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// What a role should be doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its work.
    Run,
    /// Its work, until no frame has come for a while ([`Signal::QUIET`]).
    Drain,
    /// Nothing more.
    Stop,
}

/// Shared between a role and whoever ends it. The phase only ever moves forward.
#[derive(Clone, Debug, Default)]
pub struct Signal(Arc<AtomicU8>);

impl Signal {
    /// How long a draining role sees no frame before it ends.
    pub const QUIET: std::time::Duration = std::time::Duration::from_millis(60);

    /// Asks for what is still queued to be taken, and then to stop.
    pub fn drain(&self) {
        self.0.fetch_max(1, Ordering::Relaxed);
    }

    /// Asks to stop now.
    pub fn stop(&self) {
        self.0.fetch_max(2, Ordering::Relaxed);
    }

    /// What the role should be doing.
    #[inline]
    pub fn phase(&self) -> Phase {
        match self.0.load(Ordering::Relaxed) {
            0 => Phase::Run,
            1 => Phase::Drain,
            _ => Phase::Stop,
        }
    }
}

/// A role's own view of its [`Signal`]: ends a draining role once it has been idle for long enough.
pub(crate) struct Ending<'a> {
    signal: &'a Signal,
    quiet_ticks: u64,
    last_work: u64,
}

impl<'a> Ending<'a> {
    pub(crate) fn new(signal: &'a Signal) -> Self {
        let quiet_ticks = dray_port::clock::to_ticks(Signal::QUIET);
        Self { signal, quiet_ticks, last_work: dray_port::clock::ticks() }
    }

    /// Whether to go on, given whether the last round found a frame.
    #[inline]
    pub(crate) fn go_on(&mut self, now: u64, worked: bool) -> bool {
        match self.signal.phase() {
            Phase::Run => {
                // Silence counts from when draining began, not from the last frame before it.
                self.last_work = now;
                true
            }
            Phase::Drain => {
                if worked {
                    self.last_work = now;
                }
                now.saturating_sub(self.last_work) < self.quiet_ticks
            }
            Phase::Stop => false,
        }
    }
}
