//! Control of data threads: they run, pause while another process may use their ports, or stop.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const PAUSE: u8 = 0;
const RUN: u8 = 1;
const STOP: u8 = 2;

/// Interval at which a paused thread reads its state, and at which the paused threads are counted.
const INTERVAL: Duration = Duration::from_micros(50);
/// Time within which a thread pauses.
const PATIENCE: Duration = Duration::from_secs(1);

/// State of the data threads of a process, which are paused at first.
#[derive(Debug, Default)]
pub struct ThreadControl {
    state: AtomicU8,
    paused: AtomicUsize,
}

impl ThreadControl {
    /// Returns true if threads run.
    #[inline(always)]
    pub fn runs(&self) -> bool {
        self.state.load(Ordering::Relaxed) == RUN
    }

    /// Returns true if threads have to stop.
    pub fn is_stopped(&self) -> bool {
        self.state.load(Ordering::SeqCst) == STOP
    }

    /// Waits while threads are paused, and calls `publish` meanwhile. A data thread calls this when
    /// threads do not [run](Self::runs), and uses no port in it. Returns false if threads have to
    /// stop.
    #[cold]
    pub fn wait(&self, mut publish: impl FnMut()) -> bool {
        self.paused.fetch_add(1, Ordering::SeqCst);
        while self.state.load(Ordering::SeqCst) == PAUSE {
            publish();
            thread::sleep(INTERVAL);
        }
        self.paused.fetch_sub(1, Ordering::SeqCst);
        !self.is_stopped()
    }

    /// Pauses all of `threads` threads; `wake` wakes those that sleep.
    ///
    /// # Errors
    /// If a thread does not pause within a second, or threads have to stop; the others run on.
    pub fn pause(&self, threads: usize, wake: impl FnOnce()) -> Result<(), String> {
        self.change(RUN, PAUSE);
        wake();
        let deadline = Instant::now() + PATIENCE;
        while self.paused.load(Ordering::SeqCst) < threads {
            if self.is_stopped() || Instant::now() > deadline {
                self.resume();
                return Err("a data thread does not let go of its ports".to_owned());
            }
            thread::sleep(INTERVAL);
        }
        Ok(())
    }

    /// Lets threads run that are paused or have not started yet.
    pub fn resume(&self) {
        self.change(PAUSE, RUN);
        // Otherwise one that is about to run could count as paused.
        while self.paused.load(Ordering::SeqCst) > 0 && !self.is_stopped() {
            thread::sleep(INTERVAL);
        }
    }

    /// Stops all threads.
    pub fn stop(&self) {
        self.state.store(STOP, Ordering::SeqCst);
    }

    fn change(&self, from: u8, to: u8) {
        // Threads that have to stop do nothing else any more.
        let _ = self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn paused_threads_do_nothing_until_they_resume() {
        let (control, uses) = (ThreadControl::default(), AtomicUsize::new(0));
        let is_paused = AtomicBool::new(true);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while control.runs() || control.wait(|| ()) {
                        assert!(!is_paused.load(Ordering::SeqCst), "it uses a port");
                        uses.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..200 {
                control.pause(2, || ()).unwrap();
                is_paused.store(true, Ordering::SeqCst);
                let before = uses.load(Ordering::SeqCst);
                thread::yield_now();
                assert_eq!(uses.load(Ordering::SeqCst), before);
                is_paused.store(false, Ordering::SeqCst);
                control.resume();
            }
            assert!(control.pause(3, || ()).is_err() && control.runs());
            control.stop();
        });
        assert!(control.pause(2, || ()).is_err() && control.is_stopped());
    }
}
