//! Lines about what a role waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dray_traffic::{Job, Watch};

/// Time without a peer, or without a frame, after which a role says so.
const SILENCE: Duration = Duration::from_secs(1);

/// Prints what a role waits for, once for each reason.
pub(super) struct Waiting {
    watch: Watch,
    /// Frames that the role should receive, and where.
    frames: Option<String>,
    /// Bytes counted so far.
    bytes: Arc<AtomicU64>,
    since: Instant,
    shown: Option<String>,
}

impl Waiting {
    pub(super) fn new(watch: Watch, frames: Option<String>, bytes: Arc<AtomicU64>) -> Self {
        Self { watch, frames, bytes, since: Instant::now(), shown: None }
    }

    /// Returns a new line, if there is one. Called repeatedly.
    pub(super) fn line(&mut self) -> Option<String> {
        let frames = || match &self.frames {
            Some(frames) if self.bytes.load(Ordering::Relaxed) == 0 => {
                Some(format!("{frames}: none has arrived"))
            }
            _ => None,
        };
        let reason = self.watch.missing().or_else(frames);
        self.next(reason, Instant::now())
    }

    fn next(&mut self, reason: Option<String>, now: Instant) -> Option<String> {
        if reason.is_none() {
            (self.since, self.shown) = (now, None);
        }
        // A peer that comes and goes causes at most one line a second.
        if reason == self.shown || now.duration_since(self.since) < SILENCE {
            return None;
        }
        (self.since, self.shown) = (now, reason.clone());
        reason.map(|reason| format!("waiting for {reason}"))
    }

    /// Returns what the role still waits for.
    pub(super) fn missing(&self) -> Option<String> {
        self.watch.missing()
    }
}

/// Returns the frames that a role waits for once its peers are there.
pub(super) fn frames_of(job: &Job) -> Option<String> {
    Some(match job {
        Job::Receive(job) => {
            let ports: Vec<_> = job.ports.iter().map(ToString::to_string).collect();
            format!("a test frame at {}", ports.join(", "))
        }
        Job::Forward(job) => format!("a frame at {}", job.ports.0),
        Job::Echo(job) => format!("a frame at {}", job.port),
        Job::Ping(job) => format!("a reply at {}", job.output.port),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_printed_once_after_a_second() {
        let mut waiting = Waiting::new(Watch::default(), None, Arc::default());
        let start = waiting.since;
        let mut at = |ms: u64, reason: Option<&str>| {
            waiting.next(reason.map(str::to_owned), start + Duration::from_millis(ms))
        };
        assert_eq!(at(900, Some("a")), None);
        assert_eq!(at(1000, Some("a")).as_deref(), Some("waiting for a"));
        assert_eq!(at(5000, Some("a")), None);
        assert_eq!(at(5100, Some("b")).as_deref(), Some("waiting for b"));
        assert_eq!(at(5200, Some("a")), None, "too many lines");
        assert_eq!(at(6100, Some("a")).as_deref(), Some("waiting for a"));
        assert_eq!(at(7000, None), None);
        assert_eq!(at(7900, Some("a")), None);
        assert_eq!(at(8000, Some("a")).as_deref(), Some("waiting for a"));
    }

    #[test]
    fn silence_ends_with_the_first_frame() {
        let bytes = Arc::<AtomicU64>::default();
        let mut waiting = Waiting::new(Watch::default(), Some("a frame".to_owned()), bytes.clone());
        waiting.since -= SILENCE;
        assert_eq!(waiting.line().as_deref(), Some("waiting for a frame: none has arrived"));
        bytes.store(64, Ordering::Relaxed);
        assert!(waiting.line().is_none() && waiting.shown.is_none());
    }
}
