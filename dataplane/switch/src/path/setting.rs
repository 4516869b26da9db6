//! Settings of a switch, and what its workers share.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

use dray_datapath::{Idle, ThreadControl, lock};
use dray_port::Link;

use super::pool::Pool;
use crate::config::{Flow, Mode, SwitchConfig};
use crate::table::Table;

/// Settings that never change while a switch runs, and state that all workers share.
pub(super) struct Setting {
    pub(super) mode: Mode,
    pub(super) flow: Flow,
    pub(super) idle: Idle,
    /// Memory of the frames that wait for rates.
    pub(super) pool: Arc<Pool>,
    pub(super) table: Table,
    pub(super) control: ThreadControl,
    /// Seconds since the start, for the ages of the table's entries.
    pub(super) now: AtomicU32,
    /// Links of the ports that workers use, by index. A station is removed when its link goes down.
    pub(super) links: Mutex<Vec<(u16, Arc<dyn Link>)>>,
}

impl Setting {
    /// Creates the settings of a switch with this configuration, which has been checked.
    pub(super) fn new(config: &SwitchConfig) -> Self {
        Self {
            mode: config.mode,
            flow: config.flow,
            idle: config.idle,
            pool: Arc::default(),
            table: config.table(),
            control: ThreadControl::default(),
            now: AtomicU32::new(0),
            links: Mutex::default(),
        }
    }

    /// Forgets the stations of ports whose links are down.
    pub(super) fn forget_gone(&self) {
        // Looking at a link may take a system call, and ports are added and removed meanwhile.
        let links = lock(&self.links).clone();
        for (port, link) in &links {
            // A datagram socket only accepts a new peer once it has looked for it.
            if link.is_down() && self.table.learned_on(*port) > 0 {
                self.table.remove_port(*port);
            }
        }
    }
}
