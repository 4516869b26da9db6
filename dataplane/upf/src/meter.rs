//! Metering: limits packets to a bit rate.
//!
//! The generic cell rate algorithm (ITU-T I.371): a token bucket kept as one number, the time at
//! which the bucket will be full again. A packet conforms if that time is not too far ahead, and
//! moves it on by the time that the packet's bytes take at the rate. For a packet that does not
//! conform the same number tells when it will, so that it can wait: a session needs no queue.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use dray_port::clock;

/// Fractional bits of ticks per byte: 400 Gb/s is a twentieth of a tick per byte.
const PLACES: u32 = 20;
/// Maximum time that a burst may be ahead of the rate.
const BURST: Duration = Duration::from_millis(15);
/// The same for a meter of its own, whose packets never wait.
const OWN_BURST: Duration = Duration::from_millis(50);
/// Maximum time that a packet waits to conform: TCP, whose senders hand over up to 64 KiB at once, loses
/// too much of them with half of it.
const PATIENCE: Duration = Duration::from_millis(75);
/// Bytes that may wait at any rate: what a new TCP connection sends at once.
const PATIENCE_LEAST: u64 = 16_384;
/// Size of a burst that may pass at any rate, in bytes: two packets of the usual MTU.
const BURST_LEAST: u64 = 3000;

/// Sharing of meters and counters among data threads. Shared ones are updated atomically, which
/// costs about as much as the rest of a packet's accounting; others with plain loads and stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Only one thread writes.
    Alone,
    /// Several threads write.
    Shared,
}

/// A rate and how much of it has been used, in an account.
#[derive(Clone, Copy)]
pub(crate) struct Meter<'a> {
    /// Ticks per byte, with [`PLACES`] fractional bits.
    pub(crate) cost: &'a AtomicU64,
    /// Maximum time that packets may be ahead of the rate, in ticks.
    pub(crate) burst: &'a AtomicU64,
    /// Tick at which all packets passed so far would have been passed at exactly the rate.
    pub(crate) due: &'a AtomicU64,
}

/// A meter of its own.
#[derive(Default)]
pub(crate) struct OwnMeter([AtomicU64; 3]);

impl OwnMeter {
    /// Creates a meter of `kbps` thousand bits per second, more than 0.
    pub(crate) fn new(kbps: u64) -> Self {
        let meter = Self::default();
        meter.get().set_with(kbps, OWN_BURST);
        meter
    }

    pub(crate) fn get(&self) -> Meter<'_> {
        let Self([cost, burst, due]) = self;
        Meter { cost, burst, due }
    }
}

impl Meter<'_> {
    /// Changes the rate. Packets that were ahead of the old rate are forgotten if they would be too
    /// far ahead of the new one.
    pub(crate) fn set(&self, kbps: u64) {
        self.set_with(kbps, BURST);
    }

    fn set_with(&self, kbps: u64, burst: Duration) {
        let per_byte = (u128::from(clock::ticks_per_second()) * 8) << PLACES;
        let cost = (per_byte / (u128::from(kbps) * 1000)).max(1) as u64;
        self.cost.store(cost, Relaxed);
        self.burst.store(clock::to_ticks(burst).max((BURST_LEAST * cost) >> PLACES), Relaxed);
    }

    /// Forgets all packets that have passed.
    pub(crate) fn clear(&self) {
        self.due.store(0, Relaxed);
    }

    /// Continues where a meter of the process before has stopped, on the same clock.
    pub(crate) fn resume(&self, past: Meter<'_>) {
        self.due.store(past.due.load(Relaxed), Relaxed);
    }

    /// Returns the tick to which the length of a packet at `now` is added to get the next `due`;
    /// `None` if the packet exceeds the rate.
    #[inline(always)]
    fn start(&self, due: u64, now: u64) -> Option<u64> {
        let latest = now + self.burst.load(Relaxed);
        if due <= latest {
            return Some(due.max(now));
        }
        // No packet waits that long: `due` was set at another rate.
        (due - latest > self.patience() + self.ticks(1 << 16)).then_some(now)
    }

    /// Returns the maximum time that a packet waits, in ticks.
    #[cold]
    fn patience(&self) -> u64 {
        clock::to_ticks(PATIENCE).max(self.ticks(PATIENCE_LEAST as usize))
    }

    /// Returns the time that `bytes` take at the rate, in ticks.
    #[inline(always)]
    fn ticks(&self, bytes: usize) -> u64 {
        (bytes as u64 * self.cost.load(Relaxed)) >> PLACES
    }

    /// Returns true if a packet may pass at the tick `now`.
    pub(crate) fn conforms(&self, now: u64) -> bool {
        self.start(self.due.load(Relaxed), now).is_some()
    }

    /// Returns true, and counts the packet, if a packet of `bytes` may pass at the tick `now`.
    #[inline(always)]
    pub(crate) fn pass(&self, now: u64, bytes: usize, sharing: Sharing) -> bool {
        self.move_on(bytes, sharing, |due| self.start(due, now)).is_some()
    }

    /// Counts a packet of `bytes` at the tick `now`, and returns the tick from which it may pass; `None`
    /// if it would have to wait for too long.
    pub(crate) fn reserve(&self, now: u64, bytes: usize, sharing: Sharing) -> Option<u64> {
        let burst = self.burst.load(Relaxed);
        let latest = now + burst + self.patience();
        let start = |due| self.start(due, now).or((due <= latest).then_some(due));
        self.move_on(bytes, sharing, start).map(|start| start.saturating_sub(burst).max(now))
    }

    /// Adds the length of a packet to the tick that `start` returns for the current `due`, if it returns
    /// one.
    #[inline(always)]
    fn move_on(
        &self,
        bytes: usize,
        sharing: Sharing,
        start: impl Fn(u64) -> Option<u64>,
    ) -> Option<u64> {
        let ticks = self.ticks(bytes);
        match sharing {
            Sharing::Alone => {
                let start = start(self.due.load(Relaxed))?;
                self.due.store(start + ticks, Relaxed);
                Some(start)
            }
            Sharing::Shared => {
                let next = |due| start(due).map(|start| start + ticks);
                let before = self.due.fetch_update(Relaxed, Relaxed, next).ok()?;
                start(before)
            }
        }
    }

    /// Undoes the counting of a packet of `bytes` that another limit stopped.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.due.fetch_sub(self.ticks(bytes), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offers packets of `len` bytes at twice the rate for 10 s; returns the passed rate relative
    /// to the limit.
    fn passed(kbps: u64, len: usize) -> f64 {
        let meter = OwnMeter::new(kbps);
        let meter = meter.get();
        let start = clock::ticks();
        let bits = 2 * kbps * 1000 * 10;
        let packets = bits / (len as u64 * 8);
        let span = clock::to_ticks(Duration::from_secs(10));
        let mut octets = 0;
        for packet in 0..packets {
            let now = start + (u128::from(span) * u128::from(packet) / u128::from(packets)) as u64;
            if meter.pass(now, len, Sharing::Alone) {
                octets += len as u64;
            }
        }
        (octets * 8) as f64 / (kbps * 10_000) as f64
    }

    #[test]
    fn meter_passes_rate_plus_small_burst() {
        for (kbps, len) in
            [(1000, 60), (1000, 1500), (10_000, 60), (10_000, 1500), (1_000_000, 9000)]
        {
            let part = passed(kbps, len);
            assert!((0.999..1.02).contains(&part), "{kbps} kb/s of {len} bytes: {part}");
        }
    }

    /// Offers packets of changing lengths at changing times; in no window do more pass than the rate,
    /// one burst and one packet.
    #[test]
    fn rate_holds_in_every_window() {
        let second = clock::ticks_per_second();
        for (kbps, longest) in [(1000, 1500), (10_000, 1500), (10_000, 9000), (1_000_000, 1500)] {
            let meter = OwnMeter::default();
            let meter = meter.get();
            meter.set(kbps);
            let mut random = 1_u64;
            let mut draw = |below: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) % below
            };
            let start = clock::ticks();
            let (mut now, mut sent) = (start, Vec::new());
            let most = if kbps > 100_000 { second / 4 } else { 4 * second };
            while now - start < most {
                let usual = meter.ticks(2 * longest as usize);
                let is_silent = draw(500) == 0;
                now += draw(if is_silent { second / 5 } else { usual });
                for _ in 0..draw(8) {
                    let bytes = 28 + draw(longest - 27);
                    if let Some(from) = meter.reserve(now, bytes as usize, Sharing::Alone) {
                        let at = from.max(now);
                        assert!(sent.last().is_none_or(|(last, _)| at >= *last));
                        assert!(at - now <= second * 14 / 100, "{kbps}");
                        sent.push((at, bytes));
                    }
                }
            }
            let rate = (kbps * 125) as f64;
            let burst = (rate * BURST.as_secs_f64()).max(BURST_LEAST as f64) + longest as f64;
            for from in (0..sent.len()).step_by(1 + sent.len() / 300) {
                let mut bytes = 0;
                for (at, len) in &sent[from..] {
                    bytes += len;
                    let window = (at - sent[from].0) as f64 / second as f64;
                    let allowed = rate * window + burst;
                    assert!(bytes as f64 <= allowed * 1.0001 + 1.0, "{kbps}: {bytes}, {allowed}");
                }
            }
        }
    }

    #[test]
    fn extreme_rates_do_not_overflow() {
        for kbps in [1, u64::from(u32::MAX), 1_000_000_000_000] {
            let meter = OwnMeter::new(kbps);
            let meter = meter.get();
            let now = clock::ticks();
            for _ in 0..1000 {
                meter.pass(now, 9000, Sharing::Alone);
            }
            assert!(meter.due.load(Relaxed) >= now);
        }
    }
}
