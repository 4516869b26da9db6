//! The switch as control threads see it.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dray_capture::Captures;
use dray_port::{LinkState, LinkStatus, OpenError};
use dray_sandbox::SandboxError;
use rustix::thread::{CpuSet, sched_getaffinity};

use super::bypass::{self, Bypasses};
use super::port::OpenPort;
use super::setting::Setting;
use super::view::View;
use super::worker::{self, Shared};
use crate::changes::Changes;
use crate::config::{Mode, Name, Pairs, PortConfig, SwitchConfig, wrong_mirror};
use crate::counters::DropReason;
use crate::engine::{Engine, PortState, PortStats, PortStatus, Status, TableEntry, WorkerStatus};
use crate::error::EngineError;
use crate::snapshot::{Leaving, Recorder};
use crate::table::PORTS_MAX;
use dray_datapath::lock;

/// Time after which links are looked at again.
const LOOK: Duration = Duration::from_millis(250);

/// A running switch. Dropping it stops it.
pub struct Switch {
    pub(super) setting: Arc<Setting>,
    age_s: u16,
    pub(super) started: Instant,
    pub(super) workers: Vec<Worker>,
    /// CPUs that the process may use and that have no worker.
    spare: CpuSet,
    pub(super) ports: Mutex<Ports>,
    pub(super) captures: Arc<Captures>,
    bypasses: Arc<Bypasses>,
    /// Recorder of the state for the process after this one, and the rest of what that one gets.
    pub(super) recorder: OnceLock<Arc<Recorder>>,
    pub(super) leaving: OnceLock<Leaving>,
    /// Hash of the stations recorded last, without their ages, and the time of the record.
    pub(super) recorded_stations: Mutex<Option<(u64, Instant)>>,
    /// Thread that advances the clock and forgets old stations.
    housekeeper: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

pub(super) struct Worker {
    cpu: u32,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Default)]
pub(super) struct Ports {
    pub(super) view: View,
    pub(super) pairs: Pairs,
    /// Indices of the ports in the order of adding.
    pub(super) order: Vec<u16>,
    /// Time of the last reset of the counters, and what each port had counted by then.
    pub(super) reset: Option<(Instant, HashMap<u16, PortStats>)>,
    /// Names of the ports of the configuration, and of those of the command line among them.
    pub(super) configured: Vec<Name>,
    pub(super) given: Vec<Name>,
}

impl Ports {
    pub(super) fn find(&self, name: &str) -> Option<&Arc<OpenPort>> {
        self.view.find(name)
    }

    /// Recomputes what depends on the set of ports.
    pub(super) fn resolve(&mut self) {
        self.view.pair(&self.pairs);
        self.view.pin();
        self.view.mirror();
    }

    /// Takes out a port, which workers use until the ports are published.
    pub(super) fn take(&mut self, index: u16) -> Option<Arc<OpenPort>> {
        let port = self.view.ports.get_mut(usize::from(index))?.take()?;
        self.pairs.remove(&port.config.name);
        self.order.retain(|other| *other != index);
        if let Some((_, counted)) = &mut self.reset {
            counted.remove(&index);
        }
        Some(port)
    }

    pub(super) fn in_order(&self) -> impl Iterator<Item = &Arc<OpenPort>> {
        self.order.iter().filter_map(|index| self.view.port(*index))
    }
}

impl Switch {
    /// Starts the workers of a configuration, which must have been checked, and opens its ports.
    pub fn start(config: &SwitchConfig) -> Result<Self, EngineError> {
        Self::start_confined(config, || Ok(()))
    }

    /// Like [`start`](Self::start), in a sandbox. Uplinks, which need privileges, are opened first.
    /// Then `confine` gives up the privileges, before there are threads that would keep them.
    pub fn start_confined(
        config: &SwitchConfig,
        confine: impl FnOnce() -> Result<(), SandboxError>,
    ) -> Result<Self, EngineError> {
        let run = |switch: &Self| {
            switch.setting.control.resume();
            Ok(())
        };
        Self::start_with(config, Instant::now(), run, confine)
    }

    /// Like [`start_confined`](Self::start_confined), as of the time `started`. The ports that `first`
    /// adds come before those of the configuration.
    pub(super) fn start_with(
        config: &SwitchConfig,
        started: Instant,
        first: impl FnOnce(&Self) -> Result<(), EngineError>,
        confine: impl FnOnce() -> Result<(), SandboxError>,
    ) -> Result<Self, EngineError> {
        let fail =
            |what: &str, error: std::io::Error| EngineError::Open(format!("{what}: {error}"));
        dray_port::limit_guarded(config.peer_memory.0);
        // Sockets first: setting their owners needs privileges, and a socket in use is an error before
        // any interface is touched.
        let mut bound = HashMap::new();
        for port in &config.ports {
            bound.insert(&port.name, port.uri.bind().map_err(|error| refused(&error))?);
        }
        let mut uplinks = HashMap::new();
        for port in config.ports.iter().filter(|port| !port.uri.is_local()) {
            if let Some(bound) = bound.remove(&port.name) {
                uplinks.insert(&port.name, open(bound)?);
            }
        }
        confine().map_err(|error| EngineError::Open(error.to_string()))?;
        let setting = Arc::new(Setting::new(config));
        setting.now.store(started.elapsed().as_secs() as u32, Ordering::Relaxed);
        let shared = (0..config.cpus.len()).map(|number| Shared::new(setting.clone(), number));
        let shared: Vec<_> = shared
            .map(|shared| shared.map(Arc::new))
            .collect::<Result<_, _>>()
            .map_err(|error| fail("worker", error))?;
        let taps = shared.iter().map(|shared| shared.tap().clone()).collect();
        let reasons = DropReason::ALL.iter().map(|reason| reason.name());
        let bypasses = Arc::<Bypasses>::default();
        let captured = bypasses.clone();
        let captures = Captures::new(taps, reasons).watched(move |begun| captured.captured(begun));
        let mut switch = Self {
            setting,
            age_s: config.age_s,
            started,
            workers: Vec::new(),
            spare: spare_cpus(&config.cpus),
            ports: Mutex::default(),
            captures: Arc::new(captures),
            bypasses,
            recorder: OnceLock::new(),
            leaving: OnceLock::new(),
            recorded_stations: Mutex::default(),
            housekeeper: None,
        };
        for (cpu, shared) in config.cpus.iter().copied().zip(shared) {
            let (name, worker) = (format!("dray-worker-{cpu}"), shared.clone());
            let thread = dray_datapath::spawn(&name, cpu as usize, move || worker::run(&worker))
                .map_err(|error| fail(&format!("worker on CPU {cpu}"), error))?;
            switch.workers.push(Worker { cpu, shared, thread: Some(thread) });
        }
        switch.housekeeper =
            Some(switch.spawn_housekeeper().map_err(|e| fail("housekeeping thread", e))?);
        lock(&switch.ports).configured =
            config.ports.iter().map(|port| port.name.clone()).collect();
        first(&switch)?;
        for port in &config.ports {
            let opened = match bound.remove(&port.name) {
                Some(bound) => Some(open(bound)?),
                None => uplinks.remove(&port.name),
            };
            switch.add(port, opened)?;
        }
        Ok(switch)
    }

    /// Marks ports as given on the command line, so that applying a file keeps them.
    pub fn give(&self, names: impl IntoIterator<Item = Name>) {
        let given = &mut lock(&self.ports).given;
        for name in names {
            // One that continues has them already.
            if !given.contains(&name) {
                given.push(name);
            }
        }
    }

    fn spawn_housekeeper(&self) -> std::io::Result<(mpsc::Sender<()>, JoinHandle<()>)> {
        let (stop, stopped) = mpsc::channel();
        let (setting, started, age_s) = (self.setting.clone(), self.started, self.age_s);
        let thread = std::thread::Builder::new().name("dray-age".to_owned()).spawn(move || {
            while stopped.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
                let now = started.elapsed().as_secs() as u32;
                let before = setting.now.swap(now, Ordering::Relaxed);
                setting.forget_gone();
                if now != before && !setting.table.is_empty() {
                    setting.table.expire(now, age_s);
                }
            }
        })?;
        Ok((stop, thread))
    }

    /// Reports a change of the state to the recorder.
    pub(super) fn report_change(&self) {
        self.recorder.get().into_iter().for_each(|recorder| recorder.report());
    }

    /// Waits until an order of a client would survive a crash.
    fn confirm(&self) {
        self.recorder.get().into_iter().for_each(|recorder| recorder.confirm());
    }

    /// Publishes the present ports to the workers, and waits until all use them: after that no
    /// worker uses a removed port.
    pub(super) fn publish(&self, ports: &Ports) {
        self.bypasses.set(self.setting.mode, &ports.view);
        self.publish_view(ports.view.clone());
    }

    /// Publishes a view, and waits until all workers use it.
    pub(super) fn publish_view(&self, view: View) {
        let links = view.all().filter_map(|port| Some((port.index, port.end.link.clone()?)));
        *lock(&self.setting.links) = links.collect();
        let view = Arc::new(view);
        self.workers.iter().for_each(|worker| worker.shared.publish(view.clone()));
        drop(view);
        self.workers.iter().for_each(|worker| worker.shared.wait_adopted());
    }

    pub(super) fn wake(&self) {
        self.workers.iter().for_each(|worker| worker.shared.wake());
    }

    /// Chooses workers for the queues of another port: those that have the fewest.
    fn assign(&self, ports: &Ports, queues: usize) -> Vec<usize> {
        let mut load = vec![0; self.workers.len()];
        for port in ports.view.all() {
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
    fn control_cpus(&self, workers: &[usize]) -> CpuSet {
        let mut cpus = self.spare;
        if cpus.count() == 0 {
            workers.iter().for_each(|worker| cpus.set(self.workers[*worker].cpu as usize));
        }
        cpus
    }

    fn status_of(&self, ports: &Ports, port: &OpenPort) -> PortStatus {
        let link = match &port.end.link {
            Some(link) => link.status(),
            None => LinkStatus { state: LinkState::Running, ..LinkStatus::default() },
        };
        let failure = port.failure();
        let state = match (&failure, link.state) {
            (Some(_), _) => PortState::Failed,
            (None, LinkState::Waiting) => PortState::Waiting,
            (None, LinkState::Connected) => PortState::Connected,
            (None, LinkState::Running) => PortState::Running,
        };
        let [receive_ring, transmit_ring] = port.fills();
        let partner = ports.pairs.partner(&port.config.name).cloned();
        PortStatus {
            config: port.config.clone(),
            state,
            partner,
            cpu: port.rx.first().map_or(0, |half| self.workers[half.worker].cpu),
            queues: port.rx.len() as u16,
            features: link.features,
            stations: self.setting.table.learned_on(port.index),
            unreachable: link.unreachable,
            last_disconnect_at: link.last_end_at.filter(|_| failure.is_none()),
            last_disconnect: failure.or(link.last_end),
            disconnects: link.ends,
            receive_ring,
            transmit_ring,
            bypass: port.bypass().map(bypass::status),
            counters: port.counted(),
        }
    }
}

/// Returns the CPUs that this thread may use, without those of `workers`.
fn spare_cpus(workers: &[u32]) -> CpuSet {
    let mut cpus = sched_getaffinity(None).unwrap_or_default();
    workers.iter().for_each(|cpu| cpus.unset(*cpu as usize));
    cpus
}

fn open(bound: dray_port::Bound<'_>) -> Result<dray_port::Port, EngineError> {
    bound.open_offloading().map_err(|error| refused(&error))
}

/// Opens a port with the offloads that the switch handles.
pub(super) fn open_port(config: &PortConfig) -> Result<dray_port::Port, EngineError> {
    config.uri.open_offloading().map_err(|error| refused(&error))
}

pub(super) fn refused(error: &OpenError) -> EngineError {
    let is_outside = dray_sandbox::is_entered() && (error.is_denied() || error.is_not_found());
    let hint = if is_outside {
        "; the sandbox allows sockets only in /run/dray and in the directories of the control \
         socket and of the ports given when the switch started, and abstract sockets of peers only \
         if one of those ports has one"
    } else {
        ""
    };
    EngineError::Open(format!("{error}{hint}"))
}

impl Switch {
    /// Adds a port, which may have been `opened` before.
    pub(super) fn add(
        &self,
        config: &PortConfig,
        opened: Option<dray_port::Port>,
    ) -> Result<(), EngineError> {
        let name = config.name.as_str().to_owned();
        let mut ports = lock(&self.ports);
        if ports.find(&name).is_some() {
            return Err(EngineError::NameTaken(name));
        }
        let owner = |(mac, vlan)| Some((mac, ports.view.owner(vlan, mac)?));
        if let Some((mac, owner)) = config.pinned().find_map(owner) {
            let owner = owner.config.name.as_str().to_owned();
            return Err(EngineError::AddressTaken(name, mac, owner));
        }
        let others = ports.in_order().map(|port| &port.config);
        if let Some(error) = EngineError::shared(config, others) {
            return Err(error);
        }
        let mut pairs = ports.pairs.clone();
        if self.setting.mode == Mode::Patch && config.mirror.is_empty() {
            pairs.add(config)?;
        }
        let opened = opened.map_or_else(|| open_port(config), Ok)?;
        self.insert(&mut ports, config, opened)?;
        ports.pairs = pairs;
        ports.resolve();
        // A take-over publishes all ports at once, and their counters continue.
        if self.setting.control.runs() {
            if let Some(entry) = ports.find(&name).and_then(|port| port.bypass()) {
                entry.reset();
            }
            self.publish(&ports);
        }
        self.report_change();
        Ok(())
    }

    /// Checks what a new port mirrors. The ports of a switch that hands over may mirror ports that
    /// were removed.
    fn check_mirrors(&self, config: &PortConfig) -> Result<(), EngineError> {
        let ports = lock(&self.ports);
        let others: Vec<_> = ports.in_order().map(|port| &port.config).collect();
        let mirrored = || {
            let mirror = others.iter().find(|other| other.mirror.contains(&config.name));
            let mirror = mirror.filter(|_| !config.mirror.is_empty())?.name.as_str();
            let name = config.name.as_str();
            Some(format!("port {name:?}: mirror: port {mirror:?} mirrors it; leave out mirror"))
        };
        wrong_mirror(config, &others)
            .or_else(mirrored)
            .map_or(Ok(()), |what| Err(EngineError::Mirror(what)))
    }

    /// Puts an open port among `ports`, without a partner. Workers see it once they are published.
    pub(super) fn insert(
        &self,
        ports: &mut Ports,
        config: &PortConfig,
        opened: dray_port::Port,
    ) -> Result<(), EngineError> {
        let name = config.name.as_str();
        let free = ports.view.ports.iter().position(Option::is_none);
        let index = free.unwrap_or(ports.view.ports.len());
        if index >= PORTS_MAX {
            return Err(EngineError::TooManyPorts(name.to_owned(), PORTS_MAX));
        }
        let open = self.adopt_opened(ports, index as u16, config, opened)?;
        if index == ports.view.ports.len() {
            ports.view.ports.push(None);
        }
        ports.view.ports[index] = Some(Arc::new(open));
        ports.order.push(index as u16);
        Ok(())
    }

    /// Chooses the workers of an open port, and makes it one that can be captured.
    pub(super) fn adopt_opened(
        &self,
        ports: &Ports,
        index: u16,
        config: &PortConfig,
        mut port: dray_port::Port,
    ) -> Result<OpenPort, EngineError> {
        // A worker that serves several ports must not wait at one of them.
        port.rx.iter_mut().for_each(|rx| rx.set_wait(dray_port::Wait::Poll { pause_us: 0 }));
        let workers = self.assign(ports, port.rx.len());
        if let Some(link) = &port.link {
            link.move_control(&self.control_cpus(&workers));
            // The setting has the link.
            let setting = Arc::downgrade(&self.setting);
            link.on_end(Box::new(move || {
                setting.upgrade().into_iter().for_each(|setting| setting.table.forget_port(index));
            }));
        }
        let mut open = OpenPort::new(
            index,
            config.clone(),
            port,
            &workers,
            (self.workers.len(), &self.setting),
        )
        .map_err(|error| OpenError::new(&config.uri, "event", error))
        .map_err(|error| EngineError::Open(error.to_string()))?;
        open.number = self.captures.add_port(config.name.as_str());
        Ok(open)
    }

    /// Closes a port that is none of `ports` and that no worker uses any more, and forgets its
    /// stations.
    pub(super) fn close(&self, ports: &Ports, port: Arc<OpenPort>) {
        self.uncapture(ports, &port);
        self.setting.table.forget_port(port.index);
        // With its record go duplicates of its descriptors.
        if let Some(recorder) = self.recorder.get() {
            recorder.recording().forget_port(port.number_of_page());
            recorder.report();
        }
        // This is the last reference: the port is closed here, before anything else may use its
        // socket.
        if dray_daemon::failure().is_some() {
            // A worker may have died with a reference to it; the remaining threads must not close
            // the port.
            std::mem::forget(port);
        }
    }

    /// Makes a port that is none of `ports` one that cannot be captured, unless another one has its
    /// name.
    pub(super) fn uncapture(&self, ports: &Ports, port: &OpenPort) {
        if ports.find(port.config.name.as_str()).is_none() {
            self.captures.remove_port(port.number);
        }
    }
}

/// Checks that a port can be opened, and is no tool for tests, if this process is in a sandbox.
pub(super) fn check_sandbox(config: &PortConfig) -> Result<(), EngineError> {
    let uri = || config.uri.to_string();
    match dray_sandbox::is_entered() {
        true if !config.uri.is_local() => Err(EngineError::Sandboxed { uri: uri() }),
        true if config.uri.is_impaired() => Err(EngineError::TestTool { uri: uri() }),
        _ => Ok(()),
    }
}

impl Engine for Switch {
    fn add_port(&self, config: &PortConfig, descriptors: Vec<OwnedFd>) -> Result<(), EngineError> {
        self.check_mirrors(config)?;
        let opened = if descriptors.is_empty() {
            check_sandbox(config)?;
            None
        } else {
            let opened = config.uri.open_with(descriptors);
            Some(opened.map_err(|error| EngineError::Descriptors(error.to_string()))?)
        };
        self.add(config, opened)?;
        self.confirm();
        Ok(())
    }

    fn check_addresses(&self, config: &PortConfig) -> Result<(), EngineError> {
        let ports = lock(&self.ports);
        for (mac, vlan) in config.pinned() {
            let learned = self.setting.table.lookup(vlan, mac);
            let other = learned.and_then(|port| ports.view.port(port));
            if let Some(other) = other.filter(|other| other.config.name != config.name) {
                let [port, other] = [config, &other.config].map(|of| of.name.as_str().to_owned());
                return Err(EngineError::AddressLearned { port, mac, other, vlan });
            }
        }
        Ok(())
    }

    fn remove_port(&self, name: &str) -> Result<(), EngineError> {
        let mut ports = lock(&self.ports);
        let index = ports.find(name).map(|port| port.index);
        let port = index.and_then(|index| ports.take(index));
        let port = port.ok_or_else(|| EngineError::NoSuchPort(name.to_owned()))?;
        ports.resolve();
        self.publish(&ports);
        self.close(&ports, port);
        drop(ports);
        self.confirm();
        Ok(())
    }

    fn apply(&self, config: &SwitchConfig, dry_run: bool) -> Result<Changes, EngineError> {
        let changes = self.change_ports(config, dry_run)?;
        self.confirm();
        Ok(changes)
    }

    fn configured(&self) -> Vec<Name> {
        lock(&self.ports).configured.clone()
    }

    fn status(&self) -> Status {
        let ports = lock(&self.ports);
        let of_worker = |number: usize| {
            let of = |port: &&Arc<OpenPort>| port.rx.iter().any(|half| half.worker == number);
            ports.in_order().filter(of).map(|port| port.config.name.clone()).collect()
        };
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            reset_s: ports.reset.as_ref().map(|(at, _)| at.elapsed().as_secs_f64()),
            mode: self.setting.mode,
            flow: self.setting.flow,
            ports: ports.order.len(),
            stations: self.setting.table.len(),
            workers: self
                .workers
                .iter()
                .enumerate()
                .map(|(number, worker)| WorkerStatus {
                    cpu: worker.cpu,
                    ports: of_worker(number),
                    load: worker.shared.load(),
                    work_s: worker.shared.activity().work().as_secs_f64(),
                    sleeps: worker.shared.activity().sleeps(),
                    batches: worker.shared.activity().moved().batches,
                    frames: worker.shared.activity().moved().frames,
                })
                .collect(),
        }
    }

    fn check_alive(&self) -> Result<(), String> {
        let name = |worker: &Worker| format!("worker on CPU {}", worker.cpu);
        let workers = self.workers.iter();
        let workers = workers.map(|worker| (name(worker), worker.shared.activity()));
        dray_datapath::check_alive(workers, || self.wake())
    }

    fn ports(&self) -> Vec<PortStatus> {
        let ports = lock(&self.ports);
        ports.in_order().map(|port| self.status_of(&ports, port)).collect()
    }

    fn table(&self) -> Vec<TableEntry> {
        let ports = lock(&self.ports);
        let now = self.setting.now.load(Ordering::Relaxed);
        let learned = self.setting.table.entries(now).into_iter().filter_map(|entry| {
            // Entries learned before an address was pinned are no longer valid.
            let port = ports.view.port(entry.port);
            let port = port.filter(|_| ports.view.owner(entry.vlan, entry.mac).is_none());
            Some(TableEntry {
                vlan: entry.vlan,
                mac: entry.mac,
                port: port?.config.name.clone(),
                age_s: entry.age.into(),
                pinned: false,
            })
        });
        let pinned = ports.in_order().flat_map(|port| {
            port.config.pinned().map(|(mac, vlan)| TableEntry {
                vlan,
                mac,
                port: port.config.name.clone(),
                age_s: 0,
                pinned: true,
            })
        });
        let mut entries: Vec<_> = learned.chain(pinned).collect();
        entries.sort_by_key(|entry| (entry.vlan, entry.mac));
        entries
    }

    fn captures(&self) -> Arc<Captures> {
        self.captures.clone()
    }

    fn flush_table(&self) {
        self.setting.table.clear();
    }

    fn stats_since_reset(&self) -> Vec<PortStats> {
        let ports = lock(&self.ports);
        let stats = ports.in_order().map(|port| {
            let stats = PortStats::from(self.status_of(&ports, port));
            let earlier = ports.reset.as_ref().and_then(|(_, then)| then.get(&port.index));
            earlier.map_or_else(|| stats.clone(), |earlier| stats.since(earlier))
        });
        stats.collect()
    }

    fn reset_stats(&self) {
        let mut ports = lock(&self.ports);
        let counted =
            ports.in_order().map(|port| (port.index, self.status_of(&ports, port).into()));
        let counted = counted.collect();
        ports.reset = Some((Instant::now(), counted));
        self.report_change();
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.setting.control.stop();
        self.wake();
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take() {
                // The thread ends on request or by a panic, which has been reported.
                let _ = thread.join();
            }
        }
        if let Some((stop, thread)) = self.housekeeper.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}
