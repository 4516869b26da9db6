//! Cancellation by the user.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::LabError;

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
    pub fn check(&self) -> Result<(), LabError> {
        if self.0.load(Ordering::Relaxed) { Err(LabError::Cancelled) } else { Ok(()) }
    }

    /// Sleeps until `until`; fails as soon as the flag is set.
    pub fn sleep_until(&self, until: Instant) -> Result<(), LabError> {
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
