//! The ports of a switch, with what control threads know of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::port::OpenPort;
use super::view::View;
use crate::config::{Name, Pairs};
use crate::control::PortStats;

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
