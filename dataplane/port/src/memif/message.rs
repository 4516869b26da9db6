//! Messages of memif's control socket: one packet of 128 bytes each, in the machine's own byte
//! order, defined as packed structures in VPP's `memif.h`.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};

/// Length of a message in bytes.
const LEN: usize = 128;
/// The only version of the protocol, 2.0.
pub(super) const VERSION: u16 = 2 << 8;
/// Length of the longest secret, in bytes.
pub(super) const SECRET_MAX: usize = 24;
/// Length of the longest name, with the terminating zero.
const NAME_LEN: usize = 32;
/// Mode: the interface carries Ethernet frames.
const MODE_ETHERNET: u8 = 0;
/// Flag: the ring leads from the client to the server.
const FROM_CLIENT: u16 = 1;

/// A message, with the contents that a client needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Ack,
    Hello(Limits),
    Connected,
    /// The server ends the session, for this reason.
    Disconnect(String),
    /// A message that a client does not use.
    Other(u16),
}

/// Limits of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// First and last supported version of the protocol.
    pub(super) versions: (u16, u16),
    /// Highest ring number in either direction.
    pub(super) last_ring: u16,
    /// Maximum size of a ring, as a power of two.
    pub(super) log2_size: u8,
}

/// A message to a server.
pub(super) struct Request([u8; LEN]);

impl Request {
    fn new(kind: u16) -> Self {
        Self([0; LEN]).with(0, &kind.to_ne_bytes())
    }

    fn with(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// Requests the server's interface `id`.
    pub(super) fn init(id: u32, secret: &str) -> Self {
        let new = Self::new(3).with(2, &VERSION.to_ne_bytes()).with(4, &id.to_ne_bytes());
        let secret = &secret.as_bytes()[..secret.len().min(SECRET_MAX)];
        new.with(8, &[MODE_ETHERNET]).with(9, secret).with(33, b"dray")
    }

    /// Passes memory of `len` bytes, as region 0.
    pub(super) fn add_region(len: usize) -> Self {
        Self::new(4).with(4, &(len as u64).to_ne_bytes())
    }

    /// Passes the event of ring `index`, which has 2 to the power of `log2_size` entries and begins
    /// at `offset` in the region.
    pub(super) fn add_ring(from_client: bool, index: u16, offset: usize, log2_size: u8) -> Self {
        let flags = if from_client { FROM_CLIENT } else { 0 };
        let new = Self::new(5).with(2, &flags.to_ne_bytes()).with(4, &index.to_ne_bytes());
        new.with(8, &(offset as u32).to_ne_bytes()).with(12, &[log2_size])
    }

    /// Ends the setup.
    pub(super) fn connect() -> Self {
        Self::new(6).with(2, b"dray")
    }

    /// Sends the message, with a descriptor if given. Never waits.
    pub(super) fn send(
        &self,
        socket: BorrowedFd<'_>,
        fd: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = fd.map(|fd| [fd]);
        if let Some(fds) = &fds {
            ancillary.push(SendAncillaryMessage::ScmRights(fds));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(socket, &[IoSlice::new(&self.0)], &mut ancillary, flags)?;
        Ok(())
    }
}

/// Takes the next message, which must be there; returns `None` if the server has disconnected.
/// Descriptors that come with a message are not taken: the kernel closes them.
pub(super) fn receive(socket: BorrowedFd<'_>) -> Result<Option<Message>, String> {
    let mut bytes = [0; LEN + 1];
    let len = match recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
        Ok((_, 0)) | Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        Ok((_, len)) => len,
        Err(error) => return Err(format!("receiving: {error}")),
    };
    match bytes.first_chunk() {
        Some(message) if len == LEN => Ok(Some(parse(message))),
        _ => Err(format!("message is not {LEN} bytes long")),
    }
}

fn parse(bytes: &[u8; LEN]) -> Message {
    let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    match half(0) {
        1 => Message::Ack,
        2 => {
            let at = 2 + NAME_LEN;
            Message::Hello(Limits {
                versions: (half(at), half(at + 2)),
                last_ring: half(at + 6).min(half(at + 8)),
                log2_size: bytes[at + 10],
            })
        }
        7 => Message::Connected,
        8 => {
            let text = bytes[6..102].split(|&byte| byte == 0).next().unwrap_or_default();
            let plain = |&byte: &u8| match byte {
                b' '..=b'~' => char::from(byte),
                _ => '?',
            };
            Message::Disconnect(text.iter().map(plain).collect())
        }
        other => Message::Other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_match_vpp_memif_layout() {
        let Request(init) = Request::init(0x0403_0201, "secret");
        assert_eq!(init[..10], [3, 0, 0, 2, 1, 2, 3, 4, 0, b's']);
        assert_eq!((&init[33..38], init[15]), (&b"dray\0"[..], 0));
        let Request(region) = Request::add_region(0x1_0000_0002);
        assert_eq!(region[..12], [4, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0]);
        let Request(ring) = Request::add_ring(true, 3, 0x1000, 9);
        assert_eq!(ring[..15], [5, 0, 1, 0, 3, 0, 0, 0, 0, 0x10, 0, 0, 9, 0, 0]);
        let long = "x".repeat(100);
        assert_eq!(Request::init(0, &long).0[33..37], *b"dray");
    }

    #[test]
    fn hello_and_disconnect_are_parsed() {
        let mut hello = Request::new(2).with(2, b"VPP").0;
        hello[34..45].copy_from_slice(&[0, 2, 1, 2, 255, 0, 7, 0, 3, 0, 14]);
        let limits = Limits { versions: (0x200, 0x201), last_ring: 3, log2_size: 14 };
        assert_eq!(parse(&hello), Message::Hello(limits));
        let bye = Request::new(8).with(6, b"no\x1b[2J\0more").0;
        assert_eq!(parse(&bye), Message::Disconnect("no?[2J".to_owned()));
    }

    proptest! {
        #[test]
        fn parsing_any_message_never_panics(bytes in prop::collection::vec(any::<u8>(), LEN), kind in 0..10u8) {
            let mut bytes: [u8; LEN] = bytes.try_into().unwrap();
            parse(&bytes);
            bytes[..2].copy_from_slice(&u16::from(kind).to_ne_bytes());
            parse(&bytes);
        }
    }
}
