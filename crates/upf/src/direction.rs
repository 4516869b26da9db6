//! A worker of a direction with its queues: the work of a data thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dray_port::{Receive, Wait, clock, wait_any};

use crate::counters::Counters;
use crate::path::Path;

/// Interval at which a busy thread publishes its counters.
const PUBLISH: Duration = Duration::from_millis(1);

/// A worker of one direction: receives on one interface and transmits on the other.
pub struct Direction {
    rx: Vec<Box<dyn Receive>>,
    path: Path,
}

impl Direction {
    pub(crate) fn new(mut rx: Vec<Box<dyn Receive>>, path: Path) -> Self {
        // A worker that polls several queues must not wait on one of them.
        rx.iter_mut().for_each(|rx| rx.set_wait(Wait::Poll { pause_us: 0 }));
        Self { rx, path }
    }

    pub(crate) fn path(&mut self) -> &mut Path {
        &mut self.path
    }

    /// Applies pending changes and moves one batch of each queue; returns true if anything moved.
    /// While the egress port has no room, no packet is taken.
    #[inline]
    pub fn poll(&mut self) -> io::Result<bool> {
        let Self { rx, path } = self;
        if path.is_full() {
            return Ok(path.lane().release());
        }
        let mut worked = path.adopt();
        for rx in rx {
            if path.is_full() {
                break;
            }
            worked |= rx.receive(&mut |frames| path.take(frames))? > 0;
        }
        Ok(worked)
    }

    /// Sleeps until a frame may have arrived, at most [`dray_port::PATIENCE`]. While packets wait
    /// for the egress port, only yields to other threads.
    pub fn sleep(&mut self) -> io::Result<()> {
        if self.path.is_full() {
            std::thread::yield_now();
            return Ok(());
        }
        let mut ports: Vec<&mut dyn Receive> =
            self.rx.iter_mut().map(|rx| &mut **rx as &mut dyn Receive).collect();
        wait_any(&mut ports)
    }

    /// Returns its counters, up to date.
    pub fn counters(&self) -> &Counters {
        self.path.counters()
    }

    /// Returns the number of frames lost at its port because they were not received in time.
    pub fn dropped(&self) -> io::Result<u64> {
        self.rx.iter().map(|rx| rx.dropped()).sum()
    }

    /// Publishes its counters to other threads.
    pub fn publish(&mut self) {
        let lane = self.path.lane();
        lane.published.publish(&lane.counters);
    }
}

/// Runs `directions`, workers of any direction, on the calling thread until `stop` is set. After
/// `idle` without work the thread sleeps, at most [`dray_port::PATIENCE`] at a time.
pub(crate) fn run(
    directions: &mut [Direction],
    idle: Option<Duration>,
    stop: &Arc<AtomicBool>,
) -> io::Result<()> {
    let (publish, patience) = (clock::to_ticks(PUBLISH), idle.map(clock::to_ticks));
    let mut last_publish = clock::ticks();
    let mut last_work = last_publish;
    while !stop.load(Ordering::Relaxed) {
        let mut worked = false;
        for direction in directions.iter_mut() {
            worked |= direction.poll()?;
        }
        let now = clock::ticks();
        if worked {
            last_work = now;
        }
        if now - last_publish > publish {
            last_publish = now;
            directions.iter_mut().for_each(Direction::publish);
        }
        if patience.is_some_and(|patience| now - last_work > patience) {
            let mut ports: Vec<&mut dyn Receive> = Vec::new();
            if directions.iter().any(|direction| direction.path.is_full()) {
                std::thread::yield_now();
                continue;
            }
            for direction in directions.iter_mut() {
                direction.publish();
                ports.extend(direction.rx.iter_mut().map(|rx| &mut **rx as &mut dyn Receive));
            }
            wait_any(&mut ports)?;
        }
    }
    for direction in directions {
        direction.path().lane().give_up();
        direction.publish();
    }
    Ok(())
}
