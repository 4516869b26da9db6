//! The switch as one process continues another's: on both sides ([`takeover`](crate::takeover)),
//! and as its recorder sees it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dray_daemon::Store;
use dray_datapath::lock;
use dray_port::{OpenError, PausedPort, Port, PortSnapshot, Resumption};
use dray_sandbox::SandboxError;
use dray_service::{
    Outgoing, Page, PortPage, RecordTimeout, Recorded, Sockets, Unrecorded, freeze_all,
};
use tracing::warn;

use super::opening::refused;
use super::port::OpenPort;
use super::ports::Ports;
use super::switch::Switch;
use crate::config::{Mode, Name, PortConfig, SwitchConfig};
use crate::control::{PortStats, SwitchControl, TableEntry};
use crate::counters::{Counters, SharedCounters};
use crate::error::SwitchError;
use crate::snapshot::{Leaving, OwnPort, PROGRAM, Recorder, State};

/// Time within which the control thread of a port gets ready to continue.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time within which its queues start.
const STARTING: Duration = Duration::from_secs(1);
/// Time within which workers forward frames that have left the kernel already.
const DRAINING: Duration = Duration::from_millis(50);
/// Time after which the ages of stations are recorded again.
const AGES: Duration = Duration::from_secs(60);

/// Ports with which a switch continues another, and its last reset.
pub(crate) struct Ends {
    ports: Vec<(Name, ContinuedPort)>,
    reset: Option<(f64, Vec<PortStats>)>,
}

struct ContinuedPort {
    partner: Option<Name>,
    counters: Option<OwnedFd>,
    resumption: Option<Resumption>,
}

type Recording = dray_service::Recording<OwnPort>;

/// A port that continues, and what starts its queues; `None`: it is lost.
type Resumed = Option<(Port, Option<Resumption>)>;

/// Returns the time so many seconds before now; the number is another process's.
fn ago(seconds: f64) -> Instant {
    let now = Instant::now();
    Duration::try_from_secs_f64(seconds).ok().and_then(|time| now.checked_sub(time)).unwrap_or(now)
}

impl Switch {
    /// Prepares the state for the process after this one, which gets the `sockets` at which the
    /// switch is reached. With a `store`, the state is recorded there from now on.
    pub fn record(
        self: &Arc<Self>,
        config: &SwitchConfig,
        sockets: Sockets,
        store: Option<Store>,
    ) -> io::Result<()> {
        // It is called once.
        let _ = self.leaving.set(Leaving::new(config, sockets));
        let Some(store) = store else { return Ok(()) };
        let (recorder, woken) = Recorder::new(PROGRAM, store);
        let _ = self.recorder.set(recorder.clone());
        recorder.start(self, woken)
    }

    /// Hands over to another process. First the control threads of all ports stop, and the other
    /// process receives the pages. Then the workers pause, and this process ends. If anything
    /// fails, the switch continues.
    ///
    /// # Errors
    /// Why it has failed.
    pub(crate) fn hand_over(&self, outgoing: &Outgoing) -> Result<Infallible, String> {
        let leaving = self.leaving.get().ok_or("it has not started yet")?;
        let stations = self.learned();
        let ports = lock(&self.ports);
        let open: Vec<_> = ports.in_order().collect();
        let mut held = freeze_all(open.iter().map(|port| (port.config.name.as_str(), &port.end)))?;
        let lives: Vec<PortSnapshot> = held.iter_mut().map(PausedPort::take_snapshot).collect();
        let mut pages = vec![leaving.page(self.state(&ports, stations))];
        pages.extend(open.iter().zip(&lives).map(|(port, live)| {
            let counters = Some(port.published.as_fd());
            Page::of_port(&PROGRAM, port.number_of_page(), &ports.own(port), live, counters)
        }));
        outgoing.offer(&pages)?;
        self.pause(&ports)?;
        outgoing.complete(|| ()).inspect_err(|_| {
            ports.drain(false);
            self.setting.control.resume();
        })
    }

    /// Pauses the workers, which transmit the frames that have left the kernel already.
    fn pause(&self, ports: &Ports) -> Result<(), String> {
        let until = Instant::now() + DRAINING;
        while ports.drain(true) && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(20));
        }
        let paused = self.workers.pause();
        paused.inspect_err(|_| _ = ports.drain(false))?;
        // The other process counts frames that never reach a worker from now on.
        ports.in_order().for_each(|port| port.count_lost());
        Ok(())
    }

    fn learned(&self) -> Vec<TableEntry> {
        self.table().into_iter().filter(|station| !station.pinned).collect()
    }

    /// Starts a switch with the `state` and the ports of another and those of `config`, as
    /// [`start_confined`](Self::start_confined) does. No frame passes until it
    /// [continues](Self::resume). If the other process `has_ended`, ports that cannot be continued
    /// are opened again.
    pub(crate) fn take_over(
        config: &SwitchConfig,
        state: State,
        mut ports: Vec<PortPage<OwnPort>>,
        has_ended: bool,
        confine: impl FnOnce() -> Result<(), SandboxError>,
    ) -> Result<(Self, Ends), SwitchError> {
        let State { configured, given, stations, uptime_s, reset, .. } = state;
        let mut ends = Ends { ports: Vec::new(), reset };
        // As those that are opened, they may need privileges.
        let mut uplinks = HashMap::new();
        for PortPage { own: OwnPort { config, .. }, live, .. } in &mut ports {
            let is_over = has_ended && live.is_empty();
            if !config.uri.is_local() && !is_over {
                let resumed = resume(config, std::mem::take(live), has_ended)?;
                uplinks.insert(config.name.clone(), resumed);
            }
        }
        let (switch, opening) = Self::start_paused(config, ago(uptime_s), confine)?;
        switch.adopt(ports, uplinks, has_ended, &stations, &mut ends)?;
        switch.add_all(config, opening)?;
        let mut now = lock(&switch.ports);
        (now.configured, now.given) = (configured, given);
        drop(now);
        Ok((switch, ends))
    }

    fn adopt(
        &self,
        snapshots: Vec<PortPage<OwnPort>>,
        mut uplinks: HashMap<Name, Resumed>,
        has_ended: bool,
        stations: &[TableEntry],
        ends: &mut Ends,
    ) -> Result<(), SwitchError> {
        for PortPage { own: OwnPort { config, partner }, live, memory: counters } in snapshots {
            let resumed = match uplinks.remove(&config.name) {
                Some(resumed) => resumed,
                None if has_ended && live.is_empty() => {
                    // It is opened with those of the configuration.
                    let port = ContinuedPort { partner, counters, resumption: None };
                    ends.ports.push((config.name, port));
                    continue;
                }
                None => resume(&config, live, has_ended)?,
            };
            let Some((port, resumption)) = resumed else { continue };
            if let Some(resumption) = &resumption
                && let Err(why) = resumption.wait_ready(PATIENCE)
                && !has_ended
            {
                return Err(SwitchError::Open(format!("port {}: {why}", config.uri)));
            }
            self.add(&config, Some(port))?;
            ends.ports.push((config.name, ContinuedPort { partner, counters, resumption }));
        }
        if self.setting.mode == Mode::Learning {
            let ports = lock(&self.ports);
            let now = self.started.elapsed().as_secs() as u32;
            for TableEntry { vlan, mac, port, age_s, .. } in stations {
                if let Some(port) = ports.find(port.as_str()) {
                    self.setting.table.learn(*vlan, *mac, port.index, now.wrapping_sub(*age_s));
                }
            }
        }
        Ok(())
    }

    /// Continues where the other switch has stopped.
    pub(crate) fn resume(&self, Ends { ports: ends, reset }: Ends) {
        let mut ports = lock(&self.ports);
        if self.setting.mode == Mode::Patch && ends.iter().any(|(_, end)| end.partner.is_some()) {
            for (name, end) in &ends {
                ports.pairs.restore(name, end.partner.clone());
            }
            // One that was opened again does not know its partner.
            let partners =
                ends.iter().filter_map(|(name, end)| Some((name, end.partner.as_ref()?)));
            partners.for_each(|(name, with)| ports.pairs.restore(with, Some(name.clone())));
            ports.resolve();
        }
        let mut starting = Vec::new();
        for (name, ContinuedPort { counters, resumption, .. }) in ends {
            let Some(port) = ports.find(name.as_str()) else { continue };
            let counters =
                counters.map(SharedCounters::sum_of).transpose().unwrap_or_else(|error| {
                    warn!(port = name.as_str(), %error, "counters start at zero");
                    None
                });
            port.count_from(Some(counters.unwrap_or_else(Counters::default)));
            starting.extend(resumption.inspect(Resumption::start));
        }
        starting.into_iter().for_each(|resumption| resumption.wait_started(STARTING));
        ports.reset = reset.map(|(seconds, stats)| {
            let index = |stats: &PortStats| Some(ports.find(stats.name.as_str())?.index);
            let by_index = stats.into_iter().filter_map(|stats| Some((index(&stats)?, stats)));
            (ago(seconds), by_index.collect())
        });
        self.setting.control.resume();
        self.publish(&ports);
    }

    /// Returns the state, apart from the ports; `stations` are the learned ones.
    fn state(&self, ports: &Ports, stations: Vec<TableEntry>) -> State {
        State {
            ports: ports.in_order().map(|port| port.config.clone()).collect(),
            configured: ports.configured.clone(),
            given: ports.given.clone(),
            stations,
            uptime_s: self.started.elapsed().as_secs_f64(),
            reset: ports.reset(),
            ..State::default()
        }
    }

    /// Records the last state, once the workers have paused and control threads have stopped, and
    /// ends this process by `end`, which must not drop anything: the next process continues the
    /// switch.
    pub fn leave(&self, end: impl FnOnce()) {
        let stations = self.learned();
        let ports = lock(&self.ports);
        // Workers that have ended use no port.
        let _ = self.pause(&ports);
        let state = State { has_ended: true, ..self.state(&ports, stations) };
        let (Some(leaving), Some(recorder)) = (self.leaving.get(), self.recorder.get()) else {
            return end();
        };
        let mut recording = recorder.recording();
        let timeout = RecordTimeout::leaving();
        let mut held = Vec::new();
        for port in ports.in_order() {
            if !ports.is_due(port, &recording) {
                held.extend(port.end.freeze_for_record(timeout).and_then(Result::ok));
            } else if let Ok(port) = ports.record(port, &mut recording, timeout) {
                held.extend(port);
            }
        }
        recording.record_state(&leaving.page(state));
        end();
    }
}

impl Recorded for Switch {
    type Port = OwnPort;

    fn record_ports(&self, recorder: &Recorder) -> bool {
        let ports = lock(&self.ports);
        let mut recording = recorder.recording();
        let due: Vec<_> = ports.in_order().filter(|port| ports.is_due(port, &recording)).collect();
        let mut is_complete = true;
        for port in due {
            if let Some(link) = &port.end.link {
                link.on_change(recorder.notifier());
            }
            match ports.record(port, &mut recording, RecordTimeout::RUNNING) {
                Ok(_) => {}
                Err(Unrecorded::Busy) => is_complete = false,
                // The others have to wait as well.
                Err(Unrecorded::NotStored) => return false,
            }
        }
        is_complete
    }

    /// Records the state if it `is_changed`, if other stations were learned, or if their ages are
    /// old.
    fn record_state(&self, recorder: &Recorder, is_changed: bool) -> bool {
        let Some(leaving) = self.leaving.get() else { return true };
        let stations = self.learned();
        let mut hasher = DefaultHasher::new();
        for TableEntry { vlan, mac, port, .. } in &stations {
            (vlan, mac.0, port.as_str()).hash(&mut hasher);
        }
        let hash = hasher.finish();
        let mut recorded = lock(&self.recorded_stations);
        let is_same = recorded.is_some_and(|(before, at)| before == hash && at.elapsed() < AGES);
        if is_same && !is_changed {
            return true;
        }
        let state = self.state(&lock(&self.ports), stations);
        let mut recording = recorder.recording();
        let is_kept = recording.record_state(&leaving.page(state));
        if !is_kept {
            // It is outdated.
            recording.remove_state();
        }
        *recorded = is_kept.then(|| (hash, Instant::now()));
        is_kept
    }
}

impl Ports {
    /// Makes workers take only frames that have left the kernel already (`true`), or all. Returns
    /// true if there are such frames.
    fn drain(&self, on: bool) -> bool {
        // Every port drains, so `fold` does not stop at the first one.
        self.in_order().fold(false, |any, port| port.drain(on) | any)
    }

    /// Returns the switch's own part of the page of a port.
    fn own(&self, port: &OpenPort) -> OwnPort {
        let partner = self.pairs.partner(&port.config.name).cloned();
        OwnPort { config: port.config.clone(), partner }
    }

    /// Returns true if a port is not recorded as it is.
    fn is_due(&self, port: &OpenPort, recording: &Recording) -> bool {
        recording.is_due(port.number_of_page(), &port.end, |own| {
            own.config == port.config
                && own.partner.as_ref() == self.pairs.partner(&port.config.name)
        })
    }

    /// Records a port.
    fn record<'p>(
        &self,
        port: &'p OpenPort,
        recording: &mut Recording,
        timeout: RecordTimeout,
    ) -> Result<Option<PausedPort<'p>>, Unrecorded> {
        let counters = Some(port.published.as_fd());
        recording.record_port(port.number_of_page(), self.own(port), &port.end, counters, timeout)
    }

    /// Returns how many seconds ago the counters were reset, and what they were then.
    fn reset(&self) -> Option<(f64, Vec<PortStats>)> {
        let (at, then) = self.reset.as_ref()?;
        let then = self.in_order().filter_map(|port| then.get(&port.index).cloned());
        Some((at.elapsed().as_secs_f64(), then.collect()))
    }
}

/// Continues a port. If that fails, it is opened again if the other process `has_ended`.
fn resume(
    config: &PortConfig,
    live: PortSnapshot,
    has_ended: bool,
) -> Result<Resumed, SwitchError> {
    match config.uri.resume_offloading(live) {
        Ok(resumed) => Ok(Some(resumed)),
        Err(error) if has_ended => Ok(open_again(config, &error).map(|port| (port, None))),
        Err(error) => Err(refused(&error)),
    }
}

/// Opens a port again that cannot be continued because of `error`; `None` if that fails too.
fn open_again(config: &PortConfig, error: &OpenError) -> Option<Port> {
    let name = config.name.as_str();
    warn!(port = name, "does not continue: {error}");
    match config.uri.open_offloading() {
        Ok(port) => Some(port),
        Err(error) => {
            warn!(port = name, "is lost: {error}");
            None
        }
    }
}
