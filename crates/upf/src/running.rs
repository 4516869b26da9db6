//! A user plane function on threads of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::direction::Direction;
use crate::interface::lock;
use crate::upf::Upf;

/// How often neighbours that are not known are asked for.
const ASK: Duration = Duration::from_millis(500);
/// After so many of those, the others are asked for as well, who may have another address by now.
const ASK_ALL: u32 = 60;

/// A user plane function whose directions run on threads. It ends when it is dropped.
pub struct Running {
    upf: Arc<Upf>,
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
    failure: Arc<Mutex<Option<String>>>,
}

impl Running {
    /// Starts a thread for each of `cpus`, which are one or two: on two the directions have one each.
    /// Without any work for as long as `idle`, a thread sleeps.
    pub fn start(
        upf: Upf,
        directions: [Direction; 2],
        cpus: &[usize],
        idle: Option<Duration>,
    ) -> std::io::Result<Self> {
        let mut running = Self {
            upf: Arc::new(upf),
            stop: Arc::default(),
            threads: Vec::new(),
            failure: Arc::default(),
        };
        let [uplink, downlink] = directions;
        let (uplink_cpu, downlink_cpu) = (cpus[0], cpus[cpus.len() - 1]);
        if uplink_cpu == downlink_cpu {
            running.spawn("upf", uplink_cpu, vec![uplink, downlink], idle)?;
        } else {
            running.spawn("upf-uplink", uplink_cpu, vec![uplink], idle)?;
            running.spawn("upf-downlink", downlink_cpu, vec![downlink], idle)?;
        }
        let (upf, stop) = (running.upf.clone(), running.stop.clone());
        let asker = thread::Builder::new().name("upf-neighbours".to_owned()).spawn(move || {
            for round in 0u32.. {
                upf.ask_for_neighbours(round % ASK_ALL == ASK_ALL - 1);
                thread::park_timeout(ASK);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        })?;
        running.threads.push(asker);
        Ok(running)
    }

    fn spawn(
        &mut self,
        name: &str,
        cpu: usize,
        mut directions: Vec<Direction>,
        idle: Option<Duration>,
    ) -> std::io::Result<()> {
        let (stop, failure) = (self.stop.clone(), self.failure.clone());
        self.threads.push(thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut set = rustix::thread::CpuSet::new();
            set.set(cpu);
            let pinned = rustix::thread::sched_setaffinity(None, &set);
            let result = pinned
                .map_err(std::io::Error::from)
                .and_then(|()| crate::direction::run(&mut directions, idle, &stop));
            if let Err(error) = result {
                *lock(&failure) = Some(error.to_string());
            }
        })?);
        Ok(())
    }

    /// The user plane function.
    pub fn upf(&self) -> &Arc<Upf> {
        &self.upf
    }

    /// Why a direction ended, if one did.
    pub fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }

    /// Ends its threads, so that all that was counted is published.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // It only ends by itself or by a panic, which has been reported.
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}
