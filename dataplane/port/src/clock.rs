//! The time-stamp counter: the clock that is read for every burst.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Returns the counter's present value. Its rate is constant and equal on all CPUs on every x86-64
/// of the last decade (`constant_tsc`, `nonstop_tsc`), which `dray doctor` checks.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: RDTSC has no preconditions; Linux leaves it enabled for user space.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Returns the counter's present value: the generic timer's virtual count.
#[cfg(target_arch = "aarch64")]
#[inline]
pub fn ticks() -> u64 {
    let count: u64;
    // SAFETY: Linux lets user space read CNTVCT_EL0; reading it changes nothing.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack)) };
    count
}

/// Returns the counter's rate, measured once per process against the system's monotonic clock.
pub fn ticks_per_second() -> u64 {
    static RATE: OnceLock<u64> = OnceLock::new();
    // Over 20 ms, the error of the two readings (tens of nanoseconds) is about one in a million.
    *RATE.get_or_init(|| measure_rate(Duration::from_millis(20)))
}

/// Returns the relative error of [`ticks_per_second`] against a rate measured over `span`.
pub fn rate_error(span: Duration) -> f64 {
    (ticks_per_second() as f64 / measure_rate(span) as f64 - 1.0).abs()
}

fn measure_rate(span: Duration) -> u64 {
    let (start_ticks, start) = paired_reading();
    std::thread::sleep(span);
    let (end_ticks, end) = paired_reading();
    let ticks = u128::from(end_ticks - start_ticks);
    (ticks * 1_000_000_000 / (end - start).as_nanos()) as u64
}

/// Converts a duration to ticks.
pub fn to_ticks(duration: Duration) -> u64 {
    (duration.as_nanos() * u128::from(ticks_per_second()) / 1_000_000_000) as u64
}

/// Converts ticks to a duration.
pub fn to_duration(ticks: u64) -> Duration {
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(ticks_per_second());
    Duration::from_nanos(ns.try_into().unwrap_or(u64::MAX))
}

/// Converts ticks to nanoseconds: faster than [`to_duration`], and exact to a billionth.
#[inline]
pub fn nanoseconds(ticks: u64) -> u64 {
    static FACTOR: OnceLock<u64> = OnceLock::new();
    let factor = *FACTOR.get_or_init(|| (1_000_000_000 << 32) / ticks_per_second());
    let ns = (u128::from(ticks) * u128::from(factor)) >> 32;
    ns.try_into().unwrap_or(u64::MAX)
}

/// Reads both clocks together: of eight readings, takes the one with the least time in between.
fn paired_reading() -> (u64, Instant) {
    (0..8)
        .map(|_| {
            let before = ticks();
            let instant = Instant::now();
            let width = ticks() - before;
            (width, before + width / 2, instant)
        })
        .min_by_key(|&(width, ..)| width)
        .map(|(_, ticks, instant)| (ticks, instant))
        .expect("eight readings")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_agree_with_monotonic_clock() {
        let (start_ticks, start) = paired_reading();
        std::thread::sleep(Duration::from_millis(50));
        let (end_ticks, end) = paired_reading();
        let expected = to_ticks(end - start) as f64;
        let ratio = (end_ticks - start_ticks) as f64 / expected;
        assert!((ratio - 1.0).abs() < 1e-3, "{ratio}");
    }

    #[test]
    fn fast_nanoseconds_agree_with_exact_conversion() {
        for ticks in [0, 1, 1000, ticks_per_second(), 3600 * ticks_per_second()] {
            let exact = to_duration(ticks).as_nanos() as u64;
            let off = nanoseconds(ticks).abs_diff(exact);
            assert!(off <= 1 + exact / 500_000_000, "{ticks} ticks: {off} ns off");
        }
        assert!(nanoseconds(u64::MAX) > 1 << 40, "no wrap");
    }
}
