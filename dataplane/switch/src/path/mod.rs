//! The data path: ports, and the workers that move frames between them.
//!
//! Control threads build a [`View`], which holds all that workers need to know, and publish it;
//! each worker adopts it between two batches. A view never changes, so adding or removing a port
//! does not disturb the others.

mod apply;
mod block;
mod bypass;
mod finishing;
mod head;
mod inline;
mod learning;
mod ledger;
mod patch;
mod pins;
mod pool;
mod port;
mod ready;
mod setting;
mod shaper;
mod switch;
mod takeover;
mod tally;
mod vlans;
mod waiting;
mod worker;

pub use inline::InlineSwitch;
pub use switch::Switch;

use std::collections::BTreeMap;
use std::sync::Arc;

use dray_wire::MacAddr;

use crate::config::Pairs;

use pins::Pins;
use port::OpenPort;
use setting::Setting;
use tally::Mirrors;

/// The ports that exist at present.
#[derive(Clone, Default)]
struct View {
    /// By index; `None` if no port has that index.
    ports: Vec<Option<Arc<OpenPort>>>,
    /// By index: the partner of each port (patch mode).
    partners: Vec<Option<u16>>,
    mirrors: Mirrors,
    /// The addresses pinned to ports, if there are any.
    pins: Option<Arc<Pins>>,
}

impl View {
    fn port(&self, index: u16) -> Option<&Arc<OpenPort>> {
        self.ports.get(usize::from(index))?.as_ref()
    }

    /// Returns true if the port `index` is the same as in the view `before`.
    fn has(&self, before: &Self, index: u16) -> bool {
        match (before.port(index), self.port(index)) {
            (Some(before), Some(after)) => Arc::ptr_eq(before, after),
            _ => false,
        }
    }

    fn partner(&self, index: u16) -> Option<&Arc<OpenPort>> {
        self.port((*self.partners.get(usize::from(index))?)?)
    }

    fn find(&self, name: &str) -> Option<&Arc<OpenPort>> {
        self.all().find(|port| port.config.name.as_str() == name)
    }

    /// Recomputes the partner of each port.
    fn pair(&mut self, pairs: &Pairs) {
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
    fn owner(&self, vlan: u16, mac: MacAddr) -> Option<&Arc<OpenPort>> {
        self.port(self.pins.as_ref()?.owner(vlan, mac)?)
    }

    /// Recomputes which addresses are pinned to which ports.
    fn pin(&mut self) {
        let of = |port: &Arc<OpenPort>| {
            let index = port.index;
            port.config.pinned().map(move |(mac, vlan)| (vlan, mac, index)).collect::<Vec<_>>()
        };
        self.pins = Pins::new(self.all().flat_map(of)).map(Arc::new);
    }

    /// Recomputes which ports mirror which.
    fn mirror(&mut self) {
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

    fn all(&self) -> impl Iterator<Item = &Arc<OpenPort>> {
        self.ports.iter().flatten()
    }
}
