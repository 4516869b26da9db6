//! The switch at a take-over, on both sides ([`takeover`](crate::takeover)).

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dray_datapath::lock;
use dray_port::Resumption;
use dray_sandbox::SandboxError;

use super::Switch;
use super::port::{Held, OpenPort};
use super::switch::refused;
use crate::config::{Mode, SwitchConfig};
use crate::engine::{Engine, EngineError, TableEntry};
use crate::takeover::{Ending, Offer, OfferedPort, PortEnding};

/// Time within which the control thread of a port gets ready to continue.
const PATIENCE: Duration = Duration::from_secs(5);

/// The ports of a switch that takes over, until they continue; in the order of the offer.
pub(crate) struct Heir(Vec<Option<Resumption>>);

/// Returns the time so many seconds before now; the number is another process's.
fn ago(seconds: f64) -> Instant {
    let now = Instant::now();
    Duration::try_from_secs_f64(seconds).ok().and_then(|time| now.checked_sub(time)).unwrap_or(now)
}

impl Switch {
    /// Hands over to another process. First the control threads of all ports stand still, and `offer`
    /// tells the other process what there is. Then the workers let go of the ports, and `end` tells
    /// where they stopped. If both succeed, the other process has taken over, and this one must end
    /// without dropping the switch. Otherwise the switch goes on.
    ///
    /// # Errors
    /// Why a port cannot be handed over, or the error of `offer` or `end`.
    pub(crate) fn hand_over(
        &self,
        settings: &SwitchConfig,
        offer: impl FnOnce(&Offer) -> Result<(), String>,
        end: impl FnOnce(&Ending) -> Result<(), String>,
    ) -> Result<(), String> {
        let stations = self.table().into_iter().filter(|station| !station.pinned).collect();
        let mut ports = lock(&self.ports);
        let open: Vec<Arc<OpenPort>> = ports.in_order().cloned().collect();
        let mut held: Vec<Held<'_>> = Vec::new();
        for port in &open {
            let failed =
                |error: io::Error| format!("port {:?}: {error}", port.config.name.as_str());
            held.push(port.hold().map_err(failed)?);
        }
        let offered = open.iter().zip(&mut held).map(|(port, held)| OfferedPort {
            config: port.config.clone(),
            partner: ports.pairs.partner(&port.config.name).cloned(),
            live: held.take_live(),
        });
        offer(&Offer {
            settings: SwitchConfig { ports: Vec::new(), ..settings.clone() }.to_toml(),
            ports: offered.collect(),
            stations,
            uptime_s: self.started.elapsed().as_secs_f64(),
        })?;
        ports.held = true;
        self.publish(&ports);
        open.iter().for_each(|port| port.count_from(None));
        let ports_end = open.iter().zip(&held).map(|(port, held)| PortEnding {
            counters: port.counted(),
            last_words: held.last_words(),
        });
        let ports_end = ports_end.collect();
        let reset = ports.reset.as_ref().map(|(at, then)| {
            let then = open.iter().filter_map(|port| then.get(&port.index).cloned());
            (at.elapsed().as_secs_f64(), then.collect())
        });
        end(&Ending { ports: ports_end, reset }).inspect_err(|_| {
            ports.held = false;
            self.publish(&ports);
        })
    }

    /// Starts a switch with the ports of an offer and those of `config`, as
    /// [`start_confined`](Self::start_confined) does. No frame passes until it
    /// [continues](Self::resume).
    pub(crate) fn take_over(
        config: &SwitchConfig,
        offer: Offer,
        confine: impl FnOnce() -> Result<(), SandboxError>,
    ) -> Result<(Self, Heir), EngineError> {
        let Offer { ports, stations, uptime_s, .. } = offer;
        let mut heir = Heir(Vec::new());
        let adopt = |switch: &Self| switch.adopt(ports, &stations, &mut heir);
        let switch = Self::start_with(config, ago(uptime_s), adopt, confine)?;
        Ok((switch, heir))
    }

    fn adopt(
        &self,
        offered: Vec<OfferedPort>,
        stations: &[TableEntry],
        heir: &mut Heir,
    ) -> Result<(), EngineError> {
        lock(&self.ports).held = true;
        let mut partners = Vec::new();
        for OfferedPort { config, partner, live } in offered {
            let (port, resumption) = config.uri.resume(live).map_err(|error| refused(&error))?;
            if let Some(resumption) = &resumption {
                let failed = |why| EngineError::Open(format!("port {}: {why}", config.uri));
                resumption.wait_ready(PATIENCE).map_err(failed)?;
            }
            heir.0.push(resumption);
            self.add(&config, Some(port))?;
            partners.push((config.name, partner));
        }
        let mut ports = lock(&self.ports);
        if self.setting.mode == Mode::Patch && partners.iter().any(|(_, with)| with.is_some()) {
            partners.into_iter().for_each(|(name, with)| ports.pairs.restore(&name, with));
            ports.resolve();
        }
        if self.setting.mode == Mode::Learning {
            let now = self.started.elapsed().as_secs() as u32;
            for TableEntry { vlan, mac, port, age_s, .. } in stations {
                if let Some(port) = ports.find(port.as_str()) {
                    self.setting.table.learn(*vlan, *mac, port.index, now.wrapping_sub(*age_s));
                }
            }
        }
        Ok(())
    }

    /// Continues where the other switch has stopped. The ending must have as many ports as the offer.
    pub(crate) fn resume(&self, Heir(heir): Heir, ending: Ending) {
        let mut ports = lock(&self.ports);
        for ((port, resumption), end) in ports.in_order().zip(heir).zip(ending.ports) {
            port.count_from(Some(end.counters));
            if let Some(resumption) = resumption {
                resumption.go(end.last_words);
            }
        }
        ports.reset = ending.reset.map(|(seconds, stats)| {
            let index = |stats: &crate::PortStats| Some(ports.find(stats.name.as_str())?.index);
            let by_index = stats.into_iter().filter_map(|stats| Some((index(&stats)?, stats)));
            (ago(seconds), by_index.collect())
        });
        ports.held = false;
        self.publish(&ports);
    }
}
