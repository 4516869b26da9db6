//! A running switch: its start, and adding and closing its ports.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use dray_capture::Captures;
use dray_datapath::lock;
use dray_port::{OpenError, Port, Wait};
use dray_sandbox::SandboxError;

use super::bypass::Bypasses;
use super::housekeeper::Housekeeper;
use super::opening::{Opening, open_port};
use super::port::OpenPort;
use super::ports::Ports;
use super::setting::Setting;
use super::workers::Workers;
use crate::config::{Mode, Name, PortConfig, SwitchConfig, wrong_mirror};
use crate::counters::DropReason;
use crate::error::SwitchError;
use crate::snapshot::{Leaving, Recorder};
use crate::table::PORTS_MAX;

/// A running switch. Dropping it stops it.
pub struct Switch {
    // Dropped first: threads end before ports are closed.
    pub(super) workers: Workers,
    _housekeeper: Housekeeper,
    pub(super) setting: Arc<Setting>,
    pub(super) started: Instant,
    pub(super) ports: Mutex<Ports>,
    pub(super) captures: Arc<Captures>,
    bypasses: Arc<Bypasses>,
    /// Recorder of the state for the process after this one, and the rest of what that one gets.
    pub(super) recorder: OnceLock<Arc<Recorder>>,
    pub(super) leaving: OnceLock<Leaving>,
    /// Hash of the stations recorded last, without their ages, and the time of the record.
    pub(super) recorded_stations: Mutex<Option<(u64, Instant)>>,
}

impl Switch {
    /// Starts the workers of a configuration, which must have been checked, and opens its ports.
    pub fn start(config: &SwitchConfig) -> Result<Self, SwitchError> {
        Self::start_confined(config, || Ok(()))
    }

    /// Like [`start`](Self::start), in a sandbox. Uplinks, which need privileges, are opened first.
    /// Then `confine` gives up the privileges, before any thread starts that would have them.
    pub fn start_confined(
        config: &SwitchConfig,
        confine: impl FnOnce() -> Result<(), SandboxError>,
    ) -> Result<Self, SwitchError> {
        let (switch, ports) = Self::start_paused(config, Instant::now(), confine)?;
        switch.setting.control.resume();
        switch.add_all(config, ports)?;
        Ok(switch)
    }

    /// Starts a switch as of the time `started`, with workers that pause and without ports. Returns
    /// it with the ports of its configuration that need no more privileges to be opened.
    pub(super) fn start_paused<'c>(
        config: &'c SwitchConfig,
        started: Instant,
        confine: impl FnOnce() -> Result<(), SandboxError>,
    ) -> Result<(Self, Opening<'c>), SwitchError> {
        dray_port::limit_guarded(config.peer_memory.0);
        let opening = Opening::new(&config.ports)?;
        confine().map_err(|error| SwitchError::Open(error.to_string()))?;
        let setting = Arc::new(Setting::new(config));
        setting.now.store(started.elapsed().as_secs() as u32, Relaxed);
        let workers = Workers::start(&setting, &config.cpus)?;
        let reasons = DropReason::ALL.iter().map(|reason| reason.name());
        let bypasses = Arc::<Bypasses>::default();
        let captured = bypasses.clone();
        let captures = Captures::new(workers.taps(), reasons);
        let captures = captures.watched(move |begun| captured.captured(begun));
        let housekeeper = Housekeeper::start(setting.clone(), started, config.age_s)
            .map_err(|error| SwitchError::Open(format!("housekeeping thread: {error}")))?;
        let configured = config.ports.iter().map(|port| port.name.clone()).collect();
        let switch = Self {
            workers,
            _housekeeper: housekeeper,
            setting,
            started,
            ports: Mutex::new(Ports { configured, ..Ports::default() }),
            captures: Arc::new(captures),
            bypasses,
            recorder: OnceLock::new(),
            leaving: OnceLock::new(),
            recorded_stations: Mutex::default(),
        };
        Ok((switch, opening))
    }

    /// Adds the ports of the configuration.
    pub(super) fn add_all(
        &self,
        config: &SwitchConfig,
        mut ports: Opening<'_>,
    ) -> Result<(), SwitchError> {
        config.ports.iter().try_for_each(|port| self.add(port, ports.open(&port.name)?))
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

    /// Reports a change of the state to the recorder.
    pub(super) fn report_change(&self) {
        self.recorder.get().into_iter().for_each(|recorder| recorder.report());
    }

    /// Publishes the present ports to the workers, and waits until all use them.
    pub(super) fn publish(&self, ports: &Ports) {
        self.bypasses.set(self.setting.mode, &ports.view);
        self.workers.publish(ports.view.clone());
    }

    /// Adds a port, which may have been `opened` before.
    pub(super) fn add(&self, config: &PortConfig, opened: Option<Port>) -> Result<(), SwitchError> {
        let name = config.name.as_str().to_owned();
        let mut ports = lock(&self.ports);
        if ports.find(&name).is_some() {
            return Err(SwitchError::NameTaken(name));
        }
        let owner = |(mac, vlan)| Some((mac, ports.view.owner(vlan, mac)?));
        if let Some((mac, owner)) = config.pinned().find_map(owner) {
            let owner = owner.config.name.as_str().to_owned();
            return Err(SwitchError::AddressTaken(name, mac, owner));
        }
        let others = ports.in_order().map(|port| &port.config);
        if let Some(error) = SwitchError::shared(config, others) {
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
    pub(super) fn check_mirrors(&self, config: &PortConfig) -> Result<(), SwitchError> {
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
            .map_or(Ok(()), |what| Err(SwitchError::Mirror(what)))
    }

    /// Puts an open port among `ports`, without a partner. Workers see it once they are published.
    pub(super) fn insert(
        &self,
        ports: &mut Ports,
        config: &PortConfig,
        opened: Port,
    ) -> Result<(), SwitchError> {
        let name = config.name.as_str();
        let free = ports.view.ports.iter().position(Option::is_none);
        let index = free.unwrap_or(ports.view.ports.len());
        if index >= PORTS_MAX {
            return Err(SwitchError::TooManyPorts(name.to_owned(), PORTS_MAX));
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
        mut port: Port,
    ) -> Result<OpenPort, SwitchError> {
        // A worker that serves several ports must not wait at one of them.
        port.rx.iter_mut().for_each(|rx| rx.set_wait(Wait::Poll { pause_us: 0 }));
        let workers = self.workers.assign(&ports.view, port.rx.len());
        if let Some(link) = &port.link {
            link.move_control(&self.workers.control_cpus(&workers));
            // The setting has the link.
            let setting = Arc::downgrade(&self.setting);
            link.on_end(Box::new(move || {
                setting.upgrade().into_iter().for_each(|setting| setting.table.remove_port(index));
            }));
        }
        let mut open = OpenPort::new(
            index,
            config.clone(),
            port,
            &workers,
            (self.workers.count(), &self.setting),
        )
        .map_err(|error| OpenError::new(&config.uri, "event", error))
        .map_err(|error| SwitchError::Open(error.to_string()))?;
        open.number = self.captures.add_port(config.name.as_str());
        Ok(open)
    }

    /// Closes a port that is not in `ports` any more and that no worker uses, and removes its
    /// stations.
    pub(super) fn close(&self, ports: &Ports, port: Arc<OpenPort>) {
        self.uncapture(ports, &port);
        self.setting.table.remove_port(port.index);
        // With its record go duplicates of its descriptors.
        if let Some(recorder) = self.recorder.get() {
            recorder.recording().remove_port(port.number_of_page());
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
