//! Course of the data threads: they run, rest while another process may use the ports, or end.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const REST: u8 = 0;
const RUN: u8 = 1;
const END: u8 = 2;

/// Interval between looks at what a resting thread is told, and at whether all rest.
const LOOK: Duration = Duration::from_micros(50);
/// Time within which a thread comes to rest.
const PATIENCE: Duration = Duration::from_secs(1);

/// The course of data threads, which rest at first.
#[derive(Debug, Default)]
pub(crate) struct Course {
    order: AtomicU8,
    resting: AtomicUsize,
    continues: bool,
}

impl Course {
    /// Returns true if threads run.
    #[inline(always)]
    pub(crate) fn runs(&self) -> bool {
        self.order.load(Ordering::Relaxed) == RUN
    }

    /// For a thread that uses no port now: waits while threads rest, and calls `beat` meanwhile. Returns
    /// false if they have to end.
    #[cold]
    pub(crate) fn rest(&self, mut beat: impl FnMut()) -> bool {
        self.resting.fetch_add(1, Ordering::SeqCst);
        while self.order.load(Ordering::SeqCst) == REST {
            beat();
            thread::sleep(LOOK);
        }
        self.resting.fetch_sub(1, Ordering::SeqCst);
        !self.has_ended()
    }

    /// Returns the course of threads that continue another process.
    pub(crate) fn of_successor(continues: bool) -> Self {
        Self { continues, ..Self::default() }
    }

    /// Returns true if threads continue another process when they run first.
    pub(crate) fn continues(&self) -> bool {
        self.continues
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.order.load(Ordering::SeqCst) == END
    }

    /// Returns once all of so many threads rest.
    ///
    /// # Errors
    /// If one does not, or they have been told to end; others go on.
    pub(crate) fn hold(&self, threads: usize) -> Result<(), String> {
        self.change(RUN, REST);
        let deadline = Instant::now() + PATIENCE;
        while self.resting.load(Ordering::SeqCst) < threads {
            if self.has_ended() || Instant::now() > deadline {
                self.go();
                return Err("a data thread does not let go of its ports".to_owned());
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Has threads run, which rest or have not started yet.
    pub(crate) fn go(&self) {
        self.change(REST, RUN);
        // Otherwise one that is about to run could count as resting.
        while self.resting.load(Ordering::SeqCst) > 0 && !self.has_ended() {
            thread::sleep(LOOK);
        }
    }

    /// Has threads end.
    pub(crate) fn end(&self) {
        self.order.store(END, Ordering::SeqCst);
    }

    fn change(&self, from: u8, to: u8) {
        // Threads that have to end do nothing else any more.
        let _ = self.order.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn held_threads_do_nothing_until_they_go_on() {
        let (course, uses) = (Course::default(), AtomicUsize::new(0));
        let holds = AtomicBool::new(true);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while course.runs() || course.rest(|| ()) {
                        assert!(!holds.load(Ordering::SeqCst), "it has been let go of");
                        uses.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..200 {
                course.hold(2).unwrap();
                holds.store(true, Ordering::SeqCst);
                let before = uses.load(Ordering::SeqCst);
                thread::yield_now();
                assert_eq!(uses.load(Ordering::SeqCst), before);
                holds.store(false, Ordering::SeqCst);
                course.go();
            }
            assert!(course.hold(3).is_err() && course.runs());
            course.end();
        });
        assert!(course.hold(2).is_err() && course.has_ended());
    }
}
