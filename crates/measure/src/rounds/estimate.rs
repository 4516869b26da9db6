//! How long a run will take.

use std::time::{Duration, Instant};

use crate::plan::{Case, Plan};

/// What a trial takes beside its own time: to tell everybody, to drain, to build a testbed now and then.
const BESIDE: Duration = Duration::from_millis(500);
/// Trials of a search for one rate, about.
const TRIALS_EACH: u32 = 20;

/// What was planned, and what it took in truth.
#[derive(Debug)]
pub(super) struct Estimate {
    began: Instant,
    done: Duration,
    left: Duration,
}

impl Estimate {
    /// Of what is still to be done.
    pub(super) fn new(left: Duration) -> Self {
        Self { began: Instant::now(), done: Duration::ZERO, left }
    }

    /// How long a case takes once, by plan.
    pub(super) fn of(plan: &Plan, case: &Case) -> Duration {
        let timing = plan.settings.timing;
        let goals = plan.settings.goals_of(case);
        if goals.is_empty() || case.technique.endpoint.is_stream() {
            return timing.warm_up + timing.measure + BESIDE;
        }
        goals.iter().map(|goal| TRIALS_EACH * (goal.trial + BESIDE / 4)).sum()
    }

    /// What was planned to take so long is done.
    pub(super) fn done(&mut self, planned: Duration) {
        self.done += planned;
        self.left = self.left.saturating_sub(planned);
    }

    /// How long the rest takes, if it goes on like this.
    pub(super) fn left(&self) -> Duration {
        if self.done.is_zero() {
            return self.left;
        }
        self.left.mul_f64(self.began.elapsed().as_secs_f64() / self.done.as_secs_f64())
    }
}
