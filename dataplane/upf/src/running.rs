//! Runs a user plane function on its own threads.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use dray_wire::gtpu::Direction::{self, Downlink, Uplink};

use crate::neighbours::ROUND;
use crate::upf::Upf;
use crate::worker::{self, Worker};
use dray_datapath::{Activity, Idle, lock};

/// Interval between checks for a newly connected peer; at every second one, neighbours are
/// solicited.
const POLL: Duration = Duration::from_millis(25);
const _: () = assert!(2 * POLL.as_millis() == ROUND.as_millis());

/// A user plane function whose directions run on threads, which end when it is dropped.
pub struct RunningUpf {
    upf: Arc<Upf>,
    threads: Vec<thread::JoinHandle<()>>,
    failure: Arc<Mutex<Option<String>>>,
}

impl RunningUpf {
    /// Starts a thread on each of `cpus` and distributes the workers of both directions to them in
    /// turn, uplink first. A thread sleeps after `idle` without work.
    ///
    /// # Panics
    /// If `cpus` is empty.
    pub fn start(
        upf: Upf,
        workers: [Vec<Worker>; 2],
        cpus: &[usize],
        idle: Idle,
    ) -> std::io::Result<Self> {
        Self::prepare(upf, workers, cpus, idle).inspect(Self::go)
    }

    /// Like [`start`](Self::start); threads are paused, and use no port, until they
    /// [go](Self::go).
    pub fn prepare(
        upf: Upf,
        workers: [Vec<Worker>; 2],
        cpus: &[usize],
        idle: Idle,
    ) -> std::io::Result<Self> {
        let mut threads: Vec<(usize, Vec<(Direction, Worker)>)> = Vec::new();
        let [uplink, downlink] = workers;
        let uplink = uplink.into_iter().map(|worker| (Uplink, worker));
        let downlink = downlink.into_iter().map(|worker| (Downlink, worker));
        for (worker, cpu) in uplink.chain(downlink).zip(cpus.iter().cycle()) {
            match threads.iter_mut().find(|(known, _)| known == cpu) {
                Some((_, workers)) => workers.push(worker),
                None => threads.push((*cpu, vec![worker])),
            }
        }
        let activities: Vec<_> =
            threads.iter().map(|(cpu, _)| (*cpu, Arc::<Activity>::default())).collect();
        let mut running = Self {
            upf: Arc::new(upf.with_threads(activities.clone())),
            threads: Vec::new(),
            failure: Arc::default(),
        };
        for ((cpu, workers), (_, activity)) in threads.into_iter().zip(activities) {
            let all = |direction: Direction| workers.iter().all(|(of, _)| *of == direction);
            let name = match (all(Uplink), all(Downlink)) {
                (true, _) => "upf-uplink",
                (_, true) => "upf-downlink",
                _ => "upf",
            };
            let workers = workers.into_iter().map(|(_, worker)| worker).collect();
            running.spawn(name, cpu, workers, idle, activity)?;
        }
        let upf = running.upf.clone();
        let neighbours = move || {
            let mut ask = Instant::now();
            while !upf.control.is_stopped() {
                let now = Instant::now();
                if upf.serve_neighbours(now >= ask) {
                    ask = now + ROUND;
                }
                thread::park_timeout(POLL);
            }
        };
        let neighbours = thread::Builder::new().name("upf-neighbours".to_owned()).spawn(neighbours);
        running.threads.push(neighbours?);
        Ok(running)
    }

    /// Starts a data thread. An error of a port becomes the failure of the whole function; a panic
    /// ends the process.
    fn spawn(
        &mut self,
        name: &str,
        cpu: usize,
        mut workers: Vec<Worker>,
        idle: Idle,
        activity: Arc<Activity>,
    ) -> std::io::Result<()> {
        let (upf, failure) = (self.upf.clone(), self.failure.clone());
        self.threads.push(dray_datapath::spawn(name, cpu, move || {
            if let Err(error) = worker::run(&mut workers, idle, &upf.control, &activity) {
                lock(&failure).get_or_insert(format!("a port failed: {error}"));
            }
        })?);
        Ok(())
    }

    /// Starts threads that are paused.
    pub fn go(&self) {
        self.upf.control.resume();
        self.threads.iter().for_each(|thread| thread.thread().unpark());
    }

    /// Returns the user plane function.
    pub fn upf(&self) -> &Arc<Upf> {
        &self.upf
    }

    /// Returns the reason if a thread ended early: users' packets are no longer forwarded.
    pub fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }

    /// Ends the threads after they have published all counters.
    pub fn stop(&mut self) {
        self.upf.control.stop();
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // The reason for a failure is already recorded.
            let _ = thread.join();
        }
    }
}

impl Drop for RunningUpf {
    fn drop(&mut self) {
        self.stop();
    }
}
