//! Messages of memif's control socket: one packet of 128 bytes each, in the machine's own byte
//! order, defined as packed structures in VPP's `memif.h`.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg, sockopt,
};

use crate::session::snapshot::MessageBytes;

/// Length of a message in bytes.
const LEN: usize = 128;
/// The only version of the protocol, 2.0.
pub(super) const VERSION: u16 = 2 << 8;
/// Length of the longest secret, in bytes.
pub(super) const SECRET_MAX: usize = 24;
/// Length of the longest name, with the terminating zero.
const NAME_LEN: usize = 32;
/// Mode: the interface carries Ethernet frames.
pub(super) const MODE_ETHERNET: u8 = 0;
/// Flag: the ring leads from the client to the server.
const FROM_CLIENT: u16 = 1;
/// Length of the longest reason for a disconnect, without the terminating zero.
const REASON_MAX: usize = 95;
/// Maximum number of descriptors in a packet (`SCM_MAX_FD` of the kernel).
const FDS_MAX: usize = 253;

const ACK: u16 = 1;
const HELLO: u16 = 2;
const INIT: u16 = 3;
const ADD_REGION: u16 = 4;
const ADD_RING: u16 = 5;
const CONNECT: u16 = 6;
const CONNECTED: u16 = 7;
const DISCONNECT: u16 = 8;

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Ack,
    Hello(Limits),
    /// The client requests an interface.
    Init(Init),
    /// The client passes memory of this many bytes, as this region.
    AddRegion {
        index: u16,
        len: u64,
    },
    AddRing(Ring),
    /// The client has passed everything.
    Connect,
    Connected,
    /// The sender ends the session, for this reason.
    Disconnect(String),
    /// A message of an unknown kind.
    Other(u16),
}

/// Limits of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// First and last supported version of the protocol.
    pub(super) versions: (u16, u16),
    /// Highest number of a region.
    pub(super) last_region: u16,
    /// Highest ring number in either direction.
    pub(super) last_ring: u16,
    /// Maximum size of a ring, as a power of two.
    pub(super) log2_size: u8,
}

/// The interface that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Init {
    pub(super) version: u16,
    pub(super) id: u32,
    pub(super) mode: u8,
    /// Ends with zeroes if it is shorter.
    pub(super) secret: [u8; SECRET_MAX],
}

/// A ring in a client's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ring {
    pub(super) from_client: bool,
    pub(super) index: u16,
    pub(super) region: u16,
    /// Offset in the region, in bytes.
    pub(super) offset: u32,
    pub(super) log2_size: u8,
    /// Length of a private header before each frame, in bytes.
    pub(super) header_len: u16,
}

/// Returns the zero-padded form of a secret.
pub(super) fn padded(secret: &str) -> [u8; SECRET_MAX] {
    let mut padded = [0; SECRET_MAX];
    padded.iter_mut().zip(secret.bytes()).for_each(|(to, byte)| *to = byte);
    padded
}

/// A message to send.
pub(super) struct Packet([u8; LEN]);

impl Packet {
    fn new(kind: u16) -> Self {
        Self([0; LEN]).with(0, &kind.to_ne_bytes())
    }

    fn with(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(super) fn ack() -> Self {
        Self::new(ACK)
    }

    /// Announces the server's limits to a client.
    pub(super) fn hello(limits: Limits) -> Self {
        let Limits { versions: (first, last), last_region, last_ring, log2_size } = limits;
        let halves = [first, last, last_region, last_ring, last_ring].map(u16::to_ne_bytes);
        let new = Self::new(HELLO).with(2, b"dray").with(2 + NAME_LEN, halves.as_flattened());
        new.with(44, &[log2_size])
    }

    /// Requests the server's interface `id`.
    pub(super) fn init(id: u32, secret: &str) -> Self {
        let new = Self::new(INIT).with(2, &VERSION.to_ne_bytes()).with(4, &id.to_ne_bytes());
        new.with(8, &[MODE_ETHERNET]).with(9, &padded(secret)).with(33, b"dray")
    }

    /// Passes memory of `len` bytes, as region 0.
    pub(super) fn add_region(len: usize) -> Self {
        Self::new(ADD_REGION).with(4, &(len as u64).to_ne_bytes())
    }

    /// Passes the event of ring `index`, which has 2 to the power of `log2_size` entries and begins
    /// at `offset` in region 0.
    pub(super) fn add_ring(from_client: bool, index: u16, offset: usize, log2_size: u8) -> Self {
        let flags = if from_client { FROM_CLIENT } else { 0 };
        let new = Self::new(ADD_RING).with(2, &flags.to_ne_bytes()).with(4, &index.to_ne_bytes());
        new.with(8, &(offset as u32).to_ne_bytes()).with(12, &[log2_size])
    }

    /// Ends the setup.
    pub(super) fn connect() -> Self {
        Self::new(CONNECT).with(2, b"dray")
    }

    /// Confirms the end of the setup.
    pub(super) fn connected() -> Self {
        Self::new(CONNECTED).with(2, b"dray")
    }

    /// Ends the session, for the reason `why`.
    pub(super) fn disconnect(why: &str) -> Self {
        Self::new(DISCONNECT).with(6, &why.as_bytes()[..why.len().min(REASON_MAX)])
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

/// Takes the next message, which must be there, with its bytes and the descriptors that came with
/// it; returns `None` if the peer has disconnected.
pub(super) fn receive(
    socket: BorrowedFd<'_>,
) -> Result<Option<(Message, MessageBytes, Vec<OwnedFd>)>, String> {
    let mut bytes = [0; LEN + 1];
    // Descriptors for which there is no room would be closed by the kernel, see below.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let slices = &mut [IoSliceMut::new(&mut bytes)];
    let message = match recvmsg(socket, slices, &mut ancillary, flags) {
        Ok(message) => message,
        Err(Errno::CONNRESET) => return Ok(None),
        Err(error) => return Err(format!("receiving: {error}")),
    };
    let mut fds = Vec::new();
    for part in ancillary.drain() {
        let RecvAncillaryMessage::ScmRights(rights) = part else { continue };
        for fd in rights {
            // The last close of a socket waits until all its data is sent if SO_LINGER is set.
            let _ = sockopt::set_socket_linger(&fd, None);
            fds.push(fd);
        }
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        return Err("message has more file descriptors than the process may open".to_owned());
    }
    match (message.bytes, bytes.first_chunk()) {
        (0, _) => Ok(None),
        (LEN, Some(message)) => Ok(Some((parse(message), message.to_vec(), fds))),
        _ => Err(format!("message is not {LEN} bytes long")),
    }
}

/// Returns the next message, which stays in the socket; `None` if the peer has disconnected, or the
/// message is invalid.
pub(super) fn peek(socket: BorrowedFd<'_>) -> Option<Message> {
    let mut bytes = [0; LEN + 1];
    let (_, len) = recv(socket, &mut bytes[..], RecvFlags::DONTWAIT | RecvFlags::PEEK).ok()?;
    (len == LEN).then(|| bytes.first_chunk().map(parse))?
}

/// Parses the bytes of a received message.
pub(super) fn parse_words(words: &[u8]) -> Result<Message, String> {
    words.try_into().map(parse).map_err(|_| format!("message is not {LEN} bytes long"))
}

fn parse(bytes: &[u8; LEN]) -> Message {
    let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
    match half(0) {
        ACK => Message::Ack,
        HELLO => {
            let at = 2 + NAME_LEN;
            Message::Hello(Limits {
                versions: (half(at), half(at + 2)),
                last_region: half(at + 4),
                last_ring: half(at + 6).min(half(at + 8)),
                log2_size: bytes[at + 10],
            })
        }
        INIT => Message::Init(Init {
            version: half(2),
            id: word(4),
            mode: bytes[8],
            secret: std::array::from_fn(|at| bytes[9 + at]),
        }),
        ADD_REGION => Message::AddRegion {
            index: half(2),
            len: u64::from_ne_bytes(std::array::from_fn(|at| bytes[4 + at])),
        },
        ADD_RING => Message::AddRing(Ring {
            from_client: half(2) & FROM_CLIENT != 0,
            index: half(4),
            region: half(6),
            offset: word(8),
            log2_size: bytes[12],
            header_len: half(13),
        }),
        CONNECT => Message::Connect,
        CONNECTED => Message::Connected,
        DISCONNECT => {
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
    use std::os::fd::AsFd;

    #[test]
    fn packets_match_vpp_memif_layout() {
        let Packet(init) = Packet::init(0x0403_0201, "secret");
        assert_eq!(init[..10], [3, 0, 0, 2, 1, 2, 3, 4, 0, b's']);
        assert_eq!((&init[33..38], init[15]), (&b"dray\0"[..], 0));
        let Packet(region) = Packet::add_region(0x1_0000_0002);
        assert_eq!(region[..12], [4, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0]);
        let Packet(ring) = Packet::add_ring(true, 3, 0x1000, 9);
        assert_eq!(ring[..15], [5, 0, 1, 0, 3, 0, 0, 0, 0, 0x10, 0, 0, 9, 0, 0]);
        let long = "x".repeat(100);
        assert_eq!(Packet::init(0, &long).0[33..37], *b"dray");
        let Packet(bye) = Packet::disconnect(&long);
        assert_eq!((bye[0], bye[100], bye[101]), (8, b'x', 0));
    }

    #[test]
    fn packets_are_parsed_back() {
        let limits =
            Limits { versions: (0x200, 0x201), last_region: 31, last_ring: 3, log2_size: 14 };
        assert_eq!(parse(&Packet::hello(limits).0), Message::Hello(limits));
        let init = Init {
            version: 0x200,
            id: 0xffff_fff0,
            mode: 0,
            secret: padded("0123456789-a_b-c-d-e-f-g"),
        };
        assert_eq!(
            parse(&Packet::init(init.id, "0123456789-a_b-c-d-e-f-g").0),
            Message::Init(init)
        );
        let (index, len) = (0, 0x1_0000_0002);
        assert_eq!(parse(&Packet::add_region(len as usize).0), Message::AddRegion { index, len });
        let ring = Ring {
            from_client: true,
            index: 3,
            region: 0,
            offset: 0x1000,
            log2_size: 9,
            header_len: 0,
        };
        assert_eq!(parse(&Packet::add_ring(true, 3, 0x1000, 9).0), Message::AddRing(ring));
        let simple = [Packet::ack(), Packet::connect(), Packet::connected()];
        let wanted = [Message::Ack, Message::Connect, Message::Connected];
        assert_eq!(simple.map(|packet| parse(&packet.0)), wanted);
    }

    #[test]
    fn hello_and_disconnect_are_parsed() {
        let mut hello = Packet::new(2).with(2, b"VPP").0;
        hello[34..45].copy_from_slice(&[0, 2, 1, 2, 255, 0, 7, 0, 3, 0, 14]);
        let limits =
            Limits { versions: (0x200, 0x201), last_region: 255, last_ring: 3, log2_size: 14 };
        assert_eq!(parse(&hello), Message::Hello(limits));
        let bye = Packet::new(8).with(6, b"no\x1b[2J\0more").0;
        assert_eq!(parse(&bye), Message::Disconnect("no?[2J".to_owned()));
    }

    #[test]
    fn peeked_message_stays_and_its_descriptors_come_later() {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        Packet::add_region(1).send(theirs.as_fd(), Some(theirs.as_fd())).unwrap();
        let wanted = Message::AddRegion { index: 0, len: 1 };
        assert_eq!(peek(ours.as_fd()), Some(wanted.clone()));
        let (message, _, fds) = receive(ours.as_fd()).unwrap().unwrap();
        assert_eq!((message, fds.len()), (wanted, 1));
        drop((theirs, fds));
        assert_eq!(peek(ours.as_fd()), None);
        assert!(receive(ours.as_fd()).unwrap().is_none());
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
