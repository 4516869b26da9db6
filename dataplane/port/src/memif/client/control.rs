//! The session with a server.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use dray_ring::QueueSize;
use dray_ring::memif::ClientRing;

use super::memory::{Buffers, SharedMemory};
use super::queue::{Device, ReceiveQueue, TransmitQueue};
use crate::ends::pairs::Pair;
use crate::ends::peer_memory::PeerMemory;
use crate::ends::slot::State;
use crate::memif::message::{Limits, Message, Packet, VERSION};
use crate::memif::session::{Session, refused};
use crate::memif::uri::MemifUri;
use crate::session::connection::{Control, End};
use crate::signal::peer_event::PeerEvent;

/// Sets up the port with one server, and serves it until it disconnects, violates the protocol or
/// the port is closed.
pub(super) fn session(
    device: &Device,
    uri: &MemifUri,
    size: QueueSize,
    memory: &mut PeerMemory<SharedMemory>,
    socket: &UnixStream,
    control: &Control,
) -> End {
    let session = Session { peer: "server", socket: socket.as_fd(), control };
    let setup = Setup { device, uri, size, session: &session };
    let Err(end) = setup.introduce(memory).and_then(|()| session.serve(device));
    // Removes all queues before the memory is released.
    device.pairs.iter().for_each(|pair| pair.stop(|queue| queue.event.as_fd()));
    memory.release(&end);
    end
}

struct Setup<'a> {
    device: &'a Device,
    uri: &'a MemifUri,
    size: QueueSize,
    session: &'a Session<'a>,
}

impl Setup<'_> {
    /// Exchanges all messages of the setup.
    fn introduce(&self, memory: &mut PeerMemory<SharedMemory>) -> Result<(), End> {
        let (Message::Hello(limits), _) = self.session.next("HELLO")? else {
            return Err(refused("server did not send HELLO"));
        };
        self.check(limits)?;
        self.ask("INIT", &Packet::init(self.uri.id, &self.uri.secret), None)?;
        let memory =
            memory.allocate().map_err(|error| refused(format!("shared memory: {error}")))?;
        self.ask("ADD_REGION", &Packet::add_region(memory.len()), Some(memory.fd()))?;
        // Servers map the rings at CONNECT, and reset them to empty.
        let rings = |from_client| {
            let memory = &memory;
            let ring = move |index| {
                // SAFETY: the slots are empty, so no queue of ours uses the rings.
                unsafe { memory.ring(self.ring(from_client, index)) }
            };
            (0..self.uri.queues).map(ring).collect::<Vec<_>>()
        };
        let (out, into) = (rings(true), rings(false));
        let mut events = Vec::new();
        for from_client in [true, false] {
            for index in 0..self.uri.queues {
                let wake = &self.device.pairs[usize::from(index)].wake;
                let event = PeerEvent::for_peer(wake)
                    .map_err(|error| refused(format!("eventfd: {error}")))?;
                let offset = memory.ring_offset(self.ring(from_client, index));
                let size = self.size.get().ilog2() as u8;
                let ring = Packet::add_ring(from_client, index, offset, size);
                self.ask("ADD_RING", &ring, Some(event.as_fd()))?;
                events.push(event);
            }
        }
        self.session.send("CONNECT", &Packet::connect(), None)?;
        self.expect("CONNECT", &Message::Connected)?;
        let receive_events = events.split_off(self.uri.queues.into());
        let transmit = out.into_iter().zip(events);
        let receive = into.into_iter().zip(receive_events);
        let pairs = self.device.pairs.iter().zip(transmit.zip(receive));
        for (pair, (transmit, receive)) in pairs.rev() {
            install(pair, &memory, transmit, receive)?;
        }
        Ok(())
    }

    /// Checks that a server supports what the port needs.
    fn check(&self, limits: Limits) -> Result<(), End> {
        let Limits { versions: (first, last), last_ring, log2_size, .. } = limits;
        let (queues, size) = (self.uri.queues, self.size.get());
        if !(first..=last).contains(&VERSION) {
            return Err(refused(format!(
                "server supports versions {first:#x} to {last:#x}, not {VERSION:#x}"
            )));
        }
        if queues > last_ring.saturating_add(1) {
            let most = u32::from(last_ring) + 1;
            return Err(refused(format!("server accepts at most {most} queues, not {queues}")));
        }
        if size.ilog2() > log2_size.into() {
            return Err(refused(format!(
                "server accepts at most 2^{log2_size} ring entries, not {size}"
            )));
        }
        Ok(())
    }

    /// Returns the number of a ring in the memory.
    fn ring(&self, from_client: bool, index: u16) -> usize {
        usize::from(if from_client { index } else { self.uri.queues + index })
    }

    /// Sends a message that the server has to acknowledge.
    fn ask(&self, what: &str, packet: &Packet, fd: Option<BorrowedFd<'_>>) -> Result<(), End> {
        self.session.send(what, packet, fd)?;
        self.expect(what, &Message::Ack)
    }

    fn expect(&self, what: &str, wanted: &Message) -> Result<(), End> {
        match self.session.next(what)? {
            (message, _) if message == *wanted => Ok(()),
            (message, _) => Err(refused(format!("{what}: unexpected {message:?}"))),
        }
    }
}

/// A ring with its buffers, and its event.
type Ring = ((ClientRing, Buffers), PeerEvent);

/// Makes a pair of rings available to the data threads.
fn install(
    pair: &Pair<ReceiveQueue, TransmitQueue>,
    memory: &Arc<SharedMemory>,
    transmit: Ring,
    receive: Ring,
) -> Result<(), End> {
    let ((out, out_buffers), transmit) = transmit;
    let ((into, into_buffers), receive) = receive;
    let watched = pair.wakes.watch(receive.as_fd());
    watched.map_err(|error: io::Error| refused(format!("eventfd: {error}")))?;
    let queue = ReceiveQueue::new(into, into_buffers, receive, memory.clone());
    pair.receive.replace(State::Running(queue));
    let queue = TransmitQueue::new(out, out_buffers, transmit, memory.clone());
    pair.transmit.replace(State::Running(queue));
    pair.wakes.wake();
    Ok(())
}
