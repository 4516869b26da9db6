//! Sessions with the peers of ports that share memory: the thread that serves them, the sources
//! that peers come from, and the snapshot with which another process continues a session.

pub(crate) mod connection;
pub(crate) mod link;
pub(crate) mod passed;
pub(crate) mod peers;
pub(crate) mod queue_progress;
pub(crate) mod shared_listener;
pub(crate) mod snapshot;
pub(crate) mod status;
mod thread;
pub(crate) mod unix;
