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

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use dray_ring::QueueSize;

use super::uri::MemifUri;
use crate::Port;
use crate::attention::Attention;
use crate::connection::Connection;
use crate::fresh::Fresh;
use crate::pairs;
use crate::scheme::Failed;

use memory::SharedMemory;
use queue::{ReceiveQueue, TransmitQueue};

/// State shared by the data threads and the control thread of a client.
type Device = pairs::Device<ReceiveQueue, TransmitQueue>;

/// Opens a client with rings of `size` entries, for the servers at the other ends of `sockets`;
/// without any, it connects to its socket repeatedly.
pub(super) fn open(
    uri: &MemifUri,
    size: QueueSize,
    sockets: Vec<UnixStream>,
) -> Result<Port, Failed> {
    let attention = Attention::new().map_err(|error| ("eventfd", error))?;
    let queues = uri.queues;
    let memory = Fresh::new(move || SharedMemory::new(size, queues));
    let mut memory = memory.map_err(|error| ("shared memory", error))?;
    let device = Arc::new(Device::new(queues, &attention)?);
    let converse = {
        let (device, uri) = (device.clone(), uri.clone());
        move |socket, control: &_| {
            control::converse(&device, &uri, size, &mut memory, &socket, control)
        }
    };
    let connection = match sockets.is_empty() {
        false => Connection::over(sockets, attention, converse)?,
        true => Connection::by_packets(&uri.socket, attention, converse)?,
    };
    Ok(pairs::port(device, connection, uri.wait))
}
