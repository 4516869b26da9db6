//! The switch at a take-over, on both sides ([`takeover`](crate::takeover)), and as the recorder sees
//! it ([`recorder`](crate::recorder)).

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dray_datapath::lock;
use dray_port::{Held, Live, OpenError, Port, Resumption};
use dray_sandbox::SandboxError;
use tracing::warn;

use super::Switch;
use super::port::OpenPort;
use super::switch::{Ports, refused};
use crate::config::{Mode, Name, PortConfig, SwitchConfig};
use crate::counters::{Counters, Ledger};
use crate::engine::{Engine, EngineError, PortStats, TableEntry};
use crate::recorder::{Recorder, State};
use crate::takeover::{Offer, OfferedPort};

/// Time within which the control thread of a port gets ready to continue.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time that the handling of a message may take while the port is to be handed over.
const FREEZING: Duration = Duration::from_secs(1);
/// Time within which workers forward frames that have left the kernel already.
const DRAINING: Duration = Duration::from_millis(50);
/// Time for the handling of a message while the port is recorded.
const RECORDING: Duration = Duration::from_millis(5);

/// State with which a switch that takes over continues.
pub(crate) struct Heir {
    ports: Vec<(Name, OfferedEnd)>,
    reset: Option<(f64, Vec<PortStats>)>,
}

struct OfferedEnd {
    partner: Option<Name>,
    ledger: Option<OwnedFd>,
    resumption: Option<Resumption>,
}

/// A port that continues, and what starts its queues; `None`: it is lost.
type Resumed = Option<(Port, Option<Resumption>)>;

/// Returns the time so many seconds before now; the number is another process's.
fn ago(seconds: f64) -> Instant {
    let now = Instant::now();
    Duration::try_from_secs_f64(seconds).ok().and_then(|time| now.checked_sub(time)).unwrap_or(now)
}

impl Switch {
    /// Hands over to another process. First the control threads of all ports stand still, and `offer`
    /// tells the other process what there is. Then the workers let go of the ports, and `end` tells
    /// that, and ends this process. If one of both fails, the switch goes on.
    ///
    /// # Errors
    /// Why a port cannot be handed over, or the error of `offer` or `end`.
    pub(crate) fn hand_over(
        &self,
        settings: &SwitchConfig,
        offer: impl FnOnce(&Offer) -> Result<(), String>,
        end: impl FnOnce() -> Result<Infallible, String>,
    ) -> Result<Infallible, String> {
        let stations = self.learned();
        let mut ports = lock(&self.ports);
        let open: Vec<Arc<OpenPort>> = ports.in_order().cloned().collect();
        let mut held: Vec<Held<'_>> = Vec::new();
        for port in &open {
            let failed = |what| format!("port {:?}: {what}", port.config.name.as_str());
            let unsupported = || failed("such a port cannot be handed over".to_owned());
            let port = port.hold(FREEZING).ok_or_else(unsupported)?;
            held.push(port.map_err(|error| failed(error.to_string()))?);
        }
        let offered = open.iter().zip(&mut held).map(|(port, held)| ports.offer(port, Some(held)));
        offer(&Offer {
            settings: SwitchConfig { ports: Vec::new(), ..settings.clone() }.to_toml(),
            ports: offered.collect::<io::Result<_>>().map_err(|error| error.to_string())?,
            configured: ports.configured.clone(),
            given: ports.given.clone(),
            stations,
            uptime_s: self.started.elapsed().as_secs_f64(),
            reset: ports.reset(),
        })?;
        self.let_go(&mut ports);
        end().inspect_err(|_| {
            ports.held = false;
            ports.drain(false);
            self.publish(&ports);
        })
    }

    /// Takes all ports from the workers.
    fn let_go(&self, ports: &mut Ports) {
        let until = Instant::now() + DRAINING;
        while ports.drain(true) && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(20));
        }
        ports.held = true;
        self.publish(ports);
        ports.in_order().for_each(|port| port.count_from(None));
    }

    fn learned(&self) -> Vec<TableEntry> {
        self.table().into_iter().filter(|station| !station.pinned).collect()
    }

    /// Starts a switch with the ports of an offer and those of `config`, as
    /// [`start_confined`](Self::start_confined) does. No frame passes until it
    /// [continues](Self::resume). If the other process `has_ended`, ports that cannot be continued are
    /// opened again.
    pub(crate) fn take_over(
        config: &SwitchConfig,
        offer: Offer,
        has_ended: bool,
        confine: impl FnOnce() -> Result<(), SandboxError>,
    ) -> Result<(Self, Heir), EngineError> {
        let Offer { mut ports, configured, given, stations, uptime_s, reset, .. } = offer;
        let mut heir = Heir { ports: Vec::new(), reset };
        // As those that are opened, they may need privileges.
        let mut uplinks = HashMap::new();
        for OfferedPort { config, live, .. } in &mut ports {
            let is_over = has_ended && live.is_empty();
            if !config.uri.is_local() && !is_over {
                let resumed = resume(config, std::mem::take(live), has_ended)?;
                uplinks.insert(config.name.clone(), resumed);
            }
        }
        let adopt = |switch: &Self| switch.adopt(ports, uplinks, has_ended, &stations, &mut heir);
        let switch = Self::start_with(config, ago(uptime_s), adopt, confine)?;
        let mut now = lock(&switch.ports);
        (now.configured, now.given) = (configured, given);
        drop(now);
        Ok((switch, heir))
    }

    fn adopt(
        &self,
        offered: Vec<OfferedPort>,
        mut uplinks: HashMap<Name, Resumed>,
        has_ended: bool,
        stations: &[TableEntry],
        heir: &mut Heir,
    ) -> Result<(), EngineError> {
        lock(&self.ports).held = true;
        for OfferedPort { config, partner, live, ledger } in offered {
            let resumed = match uplinks.remove(&config.name) {
                Some(resumed) => resumed,
                None if has_ended && live.is_empty() => {
                    // It is opened with those of the configuration.
                    heir.ports
                        .push((config.name, OfferedEnd { partner, ledger, resumption: None }));
                    continue;
                }
                None => resume(&config, live, has_ended)?,
            };
            let Some((port, resumption)) = resumed else { continue };
            if let Some(resumption) = &resumption
                && let Err(why) = resumption.wait_ready(PATIENCE)
                && !has_ended
            {
                return Err(EngineError::Open(format!("port {}: {why}", config.uri)));
            }
            self.add(&config, Some(port))?;
            heir.ports.push((config.name, OfferedEnd { partner, ledger, resumption }));
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
    pub(crate) fn resume(&self, Heir { ports: ends, reset }: Heir) {
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
        for (name, OfferedEnd { ledger, resumption, .. }) in ends {
            let Some(port) = ports.find(name.as_str()) else { continue };
            let counters = ledger.map(Ledger::past).transpose().unwrap_or_else(|error| {
                warn!(port = name.as_str(), %error, "counters start at zero");
                None
            });
            port.count_from(Some(counters.unwrap_or_else(Counters::default)));
            starting.extend(resumption.inspect(Resumption::go));
        }
        starting.into_iter().for_each(|resumption| resumption.wait_started(FREEZING));
        ports.reset = reset.map(|(seconds, stats)| {
            let index = |stats: &PortStats| Some(ports.find(stats.name.as_str())?.index);
            let by_index = stats.into_iter().filter_map(|stats| Some((index(&stats)?, stats)));
            (ago(seconds), by_index.collect())
        });
        ports.held = false;
        self.publish(&ports);
    }

    /// Returns the state, apart from the ports.
    pub(crate) fn state(&self) -> State {
        let (stations, uptime_s) = (self.learned(), self.started.elapsed().as_secs_f64());
        let ports = lock(&self.ports);
        State {
            ports: ports.in_order().map(|port| port.config.clone()).collect(),
            configured: ports.configured.clone(),
            given: ports.given.clone(),
            stations,
            uptime_s,
            reset: ports.reset(),
            ..State::now()
        }
    }

    /// Has the ports that have changed recorded. Returns false if one is busy, or could not be kept, and
    /// has to be looked at again.
    pub(crate) fn record_ports(&self, recorder: &Recorder) -> bool {
        let ports = lock(&self.ports);
        if ports.held {
            return true;
        }
        let mut recording = recorder.recording();
        let is_due = |port: &&Arc<OpenPort>| {
            recording.is_due(&port.config, port.changes(), ports.pairs.partner(&port.config.name))
        };
        let due: Vec<_> = ports.in_order().filter(is_due).collect();
        let mut is_complete = true;
        for port in due {
            if let Some(link) = &port.link {
                link.on_change(recorder.teller());
            }
            let held = port.hold(RECORDING).transpose();
            match held.and_then(|mut held| ports.offer(port, held.as_mut())) {
                Ok(offered) => {
                    // The others have to wait as well if the supervisor is behind.
                    if !recording.record(offered) {
                        return false;
                    }
                }
                Err(_) => is_complete = false,
            }
        }
        is_complete
    }

    /// Records the last state, once the workers have let go of all ports, and control threads stand
    /// still.
    pub(crate) fn record_end(&self, recorder: &Recorder, end: fn() -> !) -> ! {
        let state = State { has_ended: true, ..self.state() };
        let mut ports = lock(&self.ports);
        let open: Vec<Arc<OpenPort>> = ports.in_order().cloned().collect();
        self.let_go(&mut ports);
        let mut recording = recorder.recording();
        let mut all = Vec::new();
        for port in &open {
            let held = port.hold(RECORDING).transpose();
            let partner = ports.pairs.partner(&port.config.name);
            if let Ok(mut held) = held {
                if recording.is_due(&port.config, port.changes(), partner)
                    && let Ok(offered) = ports.offer(port, held.as_mut())
                {
                    recording.record(offered);
                }
                all.push(held);
            }
        }
        recording.record_state(state, true);
        end()
    }
}

impl Ports {
    /// Makes workers take only frames that have left the kernel already (`true`), or all. Returns true if
    /// there are such frames.
    fn drain(&self, on: bool) -> bool {
        // Every port is told.
        self.in_order().fold(false, |any, port| port.drain(on) | any)
    }

    /// Describes a port for another process; one that is not `held` can only be opened again.
    fn offer(&self, port: &OpenPort, held: Option<&mut Held<'_>>) -> io::Result<OfferedPort> {
        Ok(OfferedPort {
            config: port.config.clone(),
            partner: self.pairs.partner(&port.config.name).cloned(),
            live: held.map(Held::take_live).unwrap_or_default(),
            ledger: Some(port.ledger.as_fd().try_clone_to_owned()?),
        })
    }

    /// Returns how many seconds ago the counters were reset, and what they were then.
    fn reset(&self) -> Option<(f64, Vec<PortStats>)> {
        let (at, then) = self.reset.as_ref()?;
        let then = self.in_order().filter_map(|port| then.get(&port.index).cloned());
        Some((at.elapsed().as_secs_f64(), then.collect()))
    }
}

/// Continues a port. If that fails, it is opened again if the other process `has_ended`.
fn resume(config: &PortConfig, live: Live, has_ended: bool) -> Result<Resumed, EngineError> {
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
