//! Ports whose frames may bypass the switch: the kernel forwards them from container to container,
//! if the switch would do no more than that.
//!
//! The bypass of a port is open only if the switch would not limit, tag, learn from, mirror or
//! capture the port's frames: between ports of one VLAN, each of which sends from one address of
//! its own. The port's counters include these frames. A bypass stays as it is while no switch runs.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use dray_datapath::lock;
use dray_port::{BypassEntry, Link};
use dray_wire::MacAddr;

use super::port::OpenPort;
use super::view::View;
use crate::config::{Mode, Vlan};
use crate::control::BypassStatus;

/// VLAN and group of a port, as [`BypassEntry::open`] takes them.
type Rule = (u16, u64);

/// The bypasses of a switch.
#[derive(Default)]
pub(super) struct Bypasses(Mutex<State>);

#[derive(Default)]
struct State {
    /// Number of captures, which are to see all frames.
    captures: usize,
    /// Ports that have one, and the rule if it may be open.
    ports: Vec<(Arc<dyn Link>, Option<Rule>)>,
}

impl Bypasses {
    /// Sets the ports of a switch.
    pub(super) fn set(&self, mode: Mode, view: &View) {
        let of = |port: &Arc<OpenPort>| {
            let mac = MacAddr(port.bypass()?.mac());
            Some((port.end.link.clone()?, rule(mode, view, port, mac)))
        };
        let ports: Vec<_> = view.all().filter_map(of).collect();
        let mut state = lock(&self.0);
        let is_gone =
            |old: &&(Arc<dyn Link>, _)| !ports.iter().any(|(new, _)| Arc::ptr_eq(new, &old.0));
        let gone = state.ports.iter().filter(is_gone);
        gone.filter_map(|(link, _)| link.bypass()).for_each(BypassEntry::close);
        state.ports = ports;
        state.apply();
    }

    /// Notes that a capture has begun or ended.
    pub(super) fn captured(&self, begun: bool) {
        let mut state = lock(&self.0);
        match begun {
            true => state.captures += 1,
            false => state.captures = state.captures.saturating_sub(1),
        }
        state.apply();
    }
}

impl State {
    fn apply(&self) {
        let entries = || {
            self.ports.iter().filter_map(|(link, rule)| {
                Some((link.bypass()?, rule.filter(|_| self.captures == 0)))
            })
        };
        // Before any is opened: VLANs and groups of two configurations must not meet.
        for (entry, rule) in entries() {
            if !rule.is_some_and(|(vlan, group)| entry.is_open_for(vlan, group)) {
                entry.close();
            }
        }
        for (entry, rule) in entries() {
            if let Some((vlan, group)) = rule {
                entry.open(vlan, group);
            }
        }
    }
}

/// Returns the status of a port's bypass.
pub(super) fn status(entry: &BypassEntry) -> BypassStatus {
    let bypassed = entry.bypassed();
    BypassStatus {
        is_open: entry.is_open(),
        rx_frames: bypassed.from_frames,
        tx_frames: bypassed.to_frames,
    }
}

/// Returns the rule of a port whose bypass is that of `mac`; `None` if the switch does more than
/// forward its frames.
fn rule(mode: Mode, view: &View, port: &OpenPort, mac: MacAddr) -> Option<Rule> {
    let config = &port.config;
    let vlan = match config.vlan {
        Vlan::Unaware => 0,
        Vlan::Access(vlan) => vlan.into(),
        Vlan::Trunk { .. } => return None,
    };
    let is_mirrored =
        view.mirrors.get(usize::from(port.index)).is_some_and(|mirrors| !mirrors.is_empty());
    let forwards_only = mode == Mode::Learning
        && config.macs == [mac]
        && config.spoof_check
        && config.rate_in.is_none()
        && config.rate_out.is_none()
        && config.mirror.is_empty()
        && !is_mirrored;
    forwards_only.then(|| (vlan, config.group.as_ref().map_or(0, |group| number(group.as_str()))))
}

/// Returns a number for a group, not 0. Frames between groups with the same number take the switch,
/// which decides.
fn number(group: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    group.hash(&mut hasher);
    hasher.finish().max(1)
}
