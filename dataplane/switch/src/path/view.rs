//! The ports of a switch as its workers see them.

use std::collections::BTreeMap;
use std::sync::Arc;

use dray_wire::MacAddr;

use super::pins::Pins;
use super::port::OpenPort;
use super::tally::Mirrors;
use crate::config::Pairs;

/// The ports that exist at present.
#[derive(Clone, Default)]
pub(super) struct View {
    /// By index; `None` if no port has that index.
    pub(super) ports: Vec<Option<Arc<OpenPort>>>,
    /// By index: the partner of each port (patch mode).
    partners: Vec<Option<u16>>,
    pub(super) mirrors: Mirrors,
    /// The addresses pinned to ports, if there are any.
    pub(super) pins: Option<Arc<Pins>>,
}

impl View {
    pub(super) fn port(&self, index: u16) -> Option<&Arc<OpenPort>> {
        self.ports.get(usize::from(index))?.as_ref()
    }

    /// Returns true if the port `index` is the same as in the view `before`.
    pub(super) fn has(&self, before: &Self, index: u16) -> bool {
        match (before.port(index), self.port(index)) {
            (Some(before), Some(after)) => Arc::ptr_eq(before, after),
            _ => false,
        }
    }

    pub(super) fn partner(&self, index: u16) -> Option<&Arc<OpenPort>> {
        self.port((*self.partners.get(usize::from(index))?)?)
    }

    pub(super) fn find(&self, name: &str) -> Option<&Arc<OpenPort>> {
        self.all().find(|port| port.config.name.as_str() == name)
    }

    /// Recomputes the partner of each port.
    pub(super) fn pair(&mut self, pairs: &Pairs) {
        let by_name: BTreeMap<_, _> =
            self.all().map(|port| (port.config.name.clone(), port.index)).collect();
        self.partners = vec![None; self.ports.len()];
        for (a, b) in pairs.all() {
            if let (Some(a), Some(b)) = (by_name.get(a), by_name.get(b)) {
                self.partners[usize::from(*a)] = Some(*b);
                self.partners[usize::from(*b)] = Some(*a);
            }
        }
    }

    /// Returns the port that an address is pinned to in a VLAN; 0 stands for ports without VLANs.
    #[inline]
    pub(super) fn owner(&self, vlan: u16, mac: MacAddr) -> Option<&Arc<OpenPort>> {
        self.port(self.pins.as_ref()?.owner(vlan, mac)?)
    }

    /// Recomputes which addresses are pinned to which ports.
    pub(super) fn pin(&mut self) {
        let of = |port: &Arc<OpenPort>| {
            let index = port.index;
            port.config.pinned().map(move |(mac, vlan)| (vlan, mac, index)).collect::<Vec<_>>()
        };
        self.pins = Pins::new(self.all().flat_map(of)).map(Arc::new);
    }

    /// Recomputes which ports mirror which.
    pub(super) fn mirror(&mut self) {
        let of = |source: &Option<Arc<OpenPort>>| {
            let name = source.as_ref().map(|source| &source.config.name);
            let is_one =
                |port: &&Arc<OpenPort>| name.is_some_and(|name| port.config.mirror.contains(name));
            self.all().filter(is_one).cloned().collect::<Arc<[_]>>()
        };
        let mirrors: Vec<_> = self.ports.iter().map(of).collect();
        let is_any = mirrors.iter().any(|mirrors| !mirrors.is_empty());
        self.mirrors = if is_any { mirrors } else { Vec::new() };
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<OpenPort>> {
        self.ports.iter().flatten()
    }
}
