//! N3 or N6 as control threads see its port.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use dray_port::{Held, Link, Live, Port};

/// A port whose halves belong to data threads.
pub(crate) struct PortEnd {
    /// Its link to its peer, if it has one.
    pub(crate) link: Option<Arc<dyn Link>>,
    /// Its devices or sockets otherwise, if another process can continue with them, and the longest
    /// frame that it transmits.
    devices: Vec<OwnedFd>,
    frame_max: usize,
}

impl PortEnd {
    pub(crate) fn new(port: &Port) -> io::Result<Self> {
        let devices = port.rx.iter().flat_map(|rx| rx.devices());
        let devices = devices.map(|device| device.try_clone_to_owned());
        let devices = devices.collect::<io::Result<_>>()?;
        let frame_max = port.tx.iter().map(|tx| tx.frame_max()).min().unwrap_or_default();
        Ok(Self { link: port.link.clone(), devices, frame_max })
    }

    /// Has its control thread stand still, which may have to handle a message before; `None` if no
    /// other process can continue such a port.
    pub(crate) fn hold(&self, patience: Duration) -> Option<io::Result<Held<'_>>> {
        if let Some(frozen) = self.link.as_ref().and_then(|link| link.freeze(patience)) {
            return Some(frozen.map(Held::Peer));
        }
        if self.devices.is_empty() && self.link.is_some() {
            return None;
        }
        let devices = self.devices.iter().map(AsFd::as_fd);
        Some(Live::of_devices(devices, self.frame_max).map(Held::Devices))
    }

    /// Returns the number of changes of what [`hold`](Self::hold) describes.
    pub(crate) fn changes(&self) -> u64 {
        self.link.as_ref().map_or(0, |link| link.changes())
    }
}
