//! A user plane function on threads of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::direction::Direction;
use crate::interface::lock;
use crate::upf::Upf;
use crate::usage::Way;

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
    /// Starts a thread on each of `cpus` for the workers of both directions, which are dealt to them in
    /// turn: those of the uplink first. Without any work for as long as `idle`, a thread sleeps.
    ///
    /// # Panics
    /// Without a CPU.
    pub fn start(
        upf: Upf,
        directions: [Vec<Direction>; 2],
        cpus: &[usize],
        idle: Option<Duration>,
    ) -> std::io::Result<Self> {
        let mut running = Self {
            upf: Arc::new(upf),
            stop: Arc::default(),
            threads: Vec::new(),
            failure: Arc::default(),
        };
        let mut threads: Vec<(usize, Vec<(Way, Direction)>)> = Vec::new();
        let [uplink, downlink] = directions;
        let uplink = uplink.into_iter().map(|worker| (Way::Uplink, worker));
        let downlink = downlink.into_iter().map(|worker| (Way::Downlink, worker));
        for (worker, cpu) in uplink.chain(downlink).zip(cpus.iter().cycle()) {
            match threads.iter_mut().find(|(known, _)| known == cpu) {
                Some((_, workers)) => workers.push(worker),
                None => threads.push((*cpu, vec![worker])),
            }
        }
        for (cpu, workers) in threads {
            let all = |way: Way| workers.iter().all(|(of, _)| *of == way);
            let name = match (all(Way::Uplink), all(Way::Downlink)) {
                (true, _) => "upf-uplink",
                (_, true) => "upf-downlink",
                _ => "upf",
            };
            let workers = workers.into_iter().map(|(_, worker)| worker).collect();
            running.spawn(name, cpu, workers, idle)?;
        }
        let (upf, stop) = (running.upf.clone(), running.stop.clone());
        let asker = thread::Builder::new().name("upf-neighbours".to_owned()).spawn(move || {
            for round in 0u32.. {
                upf.announce();
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
