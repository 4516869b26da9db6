//! Metrics and health of a switch, for monitoring systems.

use dray_daemon::Metrics;
use dray_port::guarded;
use dray_service::{LoggedPort, Service, total};

use crate::apply::Configuration;
use crate::config::{Name, SwitchConfig};
use crate::control::{BypassStatus, PortState, PortStatus, Status, SwitchControl};
use crate::counters::{Counters, DropReason};

/// Name and description of a counter, and its number.
type Counter = (&'static str, &'static str, fn(&Counters) -> u64);

/// Counters of a port.
const COUNTERS: [Counter; 8] = [
    (
        "dray_switch_port_receive_frames",
        "Frames that the port's peer sent, including those dropped.",
        |c| c.rx_frames,
    ),
    ("dray_switch_port_receive_bytes", "Bytes of these frames.", |c| c.rx_bytes),
    ("dray_switch_port_transmit_frames", "Frames that were sent to the port's peer.", |c| {
        c.tx_frames
    }),
    ("dray_switch_port_transmit_bytes", "Bytes of these frames.", |c| c.tx_bytes),
    (
        "dray_switch_port_addresses_refused",
        "Source addresses not learned: the table or `port_addresses` is full.",
        |c| c.addresses_refused,
    ),
    (
        "dray_switch_port_addresses_limited",
        "Source addresses not learned beyond the `storm` rate.",
        |c| c.addresses_limited,
    ),
    (
        "dray_switch_port_receive_delayed_frames",
        "Frames that were received and waited for `rate_in`.",
        |c| c.delayed_in,
    ),
    ("dray_switch_port_transmit_delayed_frames", "Frames that waited for `rate_out`.", |c| {
        c.delayed_out
    }),
];

/// A switch and its settings, as monitoring systems and the log observe them.
pub struct Observed<'s> {
    switch: &'s dyn SwitchControl,
    settings: &'s SwitchConfig,
}

impl<'s> Observed<'s> {
    /// Observes `switch`, which has this configuration.
    pub fn new(switch: &'s dyn SwitchControl, config: &'s Configuration) -> Self {
        Self { switch, settings: config.settings() }
    }
}

impl Service for Observed<'_> {
    fn check_alive(&self) -> Result<(), String> {
        self.switch.check_alive()
    }

    fn check_ready(&self) -> Result<(), String> {
        ready(&self.switch.ports(), &self.switch.configured())
    }

    fn metrics(&self) -> Metrics {
        metrics(&self.switch.status(), &self.switch.ports(), self.settings)
    }

    fn logged_ports(&self) -> Vec<LoggedPort> {
        self.switch.ports().into_iter().map(logged).collect()
    }
}

fn logged(port: PortStatus) -> LoggedPort {
    let failure = port.last_disconnect.clone().filter(|_| port.state == PortState::Failed);
    LoggedPort {
        name: port.config.name.to_string(),
        uri: port.config.uri.to_string(),
        is_running: port.state == PortState::Running,
        failure,
        unreachable: port.unreachable,
        disconnects: total(&port.disconnects),
        last_disconnect: port.last_disconnect,
    }
}

/// Checks that the ports of the configuration are there and have not failed. A port whose peer has
/// not connected is ready, and so is a switch whose further ports have failed: each belongs to one
/// container.
fn ready(ports: &[PortStatus], configured: &[Name]) -> Result<(), String> {
    let problem = |name: &Name| {
        let Some(port) = ports.iter().find(|port| port.config.name == *name) else {
            return Some(format!("port {name}: was removed"));
        };
        let why = || port.last_disconnect.clone().unwrap_or_default();
        (port.state == PortState::Failed).then(|| format!("port {name}: {}", why()))
    };
    let problems: Vec<_> = configured.iter().filter_map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

fn metrics(status: &Status, ports: &[PortStatus], config: &SwitchConfig) -> Metrics {
    let mut metrics = Metrics::default();
    of_switch(&mut metrics, status, config);
    of_workers(&mut metrics, status);
    of_ports(&mut metrics, ports);
    metrics.add_process(&status.version);
    metrics
}

fn of_switch(metrics: &mut Metrics, status: &Status, config: &SwitchConfig) {
    let (mode, flow) = (format!("{:?}", status.mode), format!("{:?}", status.flow));
    let labels = [("mode", &*mode.to_lowercase()), ("flow", &*flow.to_lowercase())];
    metrics.gauge("dray_switch_info", "Always 1; mode and flow of the switch.", [(labels, 1u64)]);
    metrics.gauge("dray_switch_ports", "Ports.", [([], status.ports)]);
    let help = "Known stations, learned or pinned.";
    metrics.gauge("dray_switch_stations", help, [([], status.stations)]);
    let help = "Maximum number of learned stations: `table_size`.";
    metrics.gauge("dray_switch_stations_max", help, [([], config.table_size)]);
    let help = "Memory that peers share with the switch.";
    metrics.gauge("dray_switch_peer_memory_bytes", help, [([], guarded().bytes)]);
    let help = "Maximum memory that peers may share: `peer_memory`.";
    metrics.gauge("dray_switch_peer_memory_max_bytes", help, [([], config.peer_memory.0)]);
}

fn of_workers(metrics: &mut Metrics, status: &Status) {
    let cpus: Vec<_> = status.workers.iter().map(|worker| worker.cpu.to_string()).collect();
    let workers = || cpus.iter().map(|cpu| [("cpu", cpu.as_str())]).zip(&status.workers);
    let help = "Time in which the worker had frames to move.";
    let busy = workers().map(|(labels, worker)| (labels, worker.work_s));
    metrics.counter("dray_switch_worker_busy_seconds", help, busy);
    let help = "Times that the worker went to sleep for lack of frames.";
    let sleeps = workers().map(|(labels, worker)| (labels, worker.sleeps));
    metrics.counter("dray_switch_worker_sleeps", help, sleeps);
    let help = "Batches of frames that the worker received.";
    let batches = workers().map(|(labels, worker)| (labels, worker.batches));
    metrics.counter("dray_switch_worker_batches", help, batches);
    let help = "Frames in the batches that the worker received.";
    let frames = workers().map(|(labels, worker)| (labels, worker.frames));
    metrics.counter("dray_switch_worker_frames", help, frames);
}

fn of_ports(metrics: &mut Metrics, ports: &[PortStatus]) {
    let named = || ports.iter().map(|port| ([("port", port.config.name.as_str())], port));
    let uris: Vec<_> = ports.iter().map(|port| port.config.uri.to_string()).collect();
    let infos = named().zip(&uris).map(|(([port], status), uri)| {
        let partner = status.partner.as_ref().map_or("", |partner| partner.as_str());
        ([port, ("uri", uri.as_str()), ("pair", partner)], 1u64)
    });
    let help = "Always 1; where the port's peer is, and the other port of its pair.";
    metrics.gauge("dray_switch_port_info", help, infos);
    let up = named().map(|(labels, port)| (labels, port.state == PortState::Running));
    metrics.gauge("dray_switch_port_up", "1 if frames can pass.", up);
    let is_connected = |state| matches!(state, PortState::Connected | PortState::Running);
    let connected = named().map(|(labels, port)| (labels, is_connected(port.state)));
    let help = "1 if a peer is connected, or the interface works.";
    metrics.gauge("dray_switch_port_peer_connected", help, connected);
    let disconnects =
        named().map(|(labels, port)| (labels, port.disconnects.values().sum::<u64>()));
    let help = "Disconnects of peers, by themselves or by the switch.";
    metrics.counter("dray_switch_port_disconnects", help, disconnects);
    let stations = named().map(|(labels, port)| (labels, port.stations));
    metrics.gauge("dray_switch_port_stations", "Stations learned on the port.", stations);
    let rings = || {
        named().flat_map(|([port], status)| {
            let fills = [("receive", status.receive_ring), ("transmit", status.transmit_ring)];
            let known = fills.into_iter().filter_map(|(way, fill)| Some((way, fill?)));
            known.map(move |(way, fill)| ([port, ("direction", way)], fill))
        })
    };
    let used = rings().map(|(labels, fill)| (labels, fill.used));
    let help = "Ring entries with frames that the receiving side has not taken.";
    metrics.gauge("dray_switch_port_ring_used", help, used);
    let size = rings().map(|(labels, fill)| (labels, fill.size));
    metrics.gauge("dray_switch_port_ring_size", "Entries of the port's rings.", size);
    for (name, help, number) in COUNTERS {
        metrics.counter(name, help, named().map(|(of, port)| (of, number(&port.counters))));
    }
    let bypassed = named().flat_map(|([port], status)| {
        let ways = |of: BypassStatus| [("receive", of.rx_frames), ("transmit", of.tx_frames)];
        let ways = status.bypass.into_iter().flat_map(ways);
        ways.map(move |(way, frames)| ([port, ("direction", way)], frames))
    });
    let help = "Those of the port's frames that bypassed the switch.";
    metrics.counter("dray_switch_port_bypassed_frames", help, bypassed);
    let drops = named().flat_map(|([port], status)| {
        let number = |reason: DropReason| status.counters.drops.get(reason);
        DropReason::ALL
            .iter()
            .map(move |reason| ([port, ("reason", reason.name())], number(*reason)))
    });
    let help = "Dropped frames, each counted once.";
    metrics.counter("dray_switch_port_dropped_frames", help, drops);
}
