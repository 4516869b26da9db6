//! Metering: limits packets to a bit rate, as a [token bucket](dray_datapath::Limit). Packets that
//! exceed the rate wait; the meter tells for how long, so that a session needs no queue.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use dray_datapath::{Bucket, Limit, Sharing};
use dray_port::clock;

/// Maximum time that a burst may be ahead of the rate.
const BURST: Duration = Duration::from_millis(10);
/// Burst of our own messages, which never wait.
const OWN_BURST: Duration = Duration::from_millis(50);
/// Maximum time that a packet waits to conform: TCP, whose senders hand over up to 64 KiB at once,
/// loses too much of them with half of it.
const PATIENCE: Duration = Duration::from_millis(75);
/// Bytes that may wait longer at low rates: what a new TCP connection sends at once.
const PATIENCE_LEAST: u64 = 16_384;
/// Maximum time that a packet waits at any rate: from then on its sender takes it for lost (RFC
/// 6298, section 2.1).
const PATIENCE_MAX: Duration = Duration::from_secs(1);
/// Size of a burst that may pass at any rate, in bytes: two packets of the usual MTU.
const BURST_LEAST: u64 = 3000;

/// Time that a packet may wait for its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// A packet that has just come.
    Usual,
    /// A packet that was kept for another reason: as long as those before it take at the rate.
    Endless,
}

/// A rate and how much of it has been used, in an account.
#[derive(Clone, Copy)]
pub(crate) struct Meter<'a> {
    /// The fields of its [`Limit`].
    pub(crate) cost: &'a AtomicU64,
    pub(crate) depth: &'a AtomicU64,
    /// Tick at which all packets passed so far would have been passed at exactly the rate.
    pub(crate) due: &'a AtomicU64,
}

/// Returns a bucket for messages of our own, with `kbps` thousand bits per second, more than 0.
pub(crate) fn own(kbps: u64) -> Bucket {
    Bucket::new(limit(kbps, OWN_BURST))
}

fn limit(kbps: u64, burst: Duration) -> Limit {
    Limit::new(kbps as f64 * 125.0, burst).at_least(BURST_LEAST)
}

impl Meter<'_> {
    /// Sets the rate; returns true if it was another one. Packets that were ahead of the old rate
    /// are forgotten if they would be too far ahead of the new one.
    pub(crate) fn set(&self, kbps: u64) -> bool {
        let Limit { cost, depth } = limit(kbps, BURST);
        self.depth.store(depth, Relaxed);
        let is_new = self.cost.swap(cost, Relaxed) != cost;
        if is_new {
            self.due.fetch_min(clock::ticks() + depth, Relaxed);
        }
        is_new
    }

    /// Forgets all packets that have passed.
    pub(crate) fn clear(&self) {
        self.due.store(0, Relaxed);
    }

    /// Continues where a meter of the process before has stopped, on the same clock. What waited
    /// for it there has left.
    pub(crate) fn resume(&self, before: Meter<'_>) {
        let latest = clock::ticks() + self.depth.load(Relaxed);
        self.due.store(before.due.load(Relaxed).min(latest), Relaxed);
    }

    #[inline(always)]
    fn limit(&self) -> Limit {
        Limit { cost: self.cost.load(Relaxed), depth: self.depth.load(Relaxed) }
    }

    /// Returns true, and counts the packet, if a packet of `bytes` may pass at the tick `now`.
    #[inline(always)]
    pub(crate) fn pass(&self, now: u64, bytes: usize, sharing: Sharing) -> bool {
        self.limit().reserve((self.due, sharing), bytes as u64, now, || 0).is_some()
    }

    /// Counts a packet of `bytes` at the tick `now`, and returns the tick from which it may pass;
    /// `None` if it would have to wait for too long.
    pub(crate) fn reserve(
        &self,
        now: u64,
        bytes: usize,
        sharing: Sharing,
        patience: Patience,
    ) -> Option<u64> {
        let limit = self.limit();
        let longest = match patience {
            Patience::Usual => {
                let least = limit.ticks(PATIENCE_LEAST).min(clock::to_ticks(PATIENCE_MAX));
                clock::to_ticks(PATIENCE).max(least)
            }
            Patience::Endless => u64::MAX,
        };
        limit.reserve((self.due, sharing), bytes as u64, now, || longest)
    }

    /// Undoes the counting of a packet of `bytes` that another limit stopped.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.limit().refund(self.due, bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter([cost, depth, due]: &[AtomicU64; 3]) -> Meter<'_> {
        Meter { cost, depth, due }
    }

    /// Offers packets of `len` bytes at twice the rate for 10 s; returns the passed rate relative
    /// to the limit.
    fn passed(kbps: u64, len: usize) -> f64 {
        let bucket = own(kbps);
        let start = clock::ticks();
        let bits = 2 * kbps * 1000 * 10;
        let packets = bits / (len as u64 * 8);
        let span = clock::to_ticks(Duration::from_secs(10));
        let mut octets = 0;
        for packet in 0..packets {
            let now = start + (u128::from(span) * u128::from(packet) / u128::from(packets)) as u64;
            if bucket.reserve(len as u64, now, 0).is_some() {
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

    /// Offers packets of changing lengths at changing times; in no window do more pass than the
    /// rate, one burst and one packet.
    #[test]
    fn rate_holds_in_every_window() {
        let second = clock::ticks_per_second();
        for (kbps, longest) in [(1000, 1500), (10_000, 1500), (10_000, 9000), (1_000_000, 1500)] {
            let words = <[AtomicU64; 3]>::default();
            let meter = meter(&words);
            meter.set(kbps);
            let ticks = |bytes| meter.limit().ticks(bytes);
            let mut random = 1_u64;
            let mut draw = |below: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) % below
            };
            let start = clock::ticks();
            let (mut now, mut sent) = (start, Vec::new());
            let most = if kbps > 100_000 { second / 4 } else { 4 * second };
            while now - start < most {
                let usual = ticks(2 * longest);
                let is_silent = draw(500) == 0;
                now += draw(if is_silent { second / 5 } else { usual });
                for _ in 0..draw(8) {
                    let bytes = 28 + draw(longest - 27);
                    if let Some(from) =
                        meter.reserve(now, bytes as usize, Sharing::Alone, Patience::Usual)
                    {
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

    /// Neither the packets that have passed nor those that wait at a low rate hold up those at a
    /// higher one, and a rate that is set again changes nothing.
    #[test]
    fn new_rate_begins_at_once() {
        let words = <[AtomicU64; 3]>::default();
        let meter = meter(&words);
        meter.set(1);
        let now = clock::ticks();
        let reserve = |patience| meter.reserve(now, 1500, Sharing::Alone, patience);
        assert!(reserve(Patience::Usual).is_some_and(|at| at <= now));
        assert!((0..50).all(|_| reserve(Patience::Endless).is_some()));
        meter.set(1);
        assert_eq!(reserve(Patience::Usual), None);
        meter.set(100_000);
        assert!(
            reserve(Patience::Usual).is_some_and(|at| at < now + clock::ticks_per_second() / 10)
        );
    }
}
