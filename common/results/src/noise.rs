//! Noise: other activity of the machine. A figure measured during such activity is less reliable,
//! so it is marked as disturbed.

use serde::{Deserialize, Serialize};

/// Other activity of the machine; for several trials, the maximum of each value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Noise {
    /// Share of CPU time that the hypervisor took from the roles' CPUs.
    pub steal_ratio: f64,
    /// Number of these CPUs that were busy with other work.
    pub other_cores: f64,
    /// Slowdown of a CPU against its usual speed, as a share of that speed.
    pub slower_ratio: f64,
    /// Number of trials in which one of these values exceeded its limit; if above 0, measure again.
    pub disturbed_trials: usize,
    /// Number of other trials that were left out because one of these values exceeded its limit.
    #[serde(default)]
    pub left_out: usize,
}

/// Limits of stolen CPU time (ratio), of other work (cores), and of slowdown (ratio).
const STEAL_MAX: f64 = 0.01;
const OTHERS_MAX: f64 = 0.1;
const SLOWER_MAX: f64 = 0.05;

impl Noise {
    fn is_disturbed(&self) -> bool {
        self.steal_ratio > STEAL_MAX
            || self.other_cores > OTHERS_MAX
            || self.slower_ratio > SLOWER_MAX
    }

    /// Noise of a trial: before its testbed was built, and during the trial.
    pub fn of_trial(before: Self, during: Self) -> Self {
        let all = before.worst(during);
        Self { disturbed_trials: usize::from(all.is_disturbed()), ..all }
    }

    /// Noise over several trials; `left_out` others were disturbed.
    pub fn sum(trials: impl IntoIterator<Item = Self>, left_out: usize) -> Self {
        let sum = trials.into_iter().fold(Self::default(), |sum, trial| Self {
            disturbed_trials: sum.disturbed_trials + trial.disturbed_trials,
            ..sum.worst(trial)
        });
        Self { left_out, ..sum }
    }

    fn worst(self, other: Self) -> Self {
        Self {
            steal_ratio: self.steal_ratio.max(other.steal_ratio),
            other_cores: self.other_cores.max(other.other_cores),
            slower_ratio: self.slower_ratio.max(other.slower_ratio),
            ..Self::default()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_disturbed_trial_marks_result() {
        let noise = |steal_ratio, other_cores, slower_ratio| Noise {
            steal_ratio,
            other_cores,
            slower_ratio,
            ..Noise::default()
        };
        let quiet = Noise::of_trial(noise(0.01, 0.0, 0.0), noise(0.0, 0.1, 0.05));
        assert_eq!((quiet.disturbed_trials, quiet.in_words()), (0, None));
        let stolen = Noise::of_trial(noise(0.0, 0.0, 0.2), noise(0.034, 0.0, 0.0));
        let all = Noise::sum([quiet, stolen, quiet], 2);
        assert_eq!((all.disturbed_trials, all.left_out), (1, 2));
        let words = all.in_words().unwrap();
        assert_eq!(words, "the hypervisor took 3.4 % of the CPUs, a CPU was 20 % slower");
        let loaded = Noise::of_trial(noise(0.0, 0.5, 0.0), Noise::default());
        assert_eq!(loaded.in_words().unwrap(), "0.5 cores were busy with something else");
    }
}
