//! Limits on what one driver may use: bytes and regions of memory, and rates of messages.

use std::time::{Duration, Instant};

/// Maximum number of regions of a driver's memory. A message has room for as many file descriptors.
pub(super) const REGIONS_MAX: usize = 32;
/// Maximum that the limit on a driver's memory can be set to, in bytes.
pub(super) const MEMORY_MAX: u64 = 64 << 40;
/// Default limit on a driver's memory. A file can claim any length, and the address space in which
/// the memory of all drivers is mapped ends at 128 TiB.
pub(super) const MEMORY_USUAL: u64 = 256 << 30;

/// Rate limiter: up to `burst` events at once, and then one per `every`.
#[derive(Debug)]
pub(super) struct Rate {
    burst: u32,
    every: Duration,
    /// Time at which as many events would have happened at the steady rate.
    due: Instant,
}

impl Rate {
    pub(super) fn new(burst: u32, every: Duration) -> Self {
        Self { burst, every, due: Instant::now() }
    }

    /// Counts one event at the time `now`.
    ///
    /// # Errors
    /// How long the event has to wait.
    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let ahead = self.due.saturating_duration_since(now);
        let allowed = self.every * (self.burst - 1);
        if ahead > allowed {
            return Err(ahead - allowed);
        }
        self.due = self.due.max(now) + self.every;
        Ok(())
    }
}

/// Rate limits for the drivers of a port, which connect one after the other.
#[derive(Debug)]
pub(super) struct Rates {
    /// Messages and connections.
    messages: Rate,
    /// Messages that change the memory. To unmap memory that data threads have used, the kernel
    /// interrupts the CPUs of all of them.
    memory: Rate,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            // Setting up 16 pairs of virtqueues takes 230 messages.
            messages: Rate::new(1024, Duration::from_millis(1)),
            // A driver has at most 32 regions, and starts a few times while a machine boots.
            memory: Rate::new(128, Duration::from_millis(200)),
        }
    }
}

impl Rates {
    /// Counts a message, or (`memory`) one that changes the memory.
    ///
    /// # Errors
    /// How long the message has to wait.
    pub(super) fn take(&mut self, memory: bool) -> Result<(), Duration> {
        let now = Instant::now();
        match memory {
            true => self.memory.take(now),
            false => self.messages.take(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limit_applies_after_burst() {
        let start = Instant::now();
        let mut rate = Rate { burst: 3, every: Duration::from_secs(10), due: start };
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!([(); 3].map(|()| rate.take(start)), [Ok(()); 3]);
        assert_eq!(rate.take(start), Err(Duration::from_secs(10)));
        assert_eq!(rate.take(after(4)), Err(Duration::from_secs(6)));
        assert_eq!(rate.take(after(10)), Ok(()));
        assert_eq!(rate.take(after(11)), Err(Duration::from_secs(9)));
        // Unused events are not saved beyond a burst.
        assert_eq!([(); 4].map(|()| rate.take(after(1000)).is_ok()), [true, true, true, false]);
    }
}
