//! A worker of a direction with its queues: the work of a data thread.

use std::io;
use std::time::Duration;

use dray_datapath::{Activity, Idle, Moved, Pace, ThreadControl};
use dray_port::{PATIENCE, Receive, Wait, clock, wait_any};

use crate::counters::{Counters, DropReason};
use crate::path::{Change, Forwarder, State};

/// Interval at which a worker reads the lost frames of its port, which takes system calls.
const LOSSES: Duration = Duration::from_millis(200);

/// A worker of one direction: receives on one interface and transmits on the other.
pub struct Worker {
    rx: Vec<Box<dyn Receive>>,
    forwarder: Forwarder,
    state: State,
    moved: Moved,
    losses: Losses,
}

/// Lost frames of the port that are counted so far.
#[derive(Default)]
struct Losses {
    missed: u64,
    refused: u64,
    /// Tick from which on they are counted again; [`NEVER`] while another process counts them.
    due: u64,
}

const NEVER: u64 = u64::MAX;

impl Worker {
    pub(crate) fn new(mut rx: Vec<Box<dyn Receive>>, forwarder: Forwarder, state: State) -> Self {
        // A worker that polls several queues must not wait on one of them.
        rx.iter_mut().for_each(|rx| rx.set_wait(Wait::Poll { pause_us: 0 }));
        Self { rx, forwarder, state, moved: Moved::default(), losses: Losses::default() }
    }

    /// Applies a change before the worker runs.
    pub(crate) fn change(&mut self, change: &mut Change) {
        self.state.change(&mut self.forwarder, change);
    }

    /// Applies pending changes and moves one batch of each queue; returns true if anything moved.
    /// While the egress port has no room, no packet is taken.
    #[inline]
    pub fn poll(&mut self) -> io::Result<bool> {
        let Self { rx, forwarder, state, moved, .. } = self;
        if forwarder.is_full() {
            return Ok(forwarder.release());
        }
        let mut worked = forwarder.has_shaped() && forwarder.release_shaped(clock::ticks());
        worked |= state.adopt(forwarder);
        for rx in rx {
            if forwarder.is_full() {
                break;
            }
            let lent = rx.receive(&mut |frames| state.take(forwarder, frames))?;
            moved.add(lent);
            worked |= lent > 0;
        }
        Ok(worked)
    }

    /// Sleeps until a frame may have arrived or a packet may leave, at most [`PATIENCE`]. While
    /// packets wait for the egress port, only yields to other threads.
    pub fn sleep(&mut self) -> io::Result<()> {
        sleep(std::slice::from_mut(self))
    }

    /// Returns its counters, up to date.
    pub fn counters(&self) -> Counters {
        let buffered = self.state.waiting() + self.forwarder.held();
        Counters { buffered, ..self.forwarder.counters }
    }

    /// Counts the frames that the port has lost since the last call.
    fn count_losses(&mut self) {
        let missed = self.rx.iter().filter_map(|rx| rx.missed().ok()).sum();
        let refused = self.rx.iter().map(|rx| rx.refused()).sum();
        let Losses { missed: missed_before, refused: refused_before, .. } = self.losses;
        self.forwarder.lost(DropReason::Missed, u64::saturating_sub(missed, missed_before));
        self.forwarder.lost(DropReason::Malformed, u64::saturating_sub(refused, refused_before));
        self.losses.missed = missed.max(missed_before);
        self.losses.refused = refused.max(refused_before);
        self.losses.due = clock::ticks() + clock::to_ticks(LOSSES);
    }

    /// Prepares to continue another process, which counts the lost frames of the port until this
    /// one runs.
    pub(crate) fn continue_another(&mut self) {
        self.losses.due = NEVER;
    }

    /// Counts only frames that the port loses from now on, if another process has counted the
    /// others.
    fn continue_losses(&mut self) {
        if self.losses.due == NEVER {
            let counters = self.forwarder.counters;
            self.count_losses();
            self.forwarder.counters = counters;
        }
    }

    /// Returns the number of frames lost at its port because they were not received in time.
    pub fn dropped(&self) -> io::Result<u64> {
        self.rx.iter().map(|rx| rx.dropped()).sum()
    }

    /// Transmits the packets that have left the kernel already, those that wait for their rate, and
    /// those that wait for the egress port, unless it takes none for too long, or the thread is to
    /// end.
    #[cold]
    fn let_go(&mut self, control: &ThreadControl) -> io::Result<()> {
        loop {
            let rest = self.drain(true) || self.forwarder.is_full() || self.forwarder.has_shaped();
            if !rest || control.is_stopped() {
                break;
            }
            // Early, so that none is lost.
            let early = !self.forwarder.is_full() && self.forwarder.has_shaped();
            if early {
                self.forwarder.flush_shaped();
            }
            if !self.poll()? && !early {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Receives only packets that have left the kernel already (`true`), or all. Returns true if
    /// there are such packets.
    fn drain(&mut self, on: bool) -> bool {
        // Every queue drains, so `fold` does not stop at the first one.
        self.rx.iter_mut().fold(false, |any, rx| rx.drain(on) | any)
    }

    /// Publishes its counters to other threads.
    pub fn publish(&mut self) {
        if clock::ticks() >= self.losses.due {
            self.count_losses();
        }
        self.forwarder.counters = self.counters();
        self.forwarder.publish();
    }
}

/// Runs `workers`, of either direction, on the calling thread until `control` stops it. After
/// `idle` without work the thread sleeps, at most [`PATIENCE`] at a time.
pub(crate) fn run(
    workers: &mut [Worker],
    idle: Idle,
    control: &ThreadControl,
    activity: &Activity,
) -> io::Result<()> {
    let mut pace = Pace::new(idle);
    // Ticks with packets to move.
    let mut work = 0;
    let publish = |workers: &mut [Worker], work| {
        let mut moved = Moved::default();
        for worker in workers {
            worker.publish();
            moved += worker.moved;
        }
        activity.publish(work, moved);
    };
    loop {
        if !control.runs() {
            workers.iter_mut().try_for_each(|worker| worker.let_go(control))?;
            let counting = workers.iter_mut().filter(|worker| worker.losses.due != NEVER);
            counting.for_each(Worker::count_losses);
            // Another process may continue with these numbers as soon as this thread has paused.
            publish(workers, work);
            if !control.wait(|| publish(workers, work)) {
                break;
            }
            workers.iter_mut().for_each(|worker| _ = worker.drain(false));
            workers.iter_mut().for_each(Worker::continue_losses);
            pace.woke();
        }
        let mut worked = false;
        for worker in workers.iter_mut() {
            worked |= worker.poll()?;
        }
        let round = pace.round(worked);
        if worked {
            work += round.length;
        }
        if round.publish {
            publish(workers, work);
        }
        if round.sleep {
            activity.slept();
            sleep(workers)?;
            pace.woke();
        }
    }
    for worker in workers {
        // Early, so that none is lost for which the port has room.
        worker.forwarder.flush_shaped();
        worker.forwarder.give_up();
        worker.forwarder.abandon();
        worker.count_losses();
        worker.publish();
    }
    Ok(())
}

/// Sleeps until a frame may have arrived for one of `workers`, or a packet may leave, at most
/// [`PATIENCE`]. While packets wait for an egress port, only yields to other threads.
fn sleep(workers: &mut [Worker]) -> io::Result<()> {
    if workers.iter().any(|worker| worker.forwarder.is_full()) {
        std::thread::yield_now();
        return Ok(());
    }
    let next = workers.iter().filter_map(|worker| worker.forwarder.next_shaped()).min();
    let time = next.map_or(PATIENCE, |next| next.min(PATIENCE));
    if time.is_zero() {
        return Ok(());
    }
    let rx = workers.iter_mut().flat_map(|worker| &mut worker.rx);
    wait_any(&mut rx.map(|rx| &mut **rx as &mut dyn Receive).collect::<Vec<_>>(), time)
}
