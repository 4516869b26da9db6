//! Snapshots of open ports, from which another process continues them while the peers stay
//! connected.
//!
//! A snapshot consists of messages of the peer, in its own protocol, that lead to the present
//! state, and of their descriptors. The process that continues replays these messages, and checks
//! them like those of a peer: it trusts a snapshot no more than a peer. Messages that start a queue
//! come last, when the other process has released the queue. The positions of the queues are in
//! memory that both processes share ([`queue_progress`](super::queue_progress)), so they are also
//! known if the other process was killed.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{MutexGuard, mpsc};

use dray_wire::FRAME_MAX;
use dray_wire::ethernet::ETHERNET_LEN;
use rustix::cmsg_space;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::{Deserialize, Serialize};

use crate::session::queue_progress::PastProgress;
use crate::session::status::LinkStatus;

/// Maximum number of descriptors of one message: vhost-user allows 32.
const DESCRIPTORS_MAX: usize = 32;

/// Bytes of a peer's message, without its descriptors.
pub type MessageBytes = Vec<u8>;

/// Snapshot of an open port, from which another process continues it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortSnapshot {
    /// True if the first descriptor is the source of peers: a socket that listens, or a directory.
    origin: bool,
    /// True if the old process has bound that socket itself.
    own: bool,
    /// True if the next descriptor is the connection to the peer.
    connected: bool,
    /// Number of changes of the port before the snapshot. With a peer, the next descriptor is that
    /// of the queues' progress.
    changes: u64,
    /// Messages of the peer, each with its number of further descriptors.
    #[serde(rename = "said")] // The name in state of format 4.
    setup: Vec<(MessageBytes, u8)>,
    /// Messages of the peer that start its queues.
    starts: Vec<(MessageBytes, u8)>,
    /// Number of devices or sockets of a port without a peer, whose descriptors come last.
    devices: u16,
    /// Length in bytes of the longest frame that a port without a peer transmits.
    frame_max: usize,
    ends: BTreeMap<String, u64>,
    last_end: Option<String>,
    #[serde(skip)]
    descriptors: Vec<OwnedFd>,
}

/// A message of a peer.
#[derive(Debug, Default)]
pub(crate) struct PeerMessage {
    pub(crate) words: MessageBytes,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Messages of a peer that lead to the present state of its session.
#[derive(Debug, Default)]
pub(crate) struct SessionMessages {
    pub(crate) setup: Vec<PeerMessage>,
    /// Messages that start queues.
    pub(crate) starts: Vec<PeerMessage>,
}

/// Parts of the snapshot of a port with a peer.
pub(crate) struct Parts {
    pub(crate) origin: Option<OwnedFd>,
    pub(crate) own: bool,
    pub(crate) peer: Option<OwnedFd>,
    /// Progress of the queues, if there is a peer.
    pub(crate) progress: Option<OwnedFd>,
    pub(crate) changes: u64,
    pub(crate) messages: SessionMessages,
    /// Ends of earlier sessions.
    pub(crate) past: LinkStatus,
}

impl PortSnapshot {
    /// Returns the snapshot of a port without a peer: its devices or sockets, and the length of the
    /// longest frame that it transmits.
    pub fn of_devices<'d>(
        devices: impl IntoIterator<Item = BorrowedFd<'d>>,
        frame_max: usize,
    ) -> io::Result<Self> {
        let descriptors = devices.into_iter().map(|device| device.try_clone_to_owned());
        let descriptors: Vec<_> = descriptors.collect::<io::Result<_>>()?;
        Ok(Self { devices: descriptors.len() as u16, frame_max, descriptors, ..Self::default() })
    }

    pub(crate) fn of_peer(parts: Parts) -> Self {
        let Parts { origin, own, peer, progress, changes, messages, past } = parts;
        let SessionMessages { setup, starts } = messages;
        let (has_origin, connected) = (origin.is_some(), peer.is_some());
        let progress = progress.filter(|_| connected);
        let mut descriptors: Vec<_> = origin.into_iter().chain(peer).chain(progress).collect();
        let mut words = |messages: Vec<PeerMessage>| {
            let strip = |message: PeerMessage| {
                let count = message.descriptors.len() as u8;
                descriptors.extend(message.descriptors);
                (message.words, count)
            };
            messages.into_iter().map(strip).collect::<Vec<_>>()
        };
        Self {
            origin: has_origin,
            own,
            connected,
            changes,
            setup: words(setup),
            starts: words(starts),
            devices: 0,
            frame_max: 0,
            ends: past.ends,
            last_end: past.last_end,
            descriptors,
        }
    }

    /// Returns true if the port cannot be continued, only opened again.
    pub fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    /// Returns the number of peers that were disconnected.
    pub fn disconnects(&self) -> u64 {
        self.ends.values().sum()
    }

    /// Returns the number of changes of the port before the snapshot.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the descriptors of the snapshot, in order.
    pub fn descriptors(&self) -> &[OwnedFd] {
        &self.descriptors
    }

    /// Takes the descriptors of the snapshot from `descriptors`.
    ///
    /// # Errors
    /// If there are too few.
    pub fn adopt(&mut self, descriptors: &mut impl Iterator<Item = OwnedFd>) -> Result<(), String> {
        let of_messages =
            self.setup.iter().chain(&self.starts).map(|(_, count)| usize::from(*count));
        let first = usize::from(self.origin) + 2 * usize::from(self.connected);
        let wanted = first + of_messages.sum::<usize>() + usize::from(self.devices);
        self.descriptors = descriptors.take(wanted).collect();
        match self.descriptors.len() {
            have if have == wanted => Ok(()),
            have => Err(format!("only {have} of its {wanted} file descriptors were received")),
        }
    }

    /// Returns the devices of a port without a peer, and the longest frame that it transmits.
    pub(crate) fn into_devices(self) -> (Vec<OwnedFd>, usize) {
        (self.descriptors, self.frame_max.clamp(ETHERNET_LEN, FRAME_MAX))
    }

    /// Returns the parts of a port with a peer.
    pub(crate) fn into_parts(self) -> Result<Parts, String> {
        let mut descriptors = self.descriptors.into_iter();
        let mut take = |is_there: bool| if is_there { descriptors.next() } else { None };
        let origin = take(self.origin);
        let (peer, progress) = (take(self.connected), take(self.connected));
        let mut messages = |messages: Vec<(MessageBytes, u8)>| {
            let message = |(words, count): (MessageBytes, u8)| {
                let count = usize::from(count);
                if count > DESCRIPTORS_MAX {
                    return Err(format!("a message has {count} file descriptors"));
                }
                Ok(PeerMessage { words, descriptors: descriptors.by_ref().take(count).collect() })
            };
            messages.into_iter().map(message).collect::<Result<Vec<_>, _>>()
        };
        let (setup, starts) = (messages(self.setup)?, messages(self.starts)?);
        let past = LinkStatus { ends: self.ends, last_end: self.last_end, ..LinkStatus::default() };
        let messages = SessionMessages { setup, starts };
        let Self { own, changes, .. } = self;
        Ok(Parts { origin, own, peer, progress, changes, messages, past })
    }
}

impl Parts {
    /// Returns both ends of the resumption of another process's session; `None` if there is no
    /// session or it cannot be continued, so that the port has no peer.
    pub(crate) fn resumption(&mut self) -> Option<(Resumption, Resumed)> {
        match PastProgress::new(self.progress.take()?, self.changes) {
            Ok(progress) => Some(Resumption::new(std::mem::take(&mut self.messages), progress)),
            Err(why) => {
                self.past.ended(&why);
                self.peer = None;
                None
            }
        }
    }
}

impl SessionMessages {
    /// Copies all messages, with duplicates of their descriptors.
    pub(crate) fn copy(&self) -> io::Result<Self> {
        let copy =
            |list: &[PeerMessage]| list.iter().map(PeerMessage::copy).collect::<io::Result<_>>();
        Ok(Self { setup: copy(&self.setup)?, starts: copy(&self.starts)? })
    }
}

impl PeerMessage {
    /// Copies the message, with duplicates of its descriptors.
    pub(crate) fn copy(&self) -> io::Result<Self> {
        let descriptors = self.descriptors.iter().map(OwnedFd::try_clone);
        Ok(Self { words: self.words.clone(), descriptors: descriptors.collect::<io::Result<_>>()? })
    }

    /// Sends the message on `socket`.
    pub(crate) fn send(&self, socket: impl AsFd) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<_> = self.descriptors.iter().map(AsFd::as_fd).collect();
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = sendmsg(socket, &[IoSlice::new(&self.words)], &mut ancillary, flags)?;
        match sent == self.words.len() {
            true => Ok(()),
            false => Err(io::Error::other("a message is too long")),
        }
    }
}

/// A port whose control thread is paused until this value is dropped. Data threads continue.
pub struct Frozen<'p> {
    pub(crate) snapshot: PortSnapshot,
    /// Lock for which the control thread waits.
    pub(crate) _gate: MutexGuard<'p, Option<OwnedFd>>,
}

impl Frozen<'_> {
    /// Takes the snapshot of the port.
    pub fn take_snapshot(&mut self) -> PortSnapshot {
        std::mem::take(&mut self.snapshot)
    }
}

/// A port whose state does not change while another process prepares to continue it.
pub enum PausedPort<'p> {
    /// The port's control thread is paused.
    Peer(Frozen<'p>),
    /// The port has no peer.
    Devices(PortSnapshot),
}

impl PausedPort<'_> {
    /// Takes the snapshot of the port.
    pub fn take_snapshot(&mut self) -> PortSnapshot {
        match self {
            Self::Peer(frozen) => frozen.take_snapshot(),
            Self::Devices(snapshot) => std::mem::take(snapshot),
        }
    }
}

/// Resumption of a port by another process: that process's end, which a control thread serves.
pub struct Resumption {
    ready: mpsc::Receiver<Result<(), String>>,
    start: mpsc::Sender<()>,
}

/// The control thread's end of a [`Resumption`].
pub(crate) struct Resumed {
    messages: SessionMessages,
    progress: PastProgress,
    ready: mpsc::Sender<Result<(), String>>,
    start: mpsc::Receiver<()>,
}

impl Resumption {
    pub(crate) fn new(messages: SessionMessages, progress: PastProgress) -> (Self, Resumed) {
        let ((ready, is_ready), (start, starts)) = (mpsc::channel(), mpsc::channel());
        (Self { ready: is_ready, start }, Resumed { messages, progress, ready, start: starts })
    }

    /// Waits until the port is ready. The error is the reason for which it cannot be continued.
    pub fn wait_ready(&self, timeout: std::time::Duration) -> Result<(), String> {
        let what = "its control thread does not get ready";
        self.ready.recv_timeout(timeout).unwrap_or_else(|_| Err(what.to_owned()))
    }

    /// Starts the queues at the positions at which the other process has stopped. Its data threads
    /// must not use the port any more.
    pub fn start(&self) {
        // A control thread that has ended has put the reason into the port's status.
        let _ = self.start.send(());
    }

    /// Waits until the queues have started: before that, no snapshot of the port is possible.
    pub fn wait_started(self, timeout: std::time::Duration) {
        let _ = self.ready.recv_timeout(timeout);
    }
}

/// Reason for which a replayed message is not accepted.
#[derive(Debug)]
pub(crate) enum ReplayError {
    /// The peer has changed what the message refers to, such as the length of a memory file.
    Peer(String),
    /// The message is not the peer's, or this process lacks a resource.
    Here(String),
}

impl From<String> for ReplayError {
    fn from(why: String) -> Self {
        Self::Here(why)
    }
}

impl Resumed {
    /// Replays the peer's messages by `handle`: at once those of the setup, and after the
    /// [start](Resumption::start) those that start the queues, whose positions `set_progress` gets
    /// before. Returns false if there is no start. A message that is refused because of the peer
    /// does not prevent the take-over of other ports: the port gets ready, and the error follows
    /// after the start.
    pub(crate) fn replay(
        self,
        set_progress: impl FnOnce(&PastProgress),
        mut handle: impl FnMut(&PeerMessage) -> Result<(), ReplayError>,
    ) -> Result<bool, String> {
        let Self { messages: SessionMessages { setup, starts }, progress, ready, start } = self;
        let (result, is_ready) = match setup.iter().try_for_each(&mut handle) {
            Ok(()) => (Ok(()), Ok(())),
            Err(ReplayError::Peer(why)) => (Err(why), Ok(())),
            Err(ReplayError::Here(why)) => (Err(why.clone()), Err(why)),
        };
        let has_failed = is_ready.is_err();
        // The port may have been closed meanwhile.
        let _ = ready.send(is_ready);
        if !has_failed && start.recv().is_err() {
            return Ok(false);
        }
        result?;
        let started = progress.take().and_then(|()| {
            set_progress(&progress);
            starts
                .iter()
                .try_for_each(&mut handle)
                .map_err(|(ReplayError::Peer(why) | ReplayError::Here(why))| why)
        });
        let _ = ready.send(started.clone());
        started?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::PortUri;
    use crate::session::queue_progress::QueueProgress;

    /// Messages of vhost-user with any content, of memif's length, or of any bytes.
    fn words() -> impl Strategy<Value = MessageBytes> {
        let framed = (1..45u32, vec(any::<u8>(), 0..48)).prop_map(|(request, body)| {
            let header = [request, 1, body.len() as u32].map(u32::to_ne_bytes);
            [header.as_flattened(), &body].concat()
        });
        let packet = (0..9u8, vec(any::<u8>(), 127)).prop_map(|(kind, rest)| {
            let mut packet = [vec![kind], rest].concat();
            packet[1] = 0;
            packet
        });
        prop_oneof![framed, packet, vec(any::<u8>(), 0..40)]
    }

    fn messages() -> impl Strategy<Value = Vec<(MessageBytes, u8)>> {
        vec((words(), 0..3u8), 0..5)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn hostile_description_neither_panics_nor_hangs(
            flags: [bool; 3],
            setup in messages(),
            starts in messages(),
            few: bool,
            uri in prop_oneof![Just("vhost:@x"), Just("memif:@x?role=server"), Just("tap:x")],
        ) {
            let [origin, own, connected] = flags;
            let mut snapshot = PortSnapshot { origin, own, connected, setup, starts, ..PortSnapshot::default() };
            let (peer, _other) = UnixStream::pair().unwrap();
            let event = || eventfd(0, EventfdFlags::CLOEXEC).unwrap();
            let events = std::iter::repeat_with(event).take(if few { 1 } else { 40 });
            let progress = QueueProgress::new(2).unwrap().as_fd().try_clone_to_owned().unwrap();
            let mut descriptors = [OwnedFd::from(peer), progress].into_iter().chain(events);
            prop_assume!(snapshot.adopt(&mut descriptors).is_ok());
            let text = serde_json::to_string(&snapshot).unwrap();
            prop_assert!(serde_json::from_str::<PortSnapshot>(&text).is_ok());
            let uri: PortUri = uri.parse().unwrap();
            if let Ok((port, Some(resumption))) = uri.resume(snapshot) {
                match resumption.wait_ready(Duration::from_secs(5)) {
                    Ok(()) => {
                        resumption.start();
                        resumption.wait_started(Duration::from_secs(5));
                    }
                    Err(why) => prop_assert!(!why.contains("get ready"), "{}", why),
                }
                drop(port);
            }
        }
    }

    #[test]
    fn error_of_a_peer_comes_after_the_others_are_ready() {
        let message = || PeerMessage { words: vec![1], descriptors: Vec::new() };
        for (fault, expected) in [
            (ReplayError::Peer as fn(String) -> ReplayError, Ok(())),
            (ReplayError::Here, Err("why".to_owned())),
        ] {
            let progress = QueueProgress::new(2).unwrap().as_fd().try_clone_to_owned().unwrap();
            let messages = SessionMessages { setup: vec![message()], starts: vec![message()] };
            let (resumption, resumed) =
                Resumption::new(messages, PastProgress::new(progress, 0).unwrap());
            let control = std::thread::spawn(move || {
                resumed.replay(|_| (), |_| Err(fault("why".to_owned())))
            });
            assert_eq!(resumption.wait_ready(Duration::from_secs(10)), expected);
            resumption.start();
            assert_eq!(control.join().unwrap(), Err("why".to_owned()));
        }
    }
}
