//! The session with a server.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dray_ring::memif::ClientRing;

use super::memory::{Buffers, SharedMemory};
use super::message::{Limits, Message, Request, VERSION, receive};
use super::queue::{ReceiveQueue, TransmitQueue};
use super::{Device, MemifUri};
use crate::connection::{Control, End, Woken};
use crate::event::PeerEvent;
use crate::fresh::Fresh;
use crate::pairs::{Pair, Pairs};
use crate::slot::State;

/// Time within which a server must send a message that the port waits for.
const REPLY: Duration = Duration::from_secs(5);

/// Sets up the port with one server, and serves it until it disconnects, violates the protocol or
/// the port is closed.
pub(super) fn converse(
    device: &Device,
    uri: &MemifUri,
    memory: &mut Fresh<SharedMemory>,
    socket: &UnixStream,
    control: &Control,
) -> End {
    let conversation = Conversation { device, uri, socket: socket.as_fd(), control };
    let Err(end) = conversation.introduce(memory).and_then(|()| conversation.stay());
    // Take all queues from the data threads, and the memory from the server.
    device.pairs.iter().for_each(|pair| pair.stop(|queue| queue.event.as_fd()));
    memory.take_back(&end);
    end
}

struct Conversation<'a> {
    device: &'a Device,
    uri: &'a MemifUri,
    socket: BorrowedFd<'a>,
    control: &'a Control,
}

impl Conversation<'_> {
    /// Exchanges all messages of the setup.
    fn introduce(&self, memory: &mut Fresh<SharedMemory>) -> Result<(), End> {
        let Message::Hello(limits) = self.next("HELLO")? else {
            return Err(refused("server did not send HELLO"));
        };
        check(self.uri, limits)?;
        self.ask("INIT", &Request::init(self.uri.id, &self.uri.secret), None)?;
        let memory = memory.give().map_err(|error| refused(format!("shared memory: {error}")))?;
        self.ask("ADD_REGION", &Request::add_region(memory.len()), Some(memory.fd()))?;
        // Servers look for the rings when they are told to connect, and reset them to empty.
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
                let attention = &self.device.pairs[usize::from(index)].attention;
                let event = PeerEvent::for_peer(attention)
                    .map_err(|error| refused(format!("eventfd: {error}")))?;
                let offset = memory.ring_offset(self.ring(from_client, index));
                let size = self.uri.size.get().ilog2() as u8;
                let ring = Request::add_ring(from_client, index, offset, size);
                self.ask("ADD_RING", &ring, Some(event.as_fd()))?;
                events.push(event);
            }
        }
        self.send("CONNECT", &Request::connect(), None)?;
        self.expect("CONNECT", &Message::Connected)?;
        self.control.change(|status| status.features = vec!["memif 2.0".to_owned()]);
        let receive_events = events.split_off(self.uri.queues.into());
        let transmit = out.into_iter().zip(events);
        let receive = into.into_iter().zip(receive_events);
        for (pair, (transmit, receive)) in self.device.pairs.iter().zip(transmit.zip(receive)) {
            install(pair, &memory, transmit, receive)?;
        }
        Ok(())
    }

    /// Serves the connection until one side ends it.
    fn stay(&self) -> Result<Infallible, End> {
        loop {
            let woken = self.control.wait(Some(self.socket), None);
            if self.control.is_stopping() {
                return Err(End::Stop);
            }
            if let Some(failure) = self.device.failure() {
                return Err(refused(failure.to_string()));
            }
            if matches!(woken, Woken::Readable) {
                let message = self.take()?;
                return Err(refused(format!("unexpected {message:?}")));
            }
        }
    }

    /// Returns the number of a ring in the memory.
    fn ring(&self, from_client: bool, index: u16) -> usize {
        usize::from(if from_client { index } else { self.uri.queues + index })
    }

    /// Sends a message that the server has to acknowledge.
    fn ask(&self, what: &str, request: &Request, fd: Option<BorrowedFd<'_>>) -> Result<(), End> {
        self.send(what, request, fd)?;
        self.expect(what, &Message::Ack)
    }

    fn send(&self, what: &str, request: &Request, fd: Option<BorrowedFd<'_>>) -> Result<(), End> {
        request.send(self.socket, fd).map_err(|error| refused(format!("{what}: {error}")))
    }

    fn expect(&self, what: &str, wanted: &Message) -> Result<(), End> {
        match self.next(what)? {
            message if message == *wanted => Ok(()),
            message => Err(refused(format!("{what}: unexpected {message:?}"))),
        }
    }

    /// Waits for the next message, for at most [`REPLY`].
    fn next(&self, what: &str) -> Result<Message, End> {
        let until = Instant::now() + REPLY;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let woken = self.control.wait(Some(self.socket), Some(left));
            if self.control.is_stopping() {
                return Err(End::Stop);
            }
            match woken {
                Woken::Readable => return self.take(),
                Woken::Timeout => return Err(refused(format!("{what}: no reply for {REPLY:?}"))),
                Woken::Attention => {}
            }
        }
    }

    /// Takes the message that is there.
    fn take(&self) -> Result<Message, End> {
        match receive(self.socket).map_err(refused)? {
            Some(Message::Disconnect(why)) => Err(refused(format!("server disconnected: {why}"))),
            Some(message) => Ok(message),
            None => Err(End::Left),
        }
    }
}

/// A ring with its buffers, and its event.
type Ring = ((ClientRing, Buffers), PeerEvent);

/// Gives a pair of rings to the data threads.
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

fn refused(why: impl Into<String>) -> End {
    End::Refused(why.into())
}

/// Checks that a server supports what the port needs.
fn check(uri: &MemifUri, limits: Limits) -> Result<(), End> {
    let Limits { versions: (first, last), last_ring, log2_size } = limits;
    if !(first..=last).contains(&VERSION) {
        return Err(refused(format!(
            "server supports versions {first:#x} to {last:#x}, not {VERSION:#x}"
        )));
    }
    if uri.queues > last_ring.saturating_add(1) {
        let most = u32::from(last_ring) + 1;
        return Err(refused(format!("server accepts at most {most} queues, not {}", uri.queues)));
    }
    if uri.size.get().ilog2() > log2_size.into() {
        return Err(refused(format!(
            "server accepts at most 2^{log2_size} ring entries, not {}",
            uri.size.get()
        )));
    }
    Ok(())
}
