//! Name of a virtio port.

use std::fmt;

use dray_ring::QueueSize;
use dray_socket::{Access, SocketName};

use crate::Wait;
use crate::uri::query::write_query;

/// Name of a virtio port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtioUri {
    /// The Unix socket.
    pub socket: SocketName,
    /// Number of virtqueue pairs, 1 to 16.
    pub queues: u16,
    /// Number of entries of each ring.
    pub size: QueueSize,
    /// True for packed rings instead of split ones.
    pub packed: bool,
    /// True to listen for the back end instead of connecting to it.
    pub server: bool,
    /// Rights of the socket's file, if the port listens.
    pub access: Access,
    /// True to use huge pages for the shared memory if there are any.
    pub hugepages: bool,
    /// True to ask the back end for offloads, for a user that handles them.
    pub offload: bool,
    /// How to wait for frames.
    pub wait: Wait,
}

/// Default number of ring entries: the more, the more seldom two programs that share a CPU take
/// turns (docs/performance.md).
pub(super) const SIZE_DEFAULT: u32 = 1024;

impl fmt::Display for VirtioUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "virtio:{}", self.socket)?;
        let mut pairs = Vec::new();
        if self.queues != 1 {
            pairs.push(("queues", self.queues.to_string()));
        }
        if u32::from(self.size.get()) != SIZE_DEFAULT {
            pairs.push(("size", self.size.get().to_string()));
        }
        for (key, on) in [("packed", self.packed), ("server", self.server)] {
            if on {
                pairs.push((key, "1".to_owned()));
            }
        }
        if !self.hugepages {
            pairs.push(("hugepages", "0".to_owned()));
        }
        if !self.offload {
            pairs.push(("offload", "0".to_owned()));
        }
        pairs.extend(self.access.pairs());
        pairs.extend(self.wait.pair());
        write_query(f, pairs)
    }
}
