//! A port's link to its peer.

use std::io;
use std::time::Duration;

use dray_bpf::BypassEntry;
use rustix::thread::CpuSet;

use crate::session::snapshot::Frozen;
use crate::session::status::LinkStatus;

/// A port's link to its peer.
pub trait Link: Send + Sync {
    /// Returns the present status.
    fn status(&self) -> LinkStatus;

    /// Moves the port's control thread, if it has one, to these CPUs. Does nothing if that is not
    /// permitted.
    fn move_control(&self, _cpus: &CpuSet) {}

    /// Stops the control thread, so that another process can continue the port; `None` if that is
    /// not possible for this kind of port. Waits at most `patience` for a message that it handles.
    fn freeze(&self, _patience: Duration) -> Option<io::Result<Frozen<'_>>> {
        None
    }

    /// Returns the number of changes of what [`freeze`](Self::freeze) describes.
    fn changes(&self) -> u64 {
        0
    }

    /// Returns the entry of the port in a bypass: the kernel may forward its frames instead of the port's user.
    fn bypass(&self) -> Option<&BypassEntry> {
        None
    }

    /// Returns true if no frame can pass: no peer is connected, or its queues are stopped; or the
    /// interface is down. A port that does not know its peer's end returns false. For a thread that looks
    /// at it a few times a second: a peer that left and came back since is told of as well, if that is
    /// known.
    fn is_down(&self) -> bool {
        false
    }

    /// Registers `forget`, which is called each time that a peer has left, before the next one is
    /// accepted.
    fn on_end(&self, forget: Box<dyn Fn() + Send + Sync>) {
        drop(forget);
    }

    /// Registers `tell`, which is called after each such change.
    fn on_change(&self, tell: Box<dyn Fn() + Send + Sync>) {
        drop(tell);
    }
}
