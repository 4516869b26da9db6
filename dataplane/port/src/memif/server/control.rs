//! The session with a client.

use std::cell::Cell;
use std::io;
use std::iter;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, MutexGuard};

use dray_ring::memif::{MemifLayout, ServerRing};
use dray_ring::{Progress, QueueSize};
use dray_shm::{GuestMemory, Mapping, MemoryFile};

use super::queue::{Device, ReceiveQueue, TransmitQueue, address};
use crate::ends::limits::{MemoryLimits, Rates};
use crate::ends::slot;
use crate::lock::lock;
use crate::memif::message::{self, MODE_ETHERNET, Message, Packet, VERSION};
use crate::memif::session::{Session, refused};
use crate::memif::uri::{MemifUri, SIZE_MAX};
use crate::session::connection::{Control, End};
use crate::session::queue_progress::PastProgress;
use crate::session::snapshot::{MessageBytes, PeerMessage, ReplayError, Resumed, SessionMessages};
use crate::signal::peer_event::PeerEvent;

/// Number of bytes of a region that a descriptor can address: its offset has 32 bits.
const ADDRESSABLE: u64 = 1 << 32;

/// Serves one client until it disconnects, violates the protocol or the port is closed. A client
/// that sends too many messages, in this session or the ones before, has to wait.
pub(super) fn session(
    device: &Device,
    uri: &MemifUri,
    limits: MemoryLimits,
    socket: &UnixStream,
    control: &Control,
    rates: &mut Rates,
    resumed: Option<Resumed>,
) -> End {
    let session = Session { peer: "client", socket: socket.as_fd(), control };
    let mut setup = Setup {
        device,
        uri,
        limits,
        session: &session,
        rates,
        regions: Vec::new(),
        rings: [Vec::new(), Vec::new()],
        state: State::New,
        is_resumed: resumed.is_some(),
        progress: Vec::new(),
        gate: Some(control.gate()),
    };
    *setup.messages() = SessionMessages::default();
    let resumed = resumed.map_or(Ok(()), |resumed| setup.resume(resumed));
    let set_up = resumed.and_then(|()| setup.run());
    setup.gate = None;
    let Err(end) = set_up.and_then(|()| session.serve(device));
    // The session does not end while another process prepares to continue it.
    let _gate = control.gate();
    for (number, pair) in device.pairs.iter().enumerate() {
        pair.stop(|queue| queue.event.as_fd());
        device.progress.iter().for_each(|progress| progress.clear(2 * number + 1));
    }
    // Another process may still serve the client.
    if let (End::Refused(why), false) = (&end, dray_socket::borrows_files()) {
        // If this fails, the client has disconnected.
        let _ = session.send("DISCONNECT", &Packet::disconnect(why), None);
    }
    end
}

struct Setup<'a> {
    device: &'a Device,
    uri: &'a MemifUri,
    limits: MemoryLimits,
    session: &'a Session<'a>,
    rates: &'a mut Rates,
    regions: Vec<Arc<Mapping>>,
    /// The rings to the client, and those from it.
    rings: [Vec<Ring>; 2],
    state: State,
    /// True if another process has begun the session, so that the rings are not empty.
    is_resumed: bool,
    /// Progress of that process in each ring from the client.
    progress: Vec<Option<Progress>>,
    /// Locked, except while waiting for the client.
    gate: Option<MutexGuard<'a, Option<OwnedFd>>>,
}

/// Progress of the setup.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Introduced,
    Connected,
}

struct Ring {
    place: message::Ring,
    size: QueueSize,
    event: PeerEvent,
}

impl Setup<'_> {
    /// Exchanges all messages of the setup, and makes the rings available to the data threads.
    fn run(&mut self) -> Result<(), End> {
        while self.state != State::Connected {
            let what = if self.state == State::New { "INIT" } else { "CONNECT" };
            let (message, words, fds) = self.next(what)?;
            let copies = fds.iter().map(OwnedFd::try_clone).collect::<io::Result<_>>();
            let descriptors = copies.map_err(|error| refused(error.to_string()))?;
            let (what, reply) = self.accept(message, fds)?;
            self.record(PeerMessage { words, descriptors });
            self.session.send(what, &reply, None)?;
        }
        Ok(())
    }

    /// Replays the messages that another process has received from the client.
    fn resume(&mut self, resumed: Resumed) -> Result<(), End> {
        self.gate = None;
        let (pairs, of_queues) = (self.device.pairs.len(), Cell::default());
        let set_progress = |progress: &PastProgress| {
            of_queues.set((0..pairs).map(|pair| progress.progress(2 * pair + 1)).collect());
        };
        let is_started = resumed.replay(set_progress, |replayed| {
            self.progress = of_queues.take();
            let copy = replayed.copy().map_err(|error| error.to_string())?;
            let message = message::parse_words(&replayed.words)?;
            match self.accept(message, copy.descriptors) {
                Ok(_) => {
                    self.record(replayed.copy().map_err(|error| error.to_string())?);
                    Ok(())
                }
                Err(End::Refused(why)) => Err(ReplayError::Peer(why)),
                Err(End::Left | End::Stop) => Err("it ended".to_owned().into()),
            }
        });
        self.gate = Some(self.session.control.gate());
        match is_started {
            Ok(true) => Ok(()),
            Ok(false) => Err(End::Stop),
            Err(why) => Err(refused(why)),
        }
    }

    /// Records a message for another process that continues the session.
    fn record(&self, message: PeerMessage) {
        let mut all = self.messages();
        let list = match self.state {
            State::Connected => &mut all.starts,
            State::New | State::Introduced => &mut all.setup,
        };
        list.push(message);
    }

    fn messages(&self) -> MutexGuard<'_, SessionMessages> {
        lock(self.device.messages.as_ref().expect("a server records its messages"))
    }

    /// Handles a message; returns the name of the reply, and the reply.
    fn accept(
        &mut self,
        message: Message,
        fds: Vec<OwnedFd>,
    ) -> Result<(&'static str, Packet), End> {
        match (self.state, message) {
            (State::New, Message::Init(init)) => {
                self.check(init)?;
                self.state = State::Introduced;
                return Ok(("INIT", Packet::ack()));
            }
            (State::New, other) => return Err(refused(format!("INIT: unexpected {other:?}"))),
            (State::Introduced, Message::AddRegion { index, len }) => {
                self.add_region(index, len, fds)?;
            }
            (State::Introduced, Message::AddRing(ring)) => self.add_ring(ring, fds)?,
            (State::Introduced, Message::Connect) => {
                self.connect()?;
                self.state = State::Connected;
                return Ok(("CONNECTED", Packet::connected()));
            }
            (_, other) => return Err(refused(format!("CONNECT: unexpected {other:?}"))),
        }
        Ok(("ACK", Packet::ack()))
    }

    /// Waits for the next message, limited to the rate of a client.
    fn next(&mut self, what: &str) -> Result<(Message, MessageBytes, Vec<OwnedFd>), End> {
        self.gate = None;
        self.session.await_message(what)?;
        self.gate = Some(self.session.control.gate());
        self.session.control.changes();
        let received = self.session.take()?;
        let is_memory = matches!(received.0, Message::AddRegion { .. });
        while let Err(wait) = self.rates.take(is_memory) {
            self.session.control.wait(None, Some(wait));
            if self.session.control.is_stopping() {
                return Err(End::Stop);
            }
        }
        Ok(received)
    }

    fn check(&self, init: message::Init) -> Result<(), End> {
        let message::Init { version, id, mode, secret } = init;
        if version != VERSION {
            return Err(refused(format!("INIT: version {version:#x}, not {VERSION:#x}")));
        }
        if id != self.uri.id {
            return Err(refused(format!("INIT: id {id}, not {}", self.uri.id)));
        }
        if mode != MODE_ETHERNET {
            return Err(refused(format!("INIT: mode {mode}, not {MODE_ETHERNET} (Ethernet)")));
        }
        if !self.uri.secret.is_empty() && secret != message::padded(&self.uri.secret) {
            let what = if secret[0] == 0 { "no secret" } else { "a wrong secret" };
            return Err(refused(format!("INIT: {what}")));
        }
        Ok(())
    }

    /// Maps a region, and closes its file.
    fn add_region(&mut self, index: u16, len: u64, fds: Vec<OwnedFd>) -> Result<(), End> {
        let region = |why: String| refused(format!("region {index}: {why}"));
        let fd = only(fds).map_err(region)?;
        let next = self.regions.len();
        if usize::from(index) != next {
            return Err(region(format!("expected region {next}")));
        }
        let mapped: u64 = self.regions.iter().map(|region| region.len() as u64).sum();
        self.limits.check(next + 1, mapped.saturating_add(len)).map_err(region)?;
        let file = MemoryFile::from_peer(fd).map_err(|error| region(error.to_string()))?;
        if len > file.len() {
            return Err(region(format!("{len} bytes do not fit the file of {} bytes", file.len())));
        }
        let mapping = Mapping::new(&file, 0, len.min(ADDRESSABLE));
        self.regions.push(Arc::new(mapping.map_err(|error| region(error.to_string()))?));
        Ok(())
    }

    fn add_ring(&mut self, place: message::Ring, fds: Vec<OwnedFd>) -> Result<(), End> {
        let ring = |why: String| refused(format!("{}: {why}", name(&place)));
        let fd = only(fds).map_err(ring)?;
        let (rings, queues) = (&mut self.rings[usize::from(place.from_client)], self.uri.queues);
        if usize::from(place.index) != rings.len() {
            return Err(ring(format!("expected ring {}", rings.len())));
        }
        if place.index >= queues {
            return Err(ring(format!("the interface has {queues} in each direction")));
        }
        let size = 1u32.checked_shl(place.log2_size.into()).unwrap_or(0);
        let size = QueueSize::new(size).ok().filter(|size| size.get() <= SIZE_MAX);
        let size = size.ok_or_else(|| {
            ring(format!("2^{} entries: allowed are 2 to {SIZE_MAX}", place.log2_size))
        })?;
        if place.header_len != 0 {
            let what = "private headers of frames are not supported";
            return Err(ring(format!("{what}: {} bytes", place.header_len)));
        }
        let wake = &self.device.pairs[0].wake;
        let event = PeerEvent::from_peer(fd, wake);
        let event = event.map_err(|error| ring(error.to_string()))?;
        rings.push(Ring { place, size, event });
        Ok(())
    }

    /// Makes the rings available to the data threads.
    fn connect(&mut self) -> Result<(), End> {
        if self.rings.iter().any(Vec::is_empty) {
            return Err(refused("CONNECT: needs a ring in each direction"));
        }
        let regions = (0..).map(|region| address(region, 0)).zip(self.regions.drain(..));
        let memory = GuestMemory::of_mapped(regions).map_err(|error| refused(error.to_string()))?;
        let (memory, is_resumed) = (Arc::new(memory), self.is_resumed);
        let [to_client, from_client] = std::mem::take(&mut self.rings);
        let progress = std::mem::take(&mut self.progress).into_iter().chain(iter::repeat(None));
        let find = |(ring, at): (Ring, _)| ring.find(&memory, is_resumed.then_some(at));
        let from_client = from_client.into_iter().zip(progress).map(find);
        let from_client = from_client.collect::<Result<Vec<_>, _>>()?;
        let to_client = to_client.into_iter().map(|ring| find((ring, None)));
        let to_client = to_client.collect::<Result<Vec<_>, _>>()?;
        let malformed = &self.device.malformed;
        // The first pair, which is always used, is inserted last.
        let progress = self.device.progress.as_ref().expect("a server records its progress");
        let pairs = self.device.pairs.iter().enumerate();
        for ((number, pair), (mut ring, event)) in pairs.zip(from_client).rev() {
            ring.publish_progress(progress.of(2 * number + 1));
            let watched = pair.wakes.watch(event.as_fd());
            watched.map_err(|error| refused(format!("eventfd: {error}")))?;
            let queue = ReceiveQueue::new(ring, memory.clone(), event, malformed.clone());
            pair.receive.replace(slot::State::Running(queue));
        }
        for (pair, (ring, event)) in self.device.pairs.iter().zip(to_client).rev() {
            if is_resumed {
                // The old process may have used entries without a signal.
                event.signal();
            }
            let queue = TransmitQueue::new(ring, memory.clone(), event);
            pair.transmit.replace(slot::State::Running(queue));
            pair.wakes.wake();
        }
        Ok(())
    }
}

impl Ring {
    /// Finds the ring in the client's memory. `past` is the progress of another process that has
    /// used it.
    fn find(
        self,
        memory: &GuestMemory,
        past: Option<Option<Progress>>,
    ) -> Result<(ServerRing, PeerEvent), End> {
        let Self { place, size, event } = self;
        let fail = |why: String| refused(format!("{}: {why}", name(&place)));
        let message::Ring { region, offset, .. } = place;
        let len = MemifLayout::len(size);
        let start = memory.translate(address(region, offset), len as u64, &mut 0);
        let start = start.ok_or_else(|| {
            fail(format!("{len} bytes at offset {offset} of region {region} are not shared"))
        })?;
        // SAFETY: all of it was just found mapped, and the ring's owner keeps it mapped.
        let layout = unsafe { MemifLayout::new(size, start) };
        let layout = layout.map_err(|error| fail(error.to_string()))?;
        let ring = match past {
            Some(progress) => ServerRing::resume(layout, progress),
            None => ServerRing::new(layout),
        };
        let ring = ring.map_err(|error| fail(error.to_string()))?;
        Ok((ring, event))
    }
}

fn name(place: &message::Ring) -> String {
    format!("ring {} {} the client", place.index, if place.from_client { "from" } else { "to" })
}

/// Returns the only descriptor of a message.
fn only(fds: Vec<OwnedFd>) -> Result<OwnedFd, String> {
    let count = fds.len();
    <[OwnedFd; 1]>::try_from(fds)
        .map(|[fd]| fd)
        .map_err(|_| format!("{count} file descriptors: expected 1"))
}
