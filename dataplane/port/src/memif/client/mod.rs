//! The client's side: a port that shares its memory with a server.
//!
//! * `memory`: layout of rings and buffers in the shared memory.
//! * `control`: the session with the server.
//! * `queue`: one ring and its buffers, and moving frames through it.

mod control;
mod memory;
mod queue;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use dray_ring::QueueSize;

use super::uri::MemifUri;
use crate::Port;
use crate::ends::pairs;
use crate::ends::peer_memory::PeerMemory;
use crate::session::connection::Connection;
use crate::session::peers::Peers;
use crate::signal::control_wake::ControlWake;
use crate::uri::failed::Failed;

use memory::SharedMemory;
use queue::Device;

/// Opens a client with rings of `size` entries.
pub(super) fn open(uri: &MemifUri, size: QueueSize, peers: Peers) -> Result<Port, Failed> {
    let wake = ControlWake::new().map_err(|error| ("eventfd", error))?;
    let queues = uri.queues;
    let memory = PeerMemory::new(move || SharedMemory::new(size, queues));
    let mut memory = memory.map_err(|error| ("shared memory", error))?;
    let device = Arc::new(Device::new(queues, &wake)?);
    let session = {
        let (device, uri) = (device.clone(), uri.clone());
        move |socket, control: &_| {
            control::session(&device, &uri, size, &mut memory, &socket, control)
        }
    };
    let connection = Connection::new(peers, wake, session)?;
    Ok(pairs::port(device, connection, uri.wait))
}
