//! Limits on what one peer that shares its memory may use: bytes and regions of memory, and rates
//! of messages.

use std::time::{Duration, Instant};

use crate::Bytes;
use crate::uri::query::{Query, UriError};

/// Maximum number of descriptors read per call, up to the end of a chain: while a data thread reads
/// them it serves no other port. A whole batch of the longest frames in buffers of 500 bytes needs
/// as many.
pub(crate) const DESCRIPTORS_PER_CALL: u32 = 8192;

/// Maximum number of regions of a peer's memory. A vhost-user message has room for as many file
/// descriptors.
const REGIONS_MAX: usize = 32;
/// Maximum that the limit on a peer's memory can be set to, in bytes.
const MEMORY_MAX: u64 = 64 << 40;
/// Default limit on a peer's memory. A file can claim any length, and the address space in which
/// the memory of all peers is mapped ends at 128 TiB.
const MEMORY_USUAL: u64 = 256 << 30;

/// Limits on the memory that a peer may share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Maximum size of all regions together, in bytes.
    pub bytes: u64,
    /// Maximum number of regions, 1 to 32.
    pub regions: usize,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self { bytes: MEMORY_USUAL, regions: REGIONS_MAX }
    }
}

impl MemoryLimits {
    /// Takes the keys `memory` and `regions`.
    pub(crate) fn parse(query: &mut Query<'_>) -> Result<Self, UriError> {
        let bytes = |text: &str| {
            let Bytes(bytes) = text.parse().ok()?;
            (1..=MEMORY_MAX).contains(&bytes).then_some(bytes)
        };
        let regions = |text: &str| text.parse().ok().filter(|n| (1..=REGIONS_MAX).contains(n));
        Ok(Self {
            bytes: query
                .take("memory", "1 to 64T, in bytes, K, M, G or T", bytes)?
                .unwrap_or(MEMORY_USUAL),
            regions: query.take("regions", "1 to 32", regions)?.unwrap_or(REGIONS_MAX),
        })
    }

    /// Returns the keys whose values differ from the defaults.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&'static str, String)> {
        let Self { bytes, regions } = *self;
        let bytes = (bytes != MEMORY_USUAL).then(|| ("memory", Bytes(bytes).to_string()));
        let regions = (regions != REGIONS_MAX).then(|| ("regions", regions.to_string()));
        bytes.into_iter().chain(regions)
    }

    /// Checks that a peer may share `regions` regions of `bytes` bytes in all; the error says why
    /// not.
    pub(crate) fn check(&self, regions: usize, bytes: u64) -> Result<(), String> {
        if regions > self.regions {
            let most = self.regions;
            return Err(format!("{regions} memory regions: at most {most} are allowed"));
        }
        if bytes > self.bytes {
            let most = self.bytes;
            return Err(format!("{bytes} bytes of memory: at most {most} are allowed"));
        }
        Ok(())
    }
}

/// Rate limiter: up to `burst` events at once, and then one per `every`.
#[derive(Debug)]
pub(crate) struct Rate {
    burst: u32,
    every: Duration,
    /// Time at which as many events would have happened at the steady rate.
    due: Instant,
}

impl Rate {
    pub(crate) fn new(burst: u32, every: Duration) -> Self {
        Self { burst, every, due: Instant::now() }
    }

    /// Counts one event at the time `now`.
    ///
    /// # Errors
    /// How long the event has to wait.
    pub(crate) fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let ahead = self.due.saturating_duration_since(now);
        let allowed = self.every * (self.burst - 1);
        if ahead > allowed {
            return Err(ahead - allowed);
        }
        self.due = self.due.max(now) + self.every;
        Ok(())
    }
}

/// Rate limits for the peers of a port, which connect one after the other.
#[derive(Debug)]
pub(crate) struct Rates {
    /// Messages and connections.
    messages: Rate,
    /// Messages that change the memory. To unmap memory that data threads have used, the kernel
    /// interrupts the CPUs of all of them.
    memory: Rate,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            // Setting up 16 pairs of virtqueues takes 230 messages, and 16 pairs of memif rings 66.
            messages: Rate::new(1024, Duration::from_millis(1)),
            // A peer has at most 32 regions, and starts a few times while a machine boots.
            memory: Rate::new(128, Duration::from_millis(200)),
        }
    }
}

impl Rates {
    /// Counts a message, or (`memory`) one that changes the memory.
    ///
    /// # Errors
    /// How long the message has to wait.
    pub(crate) fn take(&mut self, memory: bool) -> Result<(), Duration> {
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
