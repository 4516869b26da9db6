//! A session on the control socket, from either side.

use std::convert::Infallible;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::message::{Message, Packet, receive};
use crate::ends::pairs::Pairs;
use crate::session::connection::{Control, End, Woken};
use crate::session::snapshot::MessageBytes;

/// Time within which a peer must send a message that the port waits for.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Session<'a> {
    /// Role of the peer, for messages.
    pub(super) peer: &'static str,
    pub(super) socket: BorrowedFd<'a>,
    pub(super) control: &'a Control,
}

impl Session<'_> {
    /// Sends a message; `what` names it.
    pub(super) fn send(
        &self,
        what: &str,
        packet: &Packet,
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<(), End> {
        packet.send(self.socket, fd).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::PIPE | Errno::CONNRESET) => End::Left,
            _ => refused(format!("{what}: {error}")),
        })
    }

    /// Waits for the next message, the reply to `what` or `what` itself, for at most
    /// [`REPLY_TIMEOUT`].
    pub(super) fn next(&self, what: &str) -> Result<(Message, Vec<OwnedFd>), End> {
        self.await_message(what)?;
        self.take().map(|(message, _, fds)| (message, fds))
    }

    /// Like [`next`](Self::next), but leaves the message in the socket.
    pub(super) fn await_message(&self, what: &str) -> Result<(), End> {
        let until = Instant::now() + REPLY_TIMEOUT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let woken = self.control.wait(Some(self.socket), Some(left));
            if self.control.is_stopping() {
                return Err(End::Stop);
            }
            match woken {
                Woken::Readable => return Ok(()),
                Woken::Timeout => {
                    return Err(refused(format!("{what}: no message for {REPLY_TIMEOUT:?}")));
                }
                Woken::ControlWake => {}
            }
        }
    }

    /// Serves the peer, whose queues are `pairs`, until one side ends the session.
    pub(super) fn serve(&self, pairs: &impl Pairs) -> Result<Infallible, End> {
        self.control.change(|status| status.features = vec!["memif 2.0".to_owned()]);
        loop {
            let woken = self.control.wait(Some(self.socket), None);
            let _gate = self.control.gate();
            if self.control.is_stopping() {
                return Err(End::Stop);
            }
            if let Some(failure) = pairs.failure() {
                return Err(refused(failure.to_string()));
            }
            if matches!(woken, Woken::Readable) {
                let (message, ..) = self.take()?;
                return Err(refused(format!("unexpected {message:?}")));
            }
        }
    }

    /// Takes the waiting message: its content, its bytes, and its descriptors.
    pub(super) fn take(&self) -> Result<(Message, MessageBytes, Vec<OwnedFd>), End> {
        match receive(self.socket).map_err(refused)? {
            Some((Message::Disconnect(why), ..)) => {
                Err(refused(format!("{} disconnected: {why}", self.peer)))
            }
            Some(received) => Ok(received),
            None => Err(End::Left),
        }
    }
}

pub(super) fn refused(why: impl Into<String>) -> End {
    End::Refused(why.into())
}
