//! The receive queues that a worker polls: those that may have frames, and those that are silent.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use dray_port::clock;

use super::port::OpenPort;

/// Maximum number of receiving halves that a worker polls in every round, silent ones included.
const FEW: usize = 4;

/// While other ports have frames, a worker polls its silent ports at intervals of this time for
/// each of them. A poll takes some 50 ns, so silent ports take 5 % of the time, however many they
/// are.
const EACH: Duration = Duration::from_micros(1);

/// A receiving half of the worker.
pub(super) struct PolledQueue {
    pub(super) port: Arc<OpenPort>,
    pub(super) queue: usize,
    /// True if it has had frames since the last [`PollSet::sort`].
    pub(super) has_frames: bool,
}

/// The receiving halves of a worker. One of many that had no frame between two calls of
/// [`sort`](Self::sort) is silent. A worker without frames to move polls the silent ones too in
/// each round; one with frames to move, after [`EACH`] for each of them.
pub(super) struct PollSet {
    /// The ones that may have frames, then the silent ones.
    queues: Vec<PolledQueue>,
    busy: usize,
    /// [`EACH`] in ticks.
    each: u64,
    /// Tick at which the silent ones are due.
    due: u64,
}

impl Default for PollSet {
    fn default() -> Self {
        Self { queues: Vec::new(), busy: 0, each: clock::to_ticks(EACH), due: 0 }
    }
}

impl PollSet {
    pub(super) fn clear(&mut self) {
        self.queues.clear();
        self.busy = 0;
    }

    /// Adds a half, which may have frames.
    pub(super) fn add(&mut self, port: Arc<OpenPort>, queue: usize) {
        self.queues.push(PolledQueue { port, queue, has_frames: true });
        self.all_may_have_frames();
    }

    pub(super) fn all_may_have_frames(&mut self) {
        self.busy = self.queues.len();
    }

    pub(super) fn all(&self) -> &[PolledQueue] {
        &self.queues
    }

    pub(super) fn range(&mut self, range: Range<usize>) -> &mut [PolledQueue] {
        &mut self.queues[range]
    }

    /// Returns the range of ports that may have frames.
    #[inline]
    pub(super) fn busy(&self) -> Range<usize> {
        0..self.busy
    }

    /// Returns the range of silent ports if they are due at the tick `now`: at once if
    /// the other ports had no frames.
    #[inline]
    pub(super) fn silent(&mut self, others_worked: bool, now: u64) -> Option<Range<usize>> {
        let silent = self.queues.len() - self.busy;
        if silent == 0 || (others_worked && now < self.due) {
            return None;
        }
        self.due = now + self.each * silent as u64;
        Some(self.busy..self.queues.len())
    }

    /// Finds the silent ones: those without a frame since the last call.
    pub(super) fn sort(&mut self) {
        if self.queues.len() <= FEW {
            return;
        }
        let (busy, silent) = self.queues.split_at(self.busy);
        let changed = busy.iter().any(|it| !it.has_frames) || silent.iter().any(|it| it.has_frames);
        if changed {
            self.queues.sort_unstable_by_key(|it| (!it.has_frames, it.port.index, it.queue));
            self.busy = self.queues.partition_point(|it| it.has_frames);
        }
        self.queues.iter_mut().for_each(|it| it.has_frames = false);
    }
}

#[cfg(test)]
mod tests {
    use super::super::setting::Setting;
    use super::*;
    use crate::config::SwitchConfig;

    fn set(count: u16) -> PollSet {
        let setting = Setting::new(&SwitchConfig::default());
        let mut set = PollSet::default();
        for index in 0..count {
            let port = dray_port::Port { rx: Vec::new(), tx: Vec::new(), link: None };
            let config = format!("p{index}=null:").parse().unwrap();
            let port = OpenPort::new(index, config, port, &[], (1, &setting)).unwrap();
            set.add(Arc::new(port), 0);
        }
        // Frames that came before the first call count for it.
        set.sort();
        set
    }

    /// Lets the ports `with_frames` have frames, and sorts; returns the ports that are not silent.
    fn busy_after(set: &mut PollSet, with_frames: &[u16]) -> Vec<u16> {
        let all = 0..set.queues.len();
        for polled in set.range(all) {
            polled.has_frames |= with_frames.contains(&polled.port.index);
        }
        set.sort();
        let busy = set.busy();
        set.range(busy).iter().map(|polled| polled.port.index).collect()
    }

    #[test]
    fn few_ports_are_never_silent() {
        let mut set = set(FEW as u16);
        assert_eq!(busy_after(&mut set, &[3]).len(), FEW);
        assert_eq!(set.silent(false, 1), None);
    }

    #[test]
    fn ports_without_frames_become_silent_and_return() {
        let mut few = set(FEW as u16 + 1);
        assert_eq!(busy_after(&mut few, &[3]), [3]);
        let mut set = set(17);
        assert_eq!(set.busy().len(), 17);
        assert_eq!(busy_after(&mut set, &[3, 16]), [3, 16]);
        assert_eq!(busy_after(&mut set, &[16, 5]), [5, 16]);
        assert!(busy_after(&mut set, &[]).is_empty());
        assert_eq!(set.silent(false, 0), Some(0..17));
        let mut indices: Vec<u16> = set.all().iter().map(|polled| polled.port.index).collect();
        indices.sort_unstable();
        assert!(indices.into_iter().eq(0..17), "each is there once");
    }

    #[test]
    fn silent_ports_wait_for_busy_ones_only_so_long() {
        let mut set = set(64);
        assert_eq!(busy_after(&mut set, &[0, 1]), [0, 1]);
        let now = clock::ticks();
        assert_eq!(set.silent(true, now), Some(2..64));
        let after = |time: Duration| now + clock::to_ticks(time);
        assert_eq!(set.silent(true, after(Duration::from_micros(61))), None);
        assert_eq!(set.silent(true, after(Duration::from_micros(63))), Some(2..64));
        // Without frames to move, there is nothing to wait for.
        assert_eq!(set.silent(false, after(Duration::from_micros(64))), Some(2..64));
    }
}
