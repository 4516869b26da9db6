//! Parts that the ends of all shared-memory ports (`vhost:`, `virtio:`, `memif:`) have in common:
//! the halves around their queues, virtio-net headers, and the memory of a peer.

pub(crate) mod headers;
pub(crate) mod layout;
pub(crate) mod limits;
pub(crate) mod pairs;
pub(crate) mod peer_memory;
pub(crate) mod slot;
