//! Estimate of how long a run will take.

use std::time::{Duration, Instant};

use crate::plan::{Case, Plan};

/// Overhead per trial: starting the roles, draining, sometimes building a testbed.
const BESIDE: Duration = Duration::from_millis(500);
/// Approximate number of trials of a search for one rate.
const TRIALS_EACH: u32 = 20;

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
        let timing = plan.settings.timing;
        let goals = plan.settings.goals_of(case);
        if goals.is_empty() || case.technique.endpoint.is_stream() {
            return timing.warm_up + timing.measure + BESIDE;
        }
        goals.iter().map(|goal| TRIALS_EACH * (goal.trial + BESIDE / 4)).sum()
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
