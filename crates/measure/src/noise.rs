//! Noise: other activity of the machine just before a testbed was built and while a trial ran in
//! it. A figure measured during such activity is less reliable, so it is marked as disturbed.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use dray_lab::{Cancel, LabError};
use dray_port::clock;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::cpu::{self, CpuTimes};

/// Other activity of the machine; for several trials, the maximum of each value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Share of CPU time that the hypervisor took from the roles' CPUs.
    pub steal_ratio: f64,
    /// Number of these CPUs that were busy with other work.
    pub other_cores: f64,
    /// Slowdown of a CPU against its usual speed, as a share of that speed.
    pub slower_ratio: f64,
    /// Number of trials in which one of these values exceeded its limit.
    pub disturbed_trials: usize,
}

/// Limits of stolen CPU time (ratio), of other work (cores), and of slowdown (ratio).
const STEAL_MAX: f64 = 0.01;
const OTHERS_MAX: f64 = 0.1;
const SLOWER_MAX: f64 = 0.05;

/// Possible error of each CPU's time, which the kernel counts by timer ticks.
const TICKS: Duration = Duration::from_millis(20);

impl Noise {
    /// Noise over `elapsed`, from the times of `cpus` `before` and `after`. The measured programs
    /// used `used` of their time; if that is unknown, `other_cores` is zero.
    pub(crate) fn between(
        before: &BTreeMap<usize, CpuTimes>,
        after: &BTreeMap<usize, CpuTimes>,
        cpus: &[usize],
        elapsed: Duration,
        used: Option<Duration>,
    ) -> Self {
        let both: Vec<_> =
            cpus.iter().filter_map(|cpu| Some((before.get(cpu)?, after.get(cpu)?))).collect();
        let sum = |of: fn(&CpuTimes) -> f64| {
            both.iter().map(|(before, after)| (of(after) - of(before)).max(0.0)).sum::<f64>()
        };
        let elapsed = elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        let sure = |seconds: f64| (seconds - TICKS.as_secs_f64() * both.len() as f64).max(0.0);
        let others = used.map_or(0.0, |used| sure(sum(|it| it.busy) - used.as_secs_f64()));
        Self {
            steal_ratio: sure(sum(|it| it.steal)) / elapsed / both.len().max(1) as f64,
            other_cores: others / elapsed,
            ..Self::default()
        }
    }

    fn is_disturbed(&self) -> bool {
        self.steal_ratio > STEAL_MAX
            || self.other_cores > OTHERS_MAX
            || self.slower_ratio > SLOWER_MAX
    }

    /// Noise of a trial: before its testbed was built, and during the trial.
    pub(crate) fn of_trial(before: Self, during: Self) -> Self {
        let all = before.worst(during);
        Self { disturbed_trials: usize::from(all.is_disturbed()), ..all }
    }

    /// Noise over several trials.
    pub(crate) fn sum(trials: impl IntoIterator<Item = Self>) -> Self {
        trials.into_iter().fold(Self::default(), |sum, trial| Self {
            disturbed_trials: sum.disturbed_trials + trial.disturbed_trials,
            ..sum.worst(trial)
        })
    }

    fn worst(self, other: Self) -> Self {
        Self {
            steal_ratio: self.steal_ratio.max(other.steal_ratio),
            other_cores: self.other_cores.max(other.other_cores),
            slower_ratio: self.slower_ratio.max(other.slower_ratio),
            disturbed_trials: 0,
        }
    }

    /// Values above their limits, as text; `None` if no trial was disturbed.
    pub fn in_words(&self) -> Option<String> {
        let mut parts = Vec::new();
        if self.steal_ratio > STEAL_MAX {
            parts
                .push(format!("the hypervisor took {:.1} % of the CPUs", 100.0 * self.steal_ratio));
        }
        if self.other_cores > OTHERS_MAX {
            parts.push(format!("{:.1} cores were busy with something else", self.other_cores));
        }
        if self.slower_ratio > SLOWER_MAX {
            parts.push(format!("a CPU was {:.0} % slower", 100.0 * self.slower_ratio));
        }
        (self.disturbed_trials > 0).then(|| parts.join(", "))
    }
}

/// Watches a machine on which nothing is measured yet.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Durations of the test loop on each CPU in ticks, sorted.
    ticks: BTreeMap<usize, Vec<u64>>,
}

/// Time for which a machine is watched.
const LOOK: Duration = Duration::from_millis(100);

impl Watch {
    /// Measures the load of `cpus` while they should be idle, and their speed while all of them
    /// work.
    ///
    /// A speed is compared with the median: a CPU is at its fastest now and then, while the cores
    /// beside it sleep, and compared with that every other time would seem slow.
    pub(crate) fn look(&mut self, cpus: &[usize], cancel: &Cancel) -> Result<Noise, LabError> {
        let read = || {
            let what = "/proc/stat".to_owned();
            cpu::read().map_err(|error| LabError::System { what, error })
        };
        let (before, began) = (read()?, Instant::now());
        cancel.sleep_until(began + LOOK)?;
        let noise = Noise::between(&before, &read()?, cpus, began.elapsed(), Some(Duration::ZERO));
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
        let mut value = black_box(1_u64);
        for _ in 0..STEPS {
            value = black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
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
            Noise::between(&before, &after, &[0, 1], second, used)
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
    fn one_disturbed_trial_marks_result() {
        let noise = |steal_ratio, other_cores, slower_ratio| Noise {
            steal_ratio,
            other_cores,
            slower_ratio,
            disturbed_trials: 0,
        };
        let quiet = Noise::of_trial(noise(0.01, 0.0, 0.0), noise(0.0, 0.1, 0.05));
        assert_eq!((quiet.disturbed_trials, quiet.in_words()), (0, None));
        let stolen = Noise::of_trial(noise(0.0, 0.0, 0.2), noise(0.034, 0.0, 0.0));
        let all = Noise::sum([quiet, stolen, quiet]);
        assert_eq!(all.disturbed_trials, 1);
        let words = all.in_words().unwrap();
        assert_eq!(words, "the hypervisor took 3.4 % of the CPUs, a CPU was 20 % slower");
        let loaded = Noise::of_trial(noise(0.0, 0.5, 0.0), Noise::default());
        assert_eq!(loaded.in_words().unwrap(), "0.5 cores were busy with something else");
    }

    #[test]
    fn cpu_slowdown_is_relative_to_median() {
        let mut watch = Watch::default();
        let here = dray_lab::placement::allowed();
        let look = |watch: &mut Watch| watch.look(&here, &Cancel::default()).unwrap();
        assert_eq!(look(&mut watch).slower_ratio, 0.0, "no earlier look to compare with");
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
        assert!(look(&mut watch).slower_ratio < 0.5);
        as_if(&mut watch, &[10, 10, 10, 1]);
        assert!(look(&mut watch).slower_ratio > 0.5);
    }
}
