//! Changing the ports of a running switch to those of a configuration ([`apply`](crate::apply)).

use std::sync::Arc;

use dray_datapath::lock;

use super::opening::{check_sandbox, open_port};
use super::port::OpenPort;
use super::ports::Ports;
use super::switch::Switch;
use super::view::View;
use crate::changes::{Changes, Plan};
use crate::config::{PortConfig, SwitchConfig};
use crate::counters::Counters;
use crate::error::SwitchError;

/// A port that was closed to open another one in its place.
struct Closed {
    index: u16,
    config: PortConfig,
    counters: Counters,
}

impl Switch {
    /// See [`SwitchControl::apply`](crate::SwitchControl::apply).
    pub(super) fn change_ports(
        &self,
        config: &SwitchConfig,
        dry_run: bool,
    ) -> Result<Changes, SwitchError> {
        let mut ports = lock(&self.ports);
        let partner = |port: &OpenPort| ports.pairs.partner(&port.config.name).cloned();
        let running = ports.in_order().map(|port| (port.config.clone(), partner(port)));
        let (given, before): (Vec<_>, Vec<_>) =
            ports.configured.iter().cloned().partition(|name| ports.given.contains(name));
        let plan = Plan::new(&running.collect::<Vec<_>>(), config, &before)?;
        plan.open.iter().try_for_each(check_sandbox)?;
        if dry_run {
            return Ok(plan.changes);
        }
        // Workers see nothing of this copy until it is published.
        let mut next = ports.clone();
        next.view.mirrors.clear();
        let mut closed = Vec::new();
        if let Err(error) = self.open_all(&mut ports, &mut next, &plan, &mut closed) {
            next.view.all().for_each(|port| self.uncapture(&ports, port));
            drop(next);
            return Err(self.open_again(&mut ports, closed, error));
        }
        // From here on nothing can fail.
        // Of a name that has a new port, `ports` has the old one, unless it is closed already.
        let index = |port: &PortConfig| Some(ports.find(port.name.as_str())?.index);
        let close = plan.close.iter().filter_map(index);
        let removed: Vec<_> = close.filter_map(|index| next.take(index)).collect();
        let order = plan.ports.iter().filter_map(|name| Some(next.find(name.as_str())?.index));
        next.order = order.collect();
        next.pairs = plan.pairs;
        next.configured = config.ports.iter().map(|port| port.name.clone()).collect();
        next.configured.extend(given);
        *ports = next;
        if !plan.alter.is_empty() {
            self.alter(&mut ports, plan.alter);
        }
        ports.resolve();
        self.publish(&ports);
        removed.into_iter().for_each(|port| self.close(&ports, port));
        self.report_change();
        Ok(plan.changes)
    }

    /// Opens the new ports of `plan`, among `next`. Those that need an interface or a socket of a
    /// port to be closed come last, when that port is among the `closed`.
    fn open_all(
        &self,
        ports: &mut Ports,
        next: &mut Ports,
        plan: &Plan,
        closed: &mut Vec<Closed>,
    ) -> Result<(), SwitchError> {
        let is_late = |port: &&PortConfig| SwitchError::shared(port, &plan.close).is_some();
        let (late, early): (Vec<_>, Vec<_>) = plan.open.iter().partition(is_late);
        for port in early {
            self.insert(next, port, open_port(port)?)?;
        }
        let is_blocking =
            |port: &&PortConfig| SwitchError::shared(port, late.iter().copied()).is_some();
        let blocking = plan.close.iter().filter(is_blocking);
        let blocking: Vec<_> =
            blocking.filter_map(|port| Some(ports.find(port.name.as_str())?.clone())).collect();
        if blocking.is_empty() {
            return Ok(());
        }
        for port in &blocking {
            next.take(port.index);
            ports.view.ports[usize::from(port.index)] = None;
        }
        ports.resolve();
        self.publish(ports);
        for port in blocking {
            let (config, counters) = (port.config.clone(), port.counted());
            closed.push(Closed { index: port.index, config, counters });
            self.close(next, port);
        }
        late.into_iter().try_for_each(|port| self.insert(next, port, open_port(port)?))
    }

    /// Opens ports that were closed in vain; returns the error if that fails.
    fn open_again(
        &self,
        ports: &mut Ports,
        closed: Vec<Closed>,
        mut error: SwitchError,
    ) -> SwitchError {
        if closed.is_empty() {
            return error;
        }
        for Closed { index, config, counters } in closed {
            let opened = open_port(&config);
            match opened.and_then(|port| self.adopt_opened(ports, index, &config, port)) {
                Ok(port) => {
                    port.count_from(Some(counters));
                    ports.view.ports[usize::from(index)] = Some(Arc::new(port));
                }
                Err(why) => {
                    ports.pairs.remove(&config.name);
                    ports.order.retain(|other| *other != index);
                    error = SwitchError::Open(format!("{error}; and a port is lost: {why}"));
                }
            }
        }
        ports.resolve();
        self.publish(ports);
        self.report_change();
        error
    }

    /// Gives open ports other keys. Workers see no port meanwhile: frames wait.
    fn alter(&self, ports: &mut Ports, configs: Vec<PortConfig>) {
        self.workers.publish(View::default());
        ports.in_order().for_each(|port| port.count_from(None));
        for config in configs {
            let Some(index) = ports.find(config.name.as_str()).map(|port| port.index) else {
                continue;
            };
            let place = &mut ports.view.ports[usize::from(index)];
            *place = place.take().map(|port| match Arc::try_unwrap(port) {
                Ok(port) => {
                    if (&port.config.vlan, &port.config.mirror) != (&config.vlan, &config.mirror) {
                        self.setting.table.remove_port(index);
                    }
                    Arc::new(port.configured(config))
                }
                // A worker died with a reference to it: the switch is about to end.
                Err(port) => port,
            });
        }
    }
}
