//! Activity of a data thread, for control threads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use dray_port::clock;

/// Activity of a data thread since its start, as it last published it. Only that thread writes.
#[derive(Debug, Default)]
pub struct Activity {
    work: AtomicU64,
    batches: AtomicU64,
    frames: AtomicU64,
    sleeps: AtomicU64,
    beats: AtomicU64,
}

/// Batches and frames that a data thread has moved, in plain numbers that it publishes now and
/// then.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moved {
    /// Batches of at least one frame that were received.
    pub batches: u64,
    /// Frames in these batches.
    pub frames: u64,
}

impl Moved {
    /// Adds a batch of `frames` frames, unless there are none.
    #[inline]
    pub fn add(&mut self, frames: usize) {
        self.batches += u64::from(frames > 0);
        self.frames += frames as u64;
    }
}

impl std::ops::AddAssign for Moved {
    fn add_assign(&mut self, other: Self) {
        self.batches += other.batches;
        self.frames += other.frames;
    }
}

impl Activity {
    /// Publishes the ticks with work and what was moved since the start.
    pub fn publish(&self, work: u64, moved: Moved) {
        self.work.store(work, Relaxed);
        self.batches.store(moved.batches, Relaxed);
        self.frames.store(moved.frames, Relaxed);
        self.beats.store(self.beats.load(Relaxed) + 1, Relaxed);
    }

    /// Counts a sleep.
    pub fn slept(&self) {
        self.sleeps.store(self.sleeps.load(Relaxed) + 1, Relaxed);
    }

    /// Returns the time with frames to move.
    pub fn work(&self) -> Duration {
        clock::to_duration(self.work.load(Relaxed))
    }

    /// Returns what was moved.
    pub fn moved(&self) -> Moved {
        Moved { batches: self.batches.load(Relaxed), frames: self.frames.load(Relaxed) }
    }

    /// Returns the number of times that the thread went to sleep.
    pub fn sleeps(&self) -> u64 {
        self.sleeps.load(Relaxed)
    }

    /// Returns the number of times that it has published: a thread that is well does so at least
    /// each time that it is woken.
    pub fn beats(&self) -> u64 {
        self.beats.load(Relaxed)
    }
}

/// Time in which a thread that is well publishes, on a busy machine too.
const BEAT: Duration = Duration::from_secs(2);

/// Waits until each of some data threads has published once more, after `wake` has woken those that
/// sleep. The error names those that have not done so in two seconds.
pub fn check_alive<'a>(
    threads: impl Iterator<Item = (String, &'a Activity)>,
    wake: impl FnOnce(),
) -> Result<(), String> {
    let mut silent: Vec<_> =
        threads.map(|(name, activity)| (name, activity, activity.beats())).collect();
    wake();
    let began = std::time::Instant::now();
    while !silent.is_empty() && began.elapsed() < BEAT {
        silent.retain(|(_, activity, before)| activity.beats() == *before);
        if !silent.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let names: Vec<_> = silent.into_iter().map(|(name, ..)| name).collect();
    match names.as_slice() {
        [] => Ok(()),
        names => Err(format!("no sign of life for {} s: {}", BEAT.as_secs(), names.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activity_is_what_was_published() {
        let activity = Activity::default();
        let mut moved = Moved::default();
        [0, 3, 5].into_iter().for_each(|frames| moved.add(frames));
        activity.publish(clock::to_ticks(Duration::from_secs(1)), moved);
        activity.slept();
        let Moved { batches, frames } = activity.moved();
        assert_eq!((batches, frames, activity.sleeps(), activity.beats()), (2, 8, 1, 1));
        assert!(activity.work().abs_diff(Duration::from_secs(1)) < Duration::from_millis(1));
    }

    #[test]
    fn silent_thread_is_named() {
        let [well, silent] = [(); 2].map(|()| Activity::default());
        let threads = [("one".to_owned(), &well), ("two".to_owned(), &silent)];
        let woken = || well.publish(0, Moved::default());
        let error = check_alive(threads.into_iter(), woken).unwrap_err();
        assert_eq!(error, "no sign of life for 2 s: two");
        let woken = || well.publish(0, Moved::default());
        assert_eq!(check_alive([("one".to_owned(), &well)].into_iter(), woken), Ok(()));
    }
}
