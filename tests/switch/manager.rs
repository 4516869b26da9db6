//! The switch of a service manager.

use dray_port::Port;
use dray_switch::PortStatus;
use dray_switch::client::Client;

pub(crate) use crate::common::manager::{Manager, Page, null};
use crate::ends;

/// Number of frames of a batch: as many may be lost when the switch is killed.
pub(crate) const BATCH: u64 = 256;

impl Manager {
    /// Runs a switch with `options` and `ports`, in which `DIR` is a folder of the test.
    pub(crate) fn new(options: &[&str], ports: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self::run(folder, 1 + ports.len(), &[&["switch"], options, ports].concat())
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.control())
    }

    pub(crate) fn port(&self, name: &str) -> PortStatus {
        self.client().port(&name.parse().unwrap()).expect("a reply")
    }

    pub(crate) fn plug(&self, name: &str, keys: &str) -> Port {
        ends::plug(&self.folder.path().join(name), keys)
    }
}
