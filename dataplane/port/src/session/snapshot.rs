//! A live port, described so that another process continues it while the peer stays connected.
//!
//! The description is what the peer has said, in the messages of its own protocol, and the
//! descriptors that came with them. The process that continues has these messages said again, and
//! checks them as it checks a peer's: a description is trusted no further than a peer. Messages that
//! start a queue come last, once the other process has let go of it. Where the queues stand is in
//! memory that both processes see ([`queue_progress`](super::queue_progress)), also if the other one was
//! killed.

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

/// A message that a peer has said, without its descriptors.
pub type MessageBytes = Vec<u8>;

/// A port that another process continues.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortSnapshot {
    /// True if the first descriptor is where peers come from: a socket that listens, or a directory.
    origin: bool,
    /// True if the process that hands over has bound that socket itself.
    own: bool,
    /// True if the next descriptor is the connection to the peer.
    connected: bool,
    /// Number of changes before this description. The next descriptor is that of the progress of the
    /// queues if there is a peer.
    changes: u64,
    /// Messages of the peer; each has as many of the further descriptors as the number says.
    said: Vec<(MessageBytes, u8)>,
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

/// Messages of a peer.
#[derive(Debug, Default)]
pub(crate) struct SessionMessages {
    pub(crate) said: Vec<PeerMessage>,
    /// Messages that start queues.
    pub(crate) starts: Vec<PeerMessage>,
}

/// Parts of a live port with a peer, for the scheme that continues it.
pub(crate) struct Parts {
    pub(crate) origin: Option<OwnedFd>,
    pub(crate) own: bool,
    pub(crate) peer: Option<OwnedFd>,
    /// The progress of its queues, and the number of changes; with a peer.
    pub(crate) progress: Option<OwnedFd>,
    pub(crate) changes: u64,
    pub(crate) conversation: SessionMessages,
    /// Ends of earlier sessions.
    pub(crate) past: LinkStatus,
}

impl PortSnapshot {
    /// Describes a port without a peer, by its devices or sockets, and the longest frame that it
    /// transmits.
    pub fn of_devices<'d>(
        devices: impl IntoIterator<Item = BorrowedFd<'d>>,
        frame_max: usize,
    ) -> io::Result<Self> {
        let descriptors = devices.into_iter().map(|device| device.try_clone_to_owned());
        let descriptors: Vec<_> = descriptors.collect::<io::Result<_>>()?;
        Ok(Self { devices: descriptors.len() as u16, frame_max, descriptors, ..Self::default() })
    }

    pub(crate) fn of_peer(parts: Parts) -> Self {
        let Parts { origin, own, peer, progress, changes, conversation, past } = parts;
        let SessionMessages { said, starts } = conversation;
        let (has_origin, connected) = (origin.is_some(), peer.is_some());
        let progress = progress.filter(|_| connected);
        let mut descriptors: Vec<_> = origin.into_iter().chain(peer).chain(progress).collect();
        let mut words = |messages: Vec<PeerMessage>| {
            let strip = |said: PeerMessage| {
                let count = said.descriptors.len() as u8;
                descriptors.extend(said.descriptors);
                (said.words, count)
            };
            messages.into_iter().map(strip).collect::<Vec<_>>()
        };
        Self {
            origin: has_origin,
            own,
            connected,
            changes,
            said: words(said),
            starts: words(starts),
            devices: 0,
            frame_max: 0,
            ends: past.ends,
            last_end: past.last_end,
            descriptors,
        }
    }

    /// Returns true if there is nothing to continue: such a port can only be opened again.
    pub fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    /// Returns the number of peers that were disconnected.
    pub fn disconnects(&self) -> u64 {
        self.ends.values().sum()
    }

    /// Returns the number of changes of the port before it was described.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the descriptors of the description, in order.
    pub fn descriptors(&self) -> &[OwnedFd] {
        &self.descriptors
    }

    /// Takes the descriptors of the description from `descriptors`.
    ///
    /// # Errors
    /// If there are too few.
    pub fn adopt(&mut self, descriptors: &mut impl Iterator<Item = OwnedFd>) -> Result<(), String> {
        let of_messages =
            self.said.iter().chain(&self.starts).map(|(_, count)| usize::from(*count));
        let first = usize::from(self.origin) + 2 * usize::from(self.connected);
        let wanted = first + of_messages.sum::<usize>() + usize::from(self.devices);
        self.descriptors = descriptors.take(wanted).collect();
        match self.descriptors.len() {
            have if have == wanted => Ok(()),
            have => Err(format!("{have} of its {wanted} file descriptors came along")),
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
            let said = |(words, count): (MessageBytes, u8)| {
                let count = usize::from(count);
                if count > DESCRIPTORS_MAX {
                    return Err(format!("a message has {count} file descriptors"));
                }
                Ok(PeerMessage { words, descriptors: descriptors.by_ref().take(count).collect() })
            };
            messages.into_iter().map(said).collect::<Result<Vec<_>, _>>()
        };
        let (said, starts) = (messages(self.said)?, messages(self.starts)?);
        let past = LinkStatus { ends: self.ends, last_end: self.last_end, ..LinkStatus::default() };
        let conversation = SessionMessages { said, starts };
        let Self { own, changes, .. } = self;
        Ok(Parts { origin, own, peer, progress, changes, conversation, past })
    }
}

impl Parts {
    /// Returns both ends for a session that another process has begun, if there is one that can be
    /// continued. Otherwise the port has no peer.
    pub(crate) fn resumption(&mut self) -> Option<(Resumption, Resumed)> {
        match PastProgress::new(self.progress.take()?, self.changes) {
            Ok(progress) => Some(Resumption::new(std::mem::take(&mut self.conversation), progress)),
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
            |said: &[PeerMessage]| said.iter().map(PeerMessage::copy).collect::<io::Result<_>>();
        Ok(Self { said: copy(&self.said)?, starts: copy(&self.starts)? })
    }
}

impl PeerMessage {
    /// Copies the message, with duplicates of its descriptors.
    pub(crate) fn copy(&self) -> io::Result<Self> {
        let descriptors = self.descriptors.iter().map(OwnedFd::try_clone);
        Ok(Self { words: self.words.clone(), descriptors: descriptors.collect::<io::Result<_>>()? })
    }

    /// Sends the message on `socket`, ahead of the peer's next one.
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

/// A port whose control thread stands still until this value is dropped. Data threads go on.
pub struct Frozen<'p> {
    pub(crate) live: PortSnapshot,
    /// Keeps the control thread out.
    pub(crate) _gate: MutexGuard<'p, Option<OwnedFd>>,
}

impl Frozen<'_> {
    /// Takes the description of the port.
    pub fn take_snapshot(&mut self) -> PortSnapshot {
        std::mem::take(&mut self.live)
    }
}

/// A port that is about to be handed over.
pub enum Held<'p> {
    /// The port's control thread is paused.
    Peer(Frozen<'p>),
    /// It has no peer.
    Devices(PortSnapshot),
}

impl Held<'_> {
    /// Takes the description of the port.
    pub fn take_snapshot(&mut self) -> PortSnapshot {
        match self {
            Self::Peer(frozen) => frozen.take_snapshot(),
            Self::Devices(live) => std::mem::take(live),
        }
    }
}

/// A port that is ready to be continued, in the process that continues it.
pub struct Resumption {
    pub(crate) ready: mpsc::Receiver<Result<(), String>>,
    pub(crate) go: mpsc::Sender<()>,
}

/// The end of a [`Resumption`] that a control thread holds.
pub(crate) struct Resumed {
    pub(crate) conversation: SessionMessages,
    progress: PastProgress,
    ready: mpsc::Sender<Result<(), String>>,
    go: mpsc::Receiver<()>,
}

impl Resumption {
    pub(crate) fn new(conversation: SessionMessages, progress: PastProgress) -> (Self, Resumed) {
        let ((ready, is_ready), (go, goes)) = (mpsc::channel(), mpsc::channel());
        (Self { ready: is_ready, go }, Resumed { conversation, progress, ready, go: goes })
    }

    /// Waits until the port is ready; the error says why it cannot be continued.
    pub fn wait_ready(&self, patience: std::time::Duration) -> Result<(), String> {
        let what = "its control thread does not get ready";
        self.ready.recv_timeout(patience).unwrap_or_else(|_| Err(what.to_owned()))
    }

    /// Starts the queues where the other process has stopped. Call it when no data thread there uses
    /// the port any more.
    pub fn go(&self) {
        // A control thread that has ended has said why in the port's status.
        let _ = self.go.send(());
    }

    /// Waits until the queues have started: before that, the port cannot be described again.
    pub fn wait_started(self, patience: std::time::Duration) {
        let _ = self.ready.recv_timeout(patience);
    }
}

/// Why a message of a peer is not taken again.
#[derive(Debug)]
pub(crate) enum ReplayError {
    /// The peer has changed what it refers to: a file of memory may be shorter now.
    Peer(String),
    /// The message is not the one that the peer has said, or this process lacks something.
    Here(String),
}

impl From<String> for ReplayError {
    fn from(why: String) -> Self {
        Self::Here(why)
    }
}

impl Resumed {
    /// Repeats the peer's messages by `say`: at once those that lead to the peer's state, and when
    /// the other process has let go those that start the queues, after `stand` was given their
    /// positions. Returns false if that never happens. A peer that is not taken again keeps no
    /// other port from being handed over: the port is ready, and the error comes once the other
    /// process has let go.
    pub(crate) fn replay(
        self,
        stand: impl FnOnce(&PastProgress),
        mut say: impl FnMut(&PeerMessage) -> Result<(), ReplayError>,
    ) -> Result<bool, String> {
        let Self { conversation: SessionMessages { said, starts }, progress, ready, go } = self;
        let (result, is_ready) = match said.iter().try_for_each(&mut say) {
            Ok(()) => (Ok(()), Ok(())),
            Err(ReplayError::Peer(why)) => (Err(why), Ok(())),
            Err(ReplayError::Here(why)) => (Err(why.clone()), Err(why)),
        };
        let is_over = is_ready.is_err();
        // The port may have been closed meanwhile.
        let _ = ready.send(is_ready);
        if !is_over && go.recv().is_err() {
            return Ok(false);
        }
        result?;
        let started = progress.take().and_then(|()| {
            stand(&progress);
            starts
                .iter()
                .try_for_each(&mut say)
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
            said in messages(),
            starts in messages(),
            few: bool,
            uri in prop_oneof![Just("vhost:@x"), Just("memif:@x?role=server"), Just("tap:x")],
        ) {
            let [origin, own, connected] = flags;
            let mut live = PortSnapshot { origin, own, connected, said, starts, ..PortSnapshot::default() };
            let (peer, _other) = UnixStream::pair().unwrap();
            let event = || eventfd(0, EventfdFlags::CLOEXEC).unwrap();
            let events = std::iter::repeat_with(event).take(if few { 1 } else { 40 });
            let progress = QueueProgress::new(2).unwrap().as_fd().try_clone_to_owned().unwrap();
            let mut descriptors = [OwnedFd::from(peer), progress].into_iter().chain(events);
            prop_assume!(live.adopt(&mut descriptors).is_ok());
            let text = serde_json::to_string(&live).unwrap();
            prop_assert!(serde_json::from_str::<PortSnapshot>(&text).is_ok());
            let uri: PortUri = uri.parse().unwrap();
            if let Ok((port, Some(resumption))) = uri.resume(live) {
                match resumption.wait_ready(Duration::from_secs(5)) {
                    Ok(()) => {
                        resumption.go();
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
        let said = || PeerMessage { words: vec![1], descriptors: Vec::new() };
        for (fault, expected) in [
            (ReplayError::Peer as fn(String) -> ReplayError, Ok(())),
            (ReplayError::Here, Err("why".to_owned())),
        ] {
            let progress = QueueProgress::new(2).unwrap().as_fd().try_clone_to_owned().unwrap();
            let conversation = SessionMessages { said: vec![said()], starts: vec![said()] };
            let (resumption, resumed) =
                Resumption::new(conversation, PastProgress::new(progress, 0).unwrap());
            let control = std::thread::spawn(move || {
                resumed.replay(|_| (), |_| Err(fault("why".to_owned())))
            });
            assert_eq!(resumption.wait_ready(Duration::from_secs(10)), expected);
            resumption.go();
            assert_eq!(control.join().unwrap(), Err("why".to_owned()));
        }
    }
}
