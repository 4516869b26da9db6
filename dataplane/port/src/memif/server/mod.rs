//! The server's side: a port that maps the memory of its client. Everything in that memory, and
//! every message, is hostile.
//!
//! * `control`: the session with a client.
//! * `queue`: one ring, and moving frames through it.

mod control;
mod queue;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};

use rustix::net::SocketType;

use super::message::{self, Limits, Message, Packet, VERSION};
use super::uri::{MemifUri, SIZE_MAX};
use crate::Port;
use crate::ends::limits::{MemoryLimits, Rates};
use crate::ends::pairs;
use crate::session::connection::Connection;
use crate::session::peers::Peers;
use crate::session::queue_progress::QueueProgress;
use crate::session::shared_listener::{Protocol, Terms};
use crate::session::snapshot::Resumed;
use crate::signal::control_wake::ControlWake;
use crate::uri::failed::Failed;

use queue::Device;

/// Protocol with clients before their first message, which names an id.
pub(super) static PROTOCOL: Protocol = Protocol {
    kind: SocketType::SEQPACKET,
    greet: |socket, terms| greet(socket, terms),
    wanted: |socket| match message::peek(socket) {
        Some(Message::Init(init)) => Some(init.id),
        _ => None,
    },
    refuse: |socket, why| {
        // With a message unread, the client would get an error instead of the reason.
        let _ = message::receive(socket);
        let _ = Packet::disconnect(why).send(socket, None);
    },
};

fn greet(socket: BorrowedFd<'_>, Terms { queues, regions }: Terms) -> io::Result<()> {
    let hello = Packet::hello(Limits {
        versions: (VERSION, VERSION),
        last_region: regions as u16 - 1,
        last_ring: queues - 1,
        log2_size: SIZE_MAX.ilog2() as u8,
    });
    hello.send(socket, None)
}

/// Opens a server. `resumed`: another process hands over the session with the first client.
pub(super) fn open(
    uri: &MemifUri,
    memory: MemoryLimits,
    peers: Peers,
    mut resumed: Option<Resumed>,
) -> Result<Port, Failed> {
    let wake = ControlWake::new().map_err(|error| ("eventfd", error))?;
    let device = Device::new(uri.queues, &wake)?;
    let progress =
        QueueProgress::new(2 * device.pairs.len()).map_err(|error| ("progress", error))?;
    let (messages, progress) = (Some(Mutex::default()), Some(Arc::new(progress)));
    let device = Arc::new(Device { messages, progress, ..device });
    if resumed.is_none() {
        let terms = Terms { queues: uri.queues, regions: memory.regions };
        for socket in &peers.first {
            greet(socket.as_fd(), terms).map_err(|error| ("socket", error))?;
        }
    }
    let session = {
        let (device, uri, mut rates) = (device.clone(), uri.clone(), Rates::default());
        move |socket, control: &_| {
            let resumed = resumed.take();
            control::session(&device, &uri, memory, &socket, control, &mut rates, resumed)
        }
    };
    let connection = Connection::new(peers, wake, session)?;
    Ok(pairs::port(device, connection, uri.wait))
}
