//! Estimate of how long a run will take.

use std::time::{Duration, Instant};

use super::journal::{Journal, LimitTrial};
use crate::plan::{Case, Plan, Settings};
use crate::state::{State, lacks};

/// Overhead per trial: starting the roles, draining, sometimes building a testbed.
const OVERHEAD: Duration = Duration::from_millis(500);
/// Approximate number of trials of a search for one rate.
const TRIALS_EACH: u32 = 40;

impl Plan {
    /// Returns the approximate time that the plan takes: rows x trials x length of a trial. Cases
    /// that this host is known to lack take no time.
    pub fn duration(&self) -> Duration {
        let cases: Duration = self.cases.iter().map(|case| Estimate::of(self, case)).sum();
        let limits = limit_duration(&self.settings) * self.limit_sizes.len() as u32;
        (cases + limits) * self.settings.trials as u32
    }

    /// Returns the approximate time that the rest of a run takes. Of trials that are repeated, this
    /// is the time of one round: how many follow is known only after it.
    pub fn left(&self, journal: &Journal) -> Duration {
        let (settings, of_run) = (&self.settings, journal.distance());
        let rounds = |done: usize, states: &[State]| {
            let repeats = done < settings.rounds() && lacks(states, of_run, settings.trials);
            settings.trials.saturating_sub(done).max(usize::from(repeats)) as u32
        };
        let cases = self.cases.iter().zip(&journal.cases).map(|(case, trials)| {
            Estimate::of(self, case) * rounds(trials.rounds, &trials.states())
        });
        let limits = journal.limits.iter().map(|trials| {
            let states: Vec<_> = trials.iter().map(LimitTrial::state).collect();
            limit_duration(settings) * rounds(trials.len(), &states)
        });
        cases.chain(limits).sum()
    }
}

/// Returns how long the machine's limit is measured for each frame size.
pub(super) fn limit_duration(settings: &Settings) -> Duration {
    /// The limit is steady: longer measurements are not more exact.
    const MAX: Duration = Duration::from_secs(1);
    settings.timing.measure.min(MAX)
}

/// Planned time compared with the time that it took.
#[derive(Debug)]
pub(super) struct Estimate {
    began: Instant,
    done: Duration,
    left: Duration,
}

impl Estimate {
    /// Creates an estimate for a run with `left` to do.
    pub(super) fn new(left: Duration) -> Self {
        Self { began: Instant::now(), done: Duration::ZERO, left }
    }

    /// Returns the planned time of one trial or search of a case.
    pub(super) fn of(plan: &Plan, case: &Case) -> Duration {
        if plan.lacks(case.technique) {
            return Duration::ZERO;
        }
        let timing = plan.settings.timing;
        let trial = timing.warm_up + timing.measure + OVERHEAD;
        if case.technique.endpoint.is_stream() {
            return trial;
        }
        let goals = plan.settings.goals_of(case);
        let search = goals.iter().map(|goal| TRIALS_EACH * (goal.trial + OVERHEAD / 4)).sum();
        match case.share {
            _ if goals.is_empty() => trial,
            None => search,
            // One search is for all shares.
            share if share == plan.experiment.shares.first().copied() => search + trial,
            Some(_) => trial,
        }
    }

    /// Records that work planned to take `planned` is done.
    pub(super) fn done(&mut self, planned: Duration) {
        self.done += planned;
        self.left = self.left.saturating_sub(planned);
    }

    /// Returns the time that the rest will take at the current pace.
    pub(super) fn left(&self) -> Duration {
        if self.done.is_zero() {
            return self.left;
        }
        self.left.mul_f64(self.began.elapsed().as_secs_f64() / self.done.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::{EXPERIMENTS, find};
    use crate::plan::Choices;
    use crate::trial::Trial;

    fn plan(experiment: &str, choices: &Choices) -> Plan {
        Plan::new(find(experiment).unwrap(), choices).unwrap()
    }

    #[test]
    fn duration_is_rows_times_trials_times_seconds() {
        for experiment in EXPERIMENTS {
            for quick in [false, true] {
                let plan = plan(experiment.name, &Choices { quick, ..Choices::default() });
                let Settings { timing, trials, .. } = plan.settings.clone();
                let each = (timing.warm_up + timing.measure).as_secs_f64() + 0.5;
                let is_searched = |case: &&Case| {
                    !case.technique.endpoint.is_stream() && !plan.settings.goals_of(case).is_empty()
                };
                let cases = plan.cases.iter().filter(|case| !plan.lacks(case.technique));
                let searched = cases.clone().filter(is_searched);
                let first = experiment.shares.first().copied();
                let searches = searched.clone().filter(|case| [None, first].contains(&case.share));
                let trials_of_searches =
                    searched.clone().filter(|case| case.share.is_some()).count();
                let plain = cases.count() - searched.count() + trials_of_searches;
                let goals = plan.settings.goals.iter();
                let search: f64 = goals.map(|it| 40.0 * (it.trial.as_secs_f64() + 0.125)).sum();
                let limits = plan.limit_sizes.len() as f64 * timing.measure.as_secs_f64().min(1.0);
                let round = plain as f64 * each + searches.count() as f64 * search + limits;
                let (expected, given) = (trials as f64 * round, plan.duration().as_secs_f64());
                let name = experiment.name;
                assert!((given - expected).abs() < 1e-3, "{name}: {given} s, not {expected} s");
            }
        }
    }

    #[test]
    fn time_left_is_of_planned_trials_then_of_one_round_of_repeats() {
        let techniques = Some(vec!["veth/udp".to_owned()]);
        let plan = plan("all", &Choices { techniques, ..Choices::default() });
        let mut journal = Journal::new(&plan, String::new());
        let seconds = |journal: &Journal| plan.left(journal).as_secs_f64();
        let trials = |ns: f64| {
            let lines = serde_json::json!({"before_ns": ns, "after_ns": ns});
            let lines = Some(serde_json::from_value(lines).unwrap());
            vec![Trial { lines, ..Trial::default() }]
        };
        assert_eq!(seconds(&journal), 25.0);
        (journal.cases[0].rounds, journal.cases[0].trials) = (1, trials(50.0));
        assert_eq!(seconds(&journal), 12.5);
        // The second case's CPUs were far, unlike those of the run: it is repeated.
        (journal.cases[1].rounds, journal.cases[1].trials) = (1, trials(500.0));
        assert_eq!(seconds(&journal), 12.5);
        journal.cases[1].rounds = plan.settings.rounds();
        assert_eq!(seconds(&journal), 0.0);
    }

    #[test]
    fn duration_follows_the_choices() {
        let seconds = |technique: &str, trials| {
            let techniques = Some(vec![technique.to_owned()]);
            let choices = Choices { techniques, trials: Some(trials), ..Choices::default() };
            plan("all", &choices).duration().as_secs_f64()
        };
        // Two sizes, 2 s of warm-up, 10 s of measurement, half a second beside them.
        assert_eq!(seconds("veth/udp", 1), 25.0);
        assert_eq!(seconds("veth/udp", 3), 75.0);
        // And a second for the machine's limit at each size.
        assert_eq!(seconds("direct", 1), 27.0);
    }
}
