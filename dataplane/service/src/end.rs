//! A port as control threads see it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dray_port::{Link, PausedPort, Port, PortSnapshot};

/// Maximum time to wait for a control thread that handles a message, at a take-over.
const HANDING_OVER: Duration = Duration::from_secs(1);
/// Maximum time to wait for it when the port is recorded while the program runs.
const BRIEFLY: Duration = Duration::from_millis(5);
/// Maximum time to wait for it when the program ends, and for the control threads of all ports
/// together.
const LEAVING: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(1));

/// Time to wait for control threads that handle messages when their ports are recorded.
#[derive(Clone, Copy)]
pub struct RecordTimeout(Option<Instant>);

impl RecordTimeout {
    /// While the program runs: a record that has to wait longer is repeated.
    pub const RUNNING: Self = Self(None);

    /// When the program ends. A port that is not recorded then loses its connection, so the threads
    /// get more time: on a busy machine they may not run for tens of milliseconds.
    pub fn leaving() -> Self {
        Self(Some(Instant::now() + LEAVING.1))
    }

    /// Returns the time to wait for the next port.
    fn left(self) -> Duration {
        let left = self.0.map(|until| until.saturating_duration_since(Instant::now()));
        left.unwrap_or_default().clamp(BRIEFLY, LEAVING.0)
    }
}

/// The control side of a port whose halves belong to data threads.
pub struct PortEnd {
    /// Link of the port to its peer, if it has one.
    pub link: Option<Arc<dyn Link>>,
    /// Devices or sockets of the port otherwise, if another process can continue with them.
    devices: Vec<OwnedFd>,
    /// Length of the longest frame that the port transmits, in bytes.
    frame_max: usize,
}

impl PortEnd {
    /// Returns the control side of an open port.
    pub fn new(port: &Port) -> io::Result<Self> {
        let bypass = port.link.as_ref().and_then(|link| link.bypass());
        let devices = port.rx.iter().flat_map(|rx| rx.devices());
        let devices = devices.chain(bypass.iter().map(|entry| entry.as_fd()));
        let devices = devices.map(|device: BorrowedFd<'_>| device.try_clone_to_owned());
        let devices = devices.collect::<io::Result<_>>()?;
        let frame_max = port.tx.iter().map(|tx| tx.frame_max()).min().unwrap_or_default();
        Ok(Self { link: port.link.clone(), devices, frame_max })
    }

    /// Stops the control thread of the port once it has handled its message, and describes the
    /// port; `None` if no other process can continue such a port.
    fn freeze(&self, timeout: Duration) -> Option<io::Result<PausedPort<'_>>> {
        if let Some(frozen) = self.link.as_ref().and_then(|link| link.freeze(timeout)) {
            return Some(frozen.map(PausedPort::Peer));
        }
        if self.devices.is_empty() && self.link.is_some() {
            return None;
        }
        let devices = self.devices.iter().map(AsFd::as_fd);
        Some(PortSnapshot::of_devices(devices, self.frame_max).map(PausedPort::Devices))
    }

    /// Stops the control thread and describes the port for a record; `None` if no other process can
    /// continue such a port.
    pub fn freeze_for_record(&self, timeout: RecordTimeout) -> Option<io::Result<PausedPort<'_>>> {
        self.freeze(timeout.left())
    }

    /// Returns the number of changes of what a record describes.
    pub fn changes(&self) -> u64 {
        self.link.as_ref().map_or(0, |link| link.changes())
    }
}

/// Stops the control threads of all ports, given with their names, and describes the ports for a
/// process that takes over.
///
/// # Errors
/// If a port cannot be handed over.
pub fn freeze_all<'p>(
    ports: impl Iterator<Item = (&'p str, &'p PortEnd)>,
) -> Result<Vec<PausedPort<'p>>, String> {
    let hold = |(name, end): (&str, &'p PortEnd)| {
        let failed = |what: &str| format!("port {name:?}: {what}");
        let held = end.freeze(HANDING_OVER);
        let held = held.ok_or_else(|| failed("such a port cannot be handed over"))?;
        held.map_err(|error| failed(&error.to_string()))
    };
    ports.map(hold).collect()
}
