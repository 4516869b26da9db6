//! A worker: a thread that polls its ports and moves their frames.

use std::ops::{Deref, Range};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

use dray_capture::Tap;
use dray_datapath::{self as datapath, Activity, Pace, Round, lock};
use dray_port::{Frame, clock};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::learning::Learner;
use super::patch;
use super::poll_set::{PollSet, PolledQueue};
use super::port::OpenPort;
use super::setting::Setting;
use super::shaper::{Released, Shaper, Step};
use super::tally::Tally;
use super::view::View;
use crate::config::{Flow, Mode};
use crate::counters::{Counters, DropReason};

/// Time over which the load is measured.
const LOAD: Duration = Duration::from_secs(1);

/// Sleep of a worker that has no event to wait for, while a receiver has no room for its frames.
const NAP: Duration = Duration::from_micros(50);

/// State that control threads and a worker share.
pub(super) struct Shared {
    setting: Arc<Setting>,
    number: usize,
    view: Mutex<Arc<View>>,
    /// Number of views published, and the number of the one that the worker uses.
    published: AtomicU64,
    adopted: AtomicU64,
    wake: OwnedFd,
    /// Share of the last second with frames to move, in units of 1/1000.
    load: AtomicU32,
    activity: Activity,
    tap: Arc<Tap>,
}

impl Shared {
    pub(super) fn new(setting: Arc<Setting>, number: usize) -> std::io::Result<Self> {
        Ok(Self {
            setting,
            number,
            view: Mutex::default(),
            published: AtomicU64::new(0),
            adopted: AtomicU64::new(0),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            load: AtomicU32::new(0),
            activity: Activity::default(),
            tap: Arc::default(),
        })
    }

    /// Makes `view` the present one.
    pub(super) fn publish(&self, view: Arc<View>) {
        *lock(&self.view) = view;
        self.published.fetch_add(1, Ordering::Release);
        self.wake();
    }

    /// Waits until the worker uses the view published last.
    pub(super) fn wait_adopted(&self) {
        let published = self.published.load(Ordering::Acquire);
        // A batch takes microseconds; a worker that has ended never adopts anything again.
        while self.adopted.load(Ordering::Acquire) < published
            && !self.setting.control.is_stopped()
            && dray_daemon::failure().is_none()
        {
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// Returns the share of the last second with frames to move.
    pub(super) fn load(&self) -> f64 {
        f64::from(self.load.load(Ordering::Relaxed)) / 1000.0
    }

    pub(super) fn tap(&self) -> &Arc<Tap> {
        &self.tap
    }

    pub(super) fn activity(&self) -> &Activity {
        &self.activity
    }

    pub(super) fn wake(&self) {
        // A write to a full counter fails, but then the worker has not read it yet and wakes
        // anyway.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// State of a worker; `S` points to what it shares with control threads.
pub(super) struct Worker<S> {
    shared: S,
    view: Arc<View>,
    adopted: u64,
    queues: PollSet,
    tally: Tally,
    learner: Learner,
}

/// Result of polling all ports once.
#[derive(Default)]
pub(super) struct Moved {
    frames: datapath::Moved,
    /// True if frames that had waited for their rate were forwarded.
    released: bool,
    /// True if frames wait because their receiver is full.
    held_back: bool,
}

impl Moved {
    fn add(&mut self, released: Released) {
        self.released |= released.frames > 0;
        self.held_back |= released.is_blocked;
    }
}

/// Runs a worker on the calling thread until the switch stops it.
pub(super) fn run(shared: &Shared) {
    Worker::new(shared).run();
}

impl<S: Deref<Target = Shared>> Worker<S> {
    pub(super) fn new(shared: S) -> Self {
        let tally = Tally::new(0, shared.number, shared.tap.clone());
        Self {
            shared,
            view: Arc::default(),
            adopted: 0,
            queues: PollSet::default(),
            tally,
            learner: Learner::new(),
        }
    }

    /// Adopts the present view, moves one batch of each port, and publishes the counters.
    pub(super) fn step(&mut self) {
        self.adopt();
        self.queues.all_may_have_frames();
        self.round(0);
        self.tally.publish(self.view.all());
    }

    /// Publishes the counters and finds the silent ports.
    pub(super) fn publish(&mut self) {
        self.tally.publish(self.view.all());
        self.queues.sort();
    }

    fn run(&mut self) {
        let mut pace = Pace::new(self.shared.setting.idle);
        let load = clock::to_ticks(LOAD);
        // Ticks with frames to move: in all, and when the present load measurement began.
        let (mut work, mut work_before, mut load_from) = (0, 0, clock::ticks());
        let (mut now, mut moved) = (load_from, datapath::Moved::default());
        loop {
            if !self.shared.setting.control.runs() {
                // Frames that wait for their rates are forwarded early, so that none is lost.
                self.flush(&View::default());
                let publish = || {
                    self.tally.publish(self.view.all());
                    self.shared.activity.publish(work, moved);
                };
                if !self.shared.setting.control.wait(publish) {
                    return;
                }
                pace.woke();
            }
            self.adopt();
            let Moved { frames, released, held_back } = self.round(now);
            let worked = frames.batches > 0 || released;
            let Round { now: end, length, publish, sleep } = pace.round(worked);
            now = end;
            if worked {
                work += length;
                moved += frames;
            }
            if publish {
                self.publish();
                self.shared.activity.publish(work, moved);
                if now - load_from > load {
                    let thousandths = (work - work_before) * 1000 / (now - load_from);
                    self.shared.load.store(thousandths as u32, Ordering::Relaxed);
                    (load_from, work_before) = (now, work);
                }
            }
            if sleep {
                self.sleep(held_back);
                pace.woke();
            }
        }
    }

    /// Adopts the present view if it is new.
    #[inline]
    fn adopt(&mut self) {
        let published = self.shared.published.load(Ordering::Acquire);
        if published != self.adopted {
            self.adopt_new(published);
        }
    }

    #[cold]
    fn adopt_new(&mut self, published: u64) {
        let after = lock(&self.shared.view).clone();
        self.flush(&after);
        self.tally.publish(self.view.all());
        let before = std::mem::replace(&mut self.view, after);
        // An index may be given to another port later, whose counters must begin at zero.
        self.tally.adopt(self.view.ports.len(), &self.view.mirrors);
        for index in 0..self.view.ports.len() as u16 {
            if !self.view.has(&before, index) {
                *self.tally.of(index) = Counters::default();
            }
        }
        self.queues.clear();
        for port in self.view.all().filter(|port| port.config.mirror.is_empty()) {
            for (queue, half) in port.rx.iter().enumerate() {
                if half.worker == self.shared.number {
                    self.queues.add(port.clone(), queue);
                }
            }
        }
        self.adopted = published;
        // The thread that removed a port drops it, not the worker.
        drop(before);
        self.shared.adopted.store(published, Ordering::Release);
    }

    /// Moves one batch of each port that may have frames. `now` is about the present tick.
    #[inline]
    pub(super) fn round(&mut self, now: u64) -> Moved {
        let mut moved = Moved::default();
        if !self.tally.backlog.is_empty() {
            self.release(&mut moved);
        }
        let mut ports = self.queues.busy();
        // A loop, so that the code that moves frames is there once.
        for are_silent in [false, true] {
            if are_silent {
                match self.queues.silent(moved.frames.batches > 0, now) {
                    Some(silent) => ports = silent,
                    None => break,
                }
            }
            self.poll(ports.clone(), &mut moved);
        }
        moved
    }

    /// Moves one batch of each of some ports.
    #[inline]
    fn poll(&mut self, range: Range<usize>, moved: &mut Moved) {
        let Self { shared, view, queues, tally, learner, .. } = self;
        let setting = &*shared.setting;
        for PolledQueue { port, queue, has_frames } in queues.range(range) {
            if let Some(rate) = &port.rate_in
                && rate.is_waiting(*queue)
            {
                let (now, learner) = (clock::ticks(), &mut *learner);
                moved.add(rate.release(*queue, now, |frames| {
                    forward(view, (setting, setting.flow), port, frames, (learner, tally))
                }));
                *has_frames = true;
            }
            let mut rx = match port.rx[*queue].port.try_lock() {
                Ok(rx) => rx,
                Err(TryLockError::Poisoned(rx)) => rx.into_inner(),
                // A control thread has locked it.
                Err(TryLockError::WouldBlock) => continue,
            };
            let result = match setting.mode {
                Mode::Patch => rx.receive(&mut |frames| {
                    let pass = |frames: &[Frame<'_>], tally: &mut Tally| {
                        patch::forward(view, setting.flow, port, frames, tally)
                    };
                    let done = match &port.rate_in {
                        None => pass(frames, tally),
                        Some(rate) => shape_in(port, (rate, *queue), frames, tally, pass),
                    };
                    // Only now is it known how many frames are done with: a capture shows a frame
                    // as sent before it shows it as received.
                    tally.received(port, &frames[..done]);
                    moved.frames.add(done);
                    moved.held_back |= done == 0;
                    done
                }),
                Mode::Learning => rx.receive(&mut |frames| {
                    tally.received(port, frames);
                    let mut pass = |frames: &[Frame<'_>], tally: &mut Tally| {
                        learner.forward(view, setting, port, frames, tally);
                        frames.len()
                    };
                    match &port.rate_in {
                        None => pass(frames, tally),
                        Some(rate) => shape_in(port, (rate, *queue), frames, tally, pass),
                    };
                    moved.frames.add(frames.len());
                    frames.len()
                }),
            };
            match result {
                Ok(0) => {}
                Ok(_) => {
                    *has_frames = true;
                    port.recovered();
                }
                Err(error) => port.failed(&error),
            }
        }
    }

    /// Forwards frames that have waited for the rate of their egress port or for its receiver.
    #[cold]
    fn release(&mut self, moved: &mut Moved) {
        let Self { view, tally, .. } = self;
        let (mut at, now) = (0, clock::ticks());
        while let Some(index) = tally.backlog.get(at) {
            let released = match view.port(*index) {
                Some(port) => tally.release(port, now),
                None => Released::NOTHING,
            };
            moved.add(released);
            if released.is_empty {
                tally.backlog.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Forwards frames that wait at ports missing in the view `after`, before their time.
    fn flush(&mut self, after: &View) {
        let Self { shared, view, queues, tally, learner, .. } = self;
        let (setting, number) = (&*shared.setting, shared.number);
        let is_lost = |port: &OpenPort| !after.has(view, port.index);
        for PolledQueue { port, queue, .. } in
            queues.all().iter().filter(|queue| is_lost(&queue.port))
        {
            let Some(rate) = &port.rate_in else { continue };
            rate.release(*queue, u64::MAX, |frames| {
                forward(view, (setting, Flow::Drop), port, frames, (learner, tally))
            });
        }
        for port in view.all().filter(|port| is_lost(port)) {
            tally.flush(port);
        }
        let waits = |index: &u16| view.port(*index).is_some_and(|port| port.is_waiting(number));
        tally.backlog.retain(waits);
    }

    /// Returns the tick at which the next frame that waits for a rate may be forwarded.
    fn next_release(&self) -> Option<u64> {
        let incoming =
            self.queues.all().iter().filter_map(|it| it.port.rate_in.as_ref()?.next(it.queue));
        let to = |index: &u16| self.view.port(*index)?.rate_out.as_ref()?.next(self.shared.number);
        incoming.chain(self.tally.backlog.iter().filter_map(to)).min()
    }

    /// Sleeps until a frame arrives, one that waits for a rate may be forwarded, or a control
    /// thread wakes the worker. Sleeps only briefly while a receiver is full, because no event
    /// reports that it has room again.
    #[cold]
    fn sleep(&mut self, held_back: bool) {
        let mut ready = false;
        for PolledQueue { port, queue, .. } in self.queues.all() {
            ready |= lock(&port.rx[*queue].port).arm(true);
        }
        let until = |tick: u64| clock::to_duration(tick.saturating_sub(clock::ticks()));
        let time = held_back.then_some(NAP).into_iter().chain(self.next_release().map(until)).min();
        if (!ready || held_back) && time != Some(Duration::ZERO) {
            self.shared.activity.slept();
            let mut fds = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
            // Without a lock, so that control threads can access the ports meanwhile.
            let events =
                self.queues.all().iter().filter_map(|it| it.port.rx[it.queue].event.as_ref());
            fds.extend(events.map(|fd| PollFd::new(fd, PollFlags::IN)));
            let nap = time.map(|time| Timespec {
                tv_sec: time.as_secs() as i64,
                tv_nsec: time.subsec_nanos().into(),
            });
            // Interrupted or not, the next round finds out what is ready.
            let _ = poll(&mut fds, nap.as_ref());
            if fds.iter().any(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::NVAL)) {
                // A broken port that reports errors forever must not keep a CPU busy.
                std::thread::sleep(NAP);
            }
        }
        let _ = rustix::io::read(self.shared.wake.as_fd(), &mut [0; 8]);
        for PolledQueue { port, queue, .. } in self.queues.all() {
            lock(&port.rx[*queue].port).arm(false);
        }
    }
}

/// Moves `frames`, received on port `from`; returns how many are done with. `flow` is for patch
/// mode.
fn forward(
    view: &View,
    (setting, flow): (&Setting, Flow),
    from: &OpenPort,
    frames: &[Frame<'_>],
    (learner, tally): (&mut Learner, &mut Tally),
) -> usize {
    match setting.mode {
        Mode::Patch => patch::forward(view, flow, from, frames, tally),
        Mode::Learning => {
            learner.forward(view, setting, from, frames, tally);
            frames.len()
        }
    }
}

/// Passes those of `frames`, received on the queue `queue` of `port`, that may be forwarded now to
/// `forward`, which returns how many are done with; the others wait, or are dropped. Returns how
/// many of all are done with.
#[inline(never)]
fn shape_in(
    port: &OpenPort,
    (rate, queue): (&Shaper, usize),
    frames: &[Frame<'_>],
    tally: &mut Tally,
    mut forward: impl FnMut(&[Frame<'_>], &mut Tally) -> usize,
) -> usize {
    rate.pass(queue, frames, |step| match step {
        Step::Pass(frames) => forward(frames, tally),
        Step::Wait(frames) => {
            tally.of(port.index).delayed_in += frames.len() as u64;
            frames.len()
        }
        Step::Drop(frames) => {
            tally.dropped(port, DropReason::PolicedIn, frames);
            frames.len()
        }
    })
}
