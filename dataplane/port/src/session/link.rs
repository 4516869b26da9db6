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

    /// Pauses the control thread and takes a snapshot, from which another process can continue the
    /// port; `None` if that is not possible for this kind of port. Waits at most `timeout` while
    /// the control thread handles a message.
    fn freeze(&self, _timeout: Duration) -> Option<io::Result<Frozen<'_>>> {
        None
    }

    /// Returns the number of changes that invalidate a snapshot by [`freeze`](Self::freeze).
    fn changes(&self) -> u64 {
        0
    }

    /// Returns the entry of the port in a bypass, by which the kernel may forward its frames.
    fn bypass(&self) -> Option<&BypassEntry> {
        None
    }

    /// Returns true if no frame can pass: no peer is connected, its queues are stopped, or the
    /// interface is down; or if that was so since the last call, as far as the port knows. A port
    /// that does not notice its peer's end returns false. Call it a few times a second at most.
    fn is_down(&self) -> bool {
        false
    }

    /// Registers `notify`, which is called when a peer has left, before the next one is accepted.
    fn on_end(&self, notify: Box<dyn Fn() + Send + Sync>) {
        drop(notify);
    }

    /// Registers `notify`, which is called after each change that [`changes`](Self::changes)
    /// counts.
    fn on_change(&self, notify: Box<dyn Fn() + Send + Sync>) {
        drop(notify);
    }
}
