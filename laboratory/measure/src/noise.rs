//! Noise: other activity of the machine just before a testbed was built and while a trial ran in
//! it. A figure measured during such activity is less reliable, so it is marked as disturbed.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use dray_lab::{Cancel, LabError};
use dray_port::clock;
use dray_results::Noise;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::cpu::{self, CpuTimes};

/// Possible error of each CPU's time, which the kernel counts by timer ticks.
const TICKS: Duration = Duration::from_millis(20);

/// Noise over `elapsed`, from the times of `cpus` `before` and `after`. The measured programs
/// used `used` of their time; if that is unknown, `other_cores` is zero.
pub(crate) fn between(
    before: &BTreeMap<usize, CpuTimes>,
    after: &BTreeMap<usize, CpuTimes>,
    cpus: &[usize],
    elapsed: Duration,
    used: Option<Duration>,
) -> Noise {
    let both: Vec<_> =
        cpus.iter().filter_map(|cpu| Some((before.get(cpu)?, after.get(cpu)?))).collect();
    let sum = |of: fn(&CpuTimes) -> f64| {
        both.iter().map(|(before, after)| (of(after) - of(before)).max(0.0)).sum::<f64>()
    };
    let elapsed = elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let sure = |seconds: f64| (seconds - TICKS.as_secs_f64() * both.len() as f64).max(0.0);
    let others = used.map_or(0.0, |used| sure(sum(|it| it.busy) - used.as_secs_f64()));
    Noise {
        steal_ratio: sure(sum(|it| it.steal)) / elapsed / both.len().max(1) as f64,
        other_cores: others / elapsed,
        ..Noise::default()
    }
}

/// Watches a machine on which nothing is measured yet.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Durations of the test loop on each CPU in ticks, sorted.
    ticks: BTreeMap<usize, Vec<u64>>,
}

/// Time for which a machine is watched.
const SAMPLE: Duration = Duration::from_millis(100);

impl Watch {
    /// Measures the load of `cpus` while they should be idle, and their speed while all of them
    /// work.
    ///
    /// A speed is compared with the median: a CPU is at its fastest now and then, while the cores
    /// beside it sleep, and compared with that every other time would seem slow.
    pub(crate) fn measure(&mut self, cpus: &[usize], cancel: &Cancel) -> Result<Noise, LabError> {
        let read = || {
            let what = "/proc/stat".to_owned();
            cpu::read().map_err(|error| LabError::System { what, error })
        };
        let (before, began) = (read()?, Instant::now());
        cancel.sleep_until(began + SAMPLE)?;
        let noise = between(&before, &read()?, cpus, began.elapsed(), Some(Duration::ZERO));
        let slower = loop_ticks(cpus).into_iter().map(|(cpu, ticks)| {
            let all = self.ticks.entry(cpu).or_default();
            all.insert(all.partition_point(|&other| other < ticks), ticks);
            let usual = all[all.len() / 2];
            1.0 - (usual as f64 / ticks as f64).min(1.0)
        });
        Ok(Noise { slower_ratio: slower.fold(0.0, f64::max), ..noise })
    }
}

/// Duration of a loop of dependent steps on each of `cpus`, in ticks of the clock, whose rate is
/// constant: the fewer ticks, the higher the CPU's frequency. All CPUs run the loop at the same
/// time, as during a measurement, because the possible frequency depends on the number of busy
/// cores. The result is the fastest of several loops: it was not interrupted, and the CPU was
/// awake. CPUs that this process may not use are left out.
fn loop_ticks(cpus: &[usize]) -> Vec<(usize, u64)> {
    const STEPS: u64 = 100_000;
    const TIMES: usize = 64;
    let once = |_| {
        let began = clock::ticks();
        // In builds for tests, an iterator takes several times as long.
        let (mut value, mut step) = (black_box(1_u64), 0);
        while step < STEPS {
            value = (value ^ (value >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            step += 1;
        }
        black_box(value);
        clock::ticks() - began
    };
    let on = |cpu: usize| {
        let mut only = CpuSet::new();
        only.set(cpu);
        // Affects only this thread, which ends here.
        sched_setaffinity(None, &only).ok()?;
        Some((cpu, (0..TIMES).map(once).min()?))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = cpus.iter().map(|&cpu| scope.spawn(move || on(cpu))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(busy: f64, steal: f64) -> BTreeMap<usize, CpuTimes> {
        let times = CpuTimes { busy, softirq: 0.0, steal };
        BTreeMap::from([(0, times), (1, times)])
    }

    #[test]
    fn unaccounted_busy_time_is_other_load() {
        let second = Duration::from_secs(1);
        let noise = |busy, steal, used| {
            let (before, after) = (cpus(5.0, 1.0), cpus(5.0 + busy, 1.0 + steal));
            between(&before, &after, &[0, 1], second, used)
        };
        let quiet = noise(0.75, 0.0, Some(second * 3 / 2));
        assert_eq!(Noise::of_trial(Noise::default(), quiet), Noise::default());
        // A tick or two is no load.
        assert_eq!(noise(0.76, 0.01, Some(second * 3 / 2)), Noise::default());
        let load = noise(1.0, 0.0, Some(second * 3 / 2));
        assert!((load.other_cores - 0.46).abs() < 1e-9, "{load:?}");
        assert_eq!(noise(1.0, 0.0, None).other_cores, 0.0, "unknown load");
        let stolen = noise(0.5, 0.12, Some(second));
        assert!((stolen.steal_ratio - 0.1).abs() < 1e-9, "{stolen:?}");
    }

    #[test]
    fn cpu_slowdown_is_relative_to_median() {
        let mut watch = Watch::default();
        let here = dray_lab::placement::allowed();
        let measure = |watch: &mut Watch| watch.measure(&here, &Cancel::default()).unwrap();
        assert_eq!(measure(&mut watch).slower_ratio, 0.0, "no earlier sample to compare with");
        assert_eq!(watch.ticks.keys().copied().collect::<Vec<_>>(), here);
        assert_eq!(dray_lab::placement::allowed(), here, "affinity is unchanged");
        let as_if = |watch: &mut Watch, divisors: &[u64]| {
            for ticks in watch.ticks.values_mut() {
                let now = ticks[0];
                *ticks = divisors.iter().map(|divisor| now / divisor).collect();
            }
        };
        // Pretends that the CPU was ten times as fast once, then nearly always.
        as_if(&mut watch, &[10, 1, 1, 1]);
        assert!(measure(&mut watch).slower_ratio < 0.5);
        as_if(&mut watch, &[10, 10, 10, 1]);
        assert!(measure(&mut watch).slower_ratio > 0.5);
    }
}
