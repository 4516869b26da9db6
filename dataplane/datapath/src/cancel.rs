//! Cancellation by the user.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The user cancelled the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct Cancelled;

/// Cancellation flag: set by a signal handler, checked by everything that waits.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Interval at which waits check the flag.
    pub const INTERVAL: Duration = Duration::from_millis(20);

    /// The flag itself, for a signal handler to set.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }

    /// Returns an error once the flag is set.
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.0.load(Ordering::Relaxed) { Err(Cancelled) } else { Ok(()) }
    }

    /// Sleeps until `until`; fails as soon as the flag is set.
    pub fn sleep_until(&self, until: Instant) -> Result<(), Cancelled> {
        loop {
            self.check()?;
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return Ok(());
            }
            std::thread::sleep(rest.min(Self::INTERVAL));
        }
    }
}
