//! The switch as control threads see it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use dray_capture::Captures;
use dray_datapath::lock;
use dray_port::{LinkState, LinkStatus};

use super::bypass;
use super::opening::check_sandbox;
use super::port::OpenPort;
use super::ports::Ports;
use super::switch::Switch;
use crate::changes::Changes;
use crate::config::{Name, PortConfig, SwitchConfig};
use crate::control::{PortState, PortStats, PortStatus, Status, SwitchControl, TableEntry};
use crate::error::SwitchError;

impl SwitchControl for Switch {
    fn add_port(&self, config: &PortConfig, descriptors: Vec<OwnedFd>) -> Result<(), SwitchError> {
        self.check_mirrors(config)?;
        let opened = if descriptors.is_empty() {
            check_sandbox(config)?;
            None
        } else {
            let opened = config.uri.open_with(descriptors);
            Some(opened.map_err(|error| SwitchError::Descriptors(error.to_string()))?)
        };
        self.add(config, opened)?;
        self.confirm();
        Ok(())
    }

    fn check_addresses(&self, config: &PortConfig) -> Result<(), SwitchError> {
        let ports = lock(&self.ports);
        for (mac, vlan) in config.pinned() {
            let learned = self.setting.table.lookup(vlan, mac);
            let other = learned.and_then(|port| ports.view.port(port));
            if let Some(other) = other.filter(|other| other.config.name != config.name) {
                let [port, other] = [config, &other.config].map(|of| of.name.as_str().to_owned());
                return Err(SwitchError::AddressLearned { port, mac, other, vlan });
            }
        }
        Ok(())
    }

    fn remove_port(&self, name: &str) -> Result<(), SwitchError> {
        let mut ports = lock(&self.ports);
        let index = ports.find(name).map(|port| port.index);
        let port = index.and_then(|index| ports.take(index));
        let port = port.ok_or_else(|| SwitchError::NoSuchPort(name.to_owned()))?;
        ports.resolve();
        self.publish(&ports);
        self.close(&ports, port);
        drop(ports);
        self.confirm();
        Ok(())
    }

    fn apply(&self, config: &SwitchConfig, dry_run: bool) -> Result<Changes, SwitchError> {
        let changes = self.change_ports(config, dry_run)?;
        self.confirm();
        Ok(changes)
    }

    fn configured(&self) -> Vec<Name> {
        lock(&self.ports).configured.clone()
    }

    fn status(&self) -> Status {
        let ports = lock(&self.ports);
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            reset_s: ports.reset.as_ref().map(|(at, _)| at.elapsed().as_secs_f64()),
            mode: self.setting.mode,
            flow: self.setting.flow,
            ports: ports.order.len(),
            stations: self.setting.table.len(),
            workers: self.workers.status(&ports),
        }
    }

    fn check_alive(&self) -> Result<(), String> {
        self.workers.check_alive()
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

impl Switch {
    /// Waits until an order of a client would survive a crash.
    fn confirm(&self) {
        self.recorder.get().into_iter().for_each(|recorder| recorder.confirm());
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
            cpu: port.rx.first().map_or(0, |half| self.workers.cpu(half.worker)),
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
