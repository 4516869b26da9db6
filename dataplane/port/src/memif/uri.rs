//! Name of a memif port.

use std::fmt;

use dray_ring::QueueSize;
use dray_socket::{Access, SocketName};

use crate::Wait;
use crate::ends::limits::MemoryLimits;
use crate::uri::query::write_query;

/// Name of a memif port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemifUri {
    /// The Unix socket.
    pub socket: SocketName,
    /// Id of the server's interface at that socket.
    pub id: u32,
    /// Secret that the interface requires, up to 24 bytes.
    pub secret: String,
    /// Number of ring pairs, 1 to 16; as a server, the maximum.
    pub queues: u16,
    /// Which side the port is.
    pub role: Role,
    /// How to wait for frames.
    pub wait: Wait,
}

/// Side of a memif link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The port connects to a server and shares its memory.
    Client {
        /// Number of entries of each ring.
        size: QueueSize,
    },
    /// The port listens for a client, which shares its memory.
    Server {
        /// Limits on the memory that a client may share.
        memory: MemoryLimits,
        /// Rights of the socket's file.
        access: Access,
    },
}

/// Default number of ring entries, as for virtio ports.
pub(super) const SIZE_DEFAULT: u32 = 1024;
/// Maximum of VPP and DPDK.
pub(super) const SIZE_MAX: u16 = 1 << 14;

impl fmt::Display for MemifUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memif:{}", self.socket)?;
        let mut pairs = Vec::new();
        if matches!(self.role, Role::Server { .. }) {
            pairs.push(("role", "server".to_owned()));
        }
        if self.id != 0 {
            pairs.push(("id", self.id.to_string()));
        }
        if !self.secret.is_empty() {
            pairs.push(("secret", self.secret.clone()));
        }
        if self.queues != 1 {
            pairs.push(("queues", self.queues.to_string()));
        }
        match &self.role {
            Role::Client { size } if u32::from(size.get()) == SIZE_DEFAULT => {}
            Role::Client { size } => pairs.push(("size", size.get().to_string())),
            Role::Server { memory, access } => {
                pairs.extend(memory.pairs());
                pairs.extend(access.pairs());
            }
        }
        pairs.extend(self.wait.pair());
        write_query(f, pairs)
    }
}
