//! The worker threads of a switch.

use std::sync::Arc;
use std::thread::JoinHandle;

use dray_capture::Tap;
use dray_datapath::lock;
use rustix::thread::{CpuSet, sched_getaffinity};

use super::port::OpenPort;
use super::ports::Ports;
use super::setting::Setting;
use super::view::View;
use super::worker::{self, Shared};
use crate::control::WorkerStatus;
use crate::error::SwitchError;

/// The worker threads of a switch. Dropping them stops them.
pub(super) struct Workers {
    setting: Arc<Setting>,
    threads: Vec<Thread>,
    /// CPUs that the process may use and that have no worker.
    spare: CpuSet,
}

struct Thread {
    cpu: u32,
    shared: Arc<Shared>,
    handle: Option<JoinHandle<()>>,
}

impl Workers {
    /// Starts a worker on each of `cpus`.
    pub(super) fn start(setting: &Arc<Setting>, cpus: &[u32]) -> Result<Self, SwitchError> {
        let mut spare = sched_getaffinity(None).unwrap_or_default();
        cpus.iter().for_each(|cpu| spare.unset(*cpu as usize));
        let mut workers = Self { setting: setting.clone(), threads: Vec::new(), spare };
        for (number, cpu) in cpus.iter().copied().enumerate() {
            let failed = |error| SwitchError::Open(format!("worker on CPU {cpu}: {error}"));
            let shared = Arc::new(Shared::new(setting.clone(), number).map_err(failed)?);
            let (name, worker) = (format!("dray-worker-{cpu}"), shared.clone());
            let run = move || worker::run(&worker);
            let handle = dray_datapath::spawn(&name, cpu as usize, run).map_err(failed)?;
            workers.threads.push(Thread { cpu, shared, handle: Some(handle) });
        }
        Ok(workers)
    }

    /// Returns their number.
    pub(super) fn count(&self) -> usize {
        self.threads.len()
    }

    /// Returns the CPU of a worker.
    pub(super) fn cpu(&self, number: usize) -> u32 {
        self.threads[number].cpu
    }

    /// Returns their taps for captures.
    pub(super) fn taps(&self) -> Vec<Arc<Tap>> {
        self.threads.iter().map(|worker| worker.shared.tap().clone()).collect()
    }

    /// Publishes a view, and waits until all workers use it: after that no worker uses a removed
    /// port.
    pub(super) fn publish(&self, view: View) {
        let links = view.all().filter_map(|port| Some((port.index, port.end.link.clone()?)));
        *lock(&self.setting.links) = links.collect();
        let view = Arc::new(view);
        self.threads.iter().for_each(|worker| worker.shared.publish(view.clone()));
        drop(view);
        self.threads.iter().for_each(|worker| worker.shared.wait_adopted());
    }

    fn wake(&self) {
        self.threads.iter().for_each(|worker| worker.shared.wake());
    }

    /// Pauses all workers.
    pub(super) fn pause(&self) -> Result<(), String> {
        self.setting.control.pause(self.threads.len(), || self.wake())
    }

    /// Chooses workers for the queues of another port: those that have the fewest.
    pub(super) fn assign(&self, view: &View, queues: usize) -> Vec<usize> {
        let mut load = vec![0; self.threads.len()];
        for port in view.all() {
            port.rx.iter().for_each(|half| load[half.worker] += 1);
        }
        let least = |load: &mut Vec<i32>| {
            let worker = (0..load.len()).min_by_key(|worker| load[*worker]).unwrap_or(0);
            load[worker] += 1;
            worker
        };
        (0..queues).map(|_| least(&mut load)).collect()
    }

    /// Returns the CPUs for the control thread of a port that these workers serve: what its peer
    /// makes it do must not take time from other workers.
    pub(super) fn control_cpus(&self, workers: &[usize]) -> CpuSet {
        let mut cpus = self.spare;
        if cpus.count() == 0 {
            workers.iter().for_each(|worker| cpus.set(self.threads[*worker].cpu as usize));
        }
        cpus
    }

    /// Returns their status, with their ports in order.
    pub(super) fn status(&self, ports: &Ports) -> Vec<WorkerStatus> {
        let status = |(number, worker): (usize, &Thread)| {
            let is_of = |port: &&Arc<OpenPort>| port.rx.iter().any(|half| half.worker == number);
            let activity = worker.shared.activity();
            WorkerStatus {
                cpu: worker.cpu,
                ports: ports
                    .in_order()
                    .filter(is_of)
                    .map(|port| port.config.name.clone())
                    .collect(),
                load: worker.shared.load(),
                work_s: activity.work().as_secs_f64(),
                sleeps: activity.sleeps(),
                batches: activity.moved().batches,
                frames: activity.moved().frames,
            }
        };
        self.threads.iter().enumerate().map(status).collect()
    }

    /// Checks that all workers publish; the error names those that do not.
    pub(super) fn check_alive(&self) -> Result<(), String> {
        let name = |worker: &Thread| format!("worker on CPU {}", worker.cpu);
        let workers = self.threads.iter();
        let workers = workers.map(|worker| (name(worker), worker.shared.activity()));
        dray_datapath::check_alive(workers, || self.wake())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.setting.control.stop();
        self.wake();
        for handle in self.threads.iter_mut().filter_map(|worker| worker.handle.take()) {
            // The thread ends on request or by a panic, which has been reported.
            let _ = handle.join();
        }
    }
}
