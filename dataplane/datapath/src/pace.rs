//! When a data thread publishes its counters, and when it sleeps.

use std::time::Duration;

use dray_port::clock;

use crate::Idle;

/// Interval at which a busy thread publishes its counters.
const PUBLISH: Duration = Duration::from_millis(1);

/// The times of a data thread's loop, in ticks.
///
/// A thread that has had no work for a while publishes and sleeps; when it wakes up without work,
/// it sleeps again at once.
pub struct Pace {
    publish: u64,
    patience: u64,
    now: u64,
    last_publish: u64,
    last_work: u64,
}

/// Consequence of a round of a data thread's loop.
pub struct Round {
    /// Tick at its end.
    pub now: u64,
    /// Length in ticks.
    pub length: u64,
    /// True if the counters have to be published.
    pub publish: bool,
    /// True if the thread has been idle for long enough to sleep.
    pub sleep: bool,
}

impl Pace {
    /// Creates the times of a thread that sleeps after `idle` without work.
    pub fn new(idle: Idle) -> Self {
        let patience = match idle {
            Idle::After(time) => clock::to_ticks(time),
            Idle::Never => u64::MAX,
        };
        let now = clock::ticks();
        let publish = clock::to_ticks(PUBLISH);
        Self { publish, patience, now, last_publish: now, last_work: now }
    }

    /// Ends a round, in which the thread `worked` or not.
    #[inline]
    pub fn round(&mut self, worked: bool) -> Round {
        let now = clock::ticks();
        let length = now - std::mem::replace(&mut self.now, now);
        if worked {
            self.last_work = now;
        }
        let sleep = now - self.last_work > self.patience;
        let publish = sleep || now - self.last_publish > self.publish;
        if publish {
            self.last_publish = now;
        }
        Round { now, length, publish, sleep }
    }

    /// Starts the next round after a sleep, which belongs to no round.
    pub fn woke(&mut self) {
        self.now = clock::ticks();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_thread_publishes_before_it_sleeps() {
        let mut pace = Pace::new(Idle::After(Duration::from_millis(2)));
        assert!(!pace.round(true).sleep);
        std::thread::sleep(Duration::from_millis(3));
        let busy = pace.round(true);
        assert!(busy.publish && !busy.sleep && busy.length >= clock::to_ticks(PUBLISH));
        std::thread::sleep(Duration::from_millis(3));
        let idle = pace.round(false);
        assert!(idle.publish && idle.sleep);
        pace.woke();
        let again = pace.round(false);
        assert!(again.publish && again.sleep, "it woke up without work");
        assert!(!pace.round(true).sleep);
    }

    #[test]
    fn thread_without_idle_time_never_sleeps() {
        let mut pace = Pace::new(Idle::Never);
        std::thread::sleep(Duration::from_millis(3));
        let round = pace.round(false);
        assert!(round.publish && !round.sleep);
    }
}
