//! Checks of a message before the `vhost` crate reads it.
//!
//! The `vhost` crate blocks until a message is complete and its reply is sent, and its errors only
//! say that a message is invalid. Therefore this module passes a message on only when it is
//! complete and there is room for a reply, and checks the header with more detailed errors.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg, sockopt,
};
use rustix::time::Timespec;
use vhost::vhost_user::message::{FrontendReq, MAX_ATTACHED_FD_ENTRIES, MAX_MSG_SIZE};

use crate::session::snapshot::{MessageBytes, PeerMessage};

const HEADER_LEN: usize = 12;
/// Bits of a header's flags.
const VERSION: u32 = 3;
const REPLY: u32 = 4;
const NEED_REPLY: u32 = 8;

/// Returns a message without descriptors.
pub(super) fn words(request: FrontendReq, body: &[u8]) -> MessageBytes {
    let header = [request as u32, 1, body.len() as u32].map(u32::to_ne_bytes);
    [header.as_flattened(), body].concat()
}

/// Returns a message with duplicates of `descriptors`.
pub(super) fn with_descriptors(
    request: FrontendReq,
    body: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<PeerMessage> {
    let descriptors = descriptors.iter().map(BorrowedFd::try_clone_to_owned);
    Ok(PeerMessage {
        words: words(request, body),
        descriptors: descriptors.collect::<io::Result<_>>()?,
    })
}

/// State of the socket's input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// A complete message, and there is room for its reply.
    Message(Header),
    /// No input.
    Empty,
    /// An incomplete message, or no room for its reply; the text describes which.
    Incomplete(String),
    /// The driver has disconnected.
    HungUp,
}

/// A plausible header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    request: FrontendReq,
    size: u32,
    fds: usize,
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { request, size, fds } = self;
        write!(f, "{request:?} of {size} bytes with {fds} file descriptors")
    }
}

/// Inspects the next message without removing it from the socket.
///
/// # Errors
/// A description of the error in the message.
pub(super) fn peek(socket: BorrowedFd<'_>) -> Result<Input, String> {
    let mut bytes = [0; HEADER_LEN];
    let (len, fds) = match peek_header(socket, &mut bytes)? {
        Some(peeked) => peeked,
        None => return Ok(Input::Empty),
    };
    let (writable, hung_up) = readiness(socket);
    if len == 0 {
        return Ok(Input::HungUp);
    }
    let missing = |what: String| match hung_up {
        true => Err(format!("{what}, then the peer disconnected")),
        false => Ok(Input::Incomplete(what)),
    };
    if len < HEADER_LEN {
        return missing(format!("incomplete message header: {len} of {HEADER_LEN} bytes"));
    }
    let header = Header { fds, ..check(bytes)? };
    let available = ioctl_fionread(socket).map_err(|error| format!("socket: {error}"))?;
    let available = available.saturating_sub(HEADER_LEN as u64);
    if available < header.size.into() {
        return missing(format!(
            "incomplete {:?}: {available} of {} bytes",
            header.request, header.size
        ));
    }
    if !writable && !hung_up {
        return Ok(Input::Incomplete("replies unread".to_owned()));
    }
    Ok(Input::Message(header))
}

/// Returns the number of available bytes, up to a header's length, and of the file descriptors
/// attached to them; `None` if there is no message yet.
fn peek_header(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8; HEADER_LEN],
) -> Result<Option<(usize, usize)>, String> {
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_ATTACHED_FD_ENTRIES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = match recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags) {
        Ok(message) => message,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        // The driver has disconnected without reading a reply.
        Err(Errno::CONNRESET) => return Ok(Some((0, 0))),
        Err(error) => return Err(format!("socket: {error}")),
    };
    let mut fds = 0;
    for rights in ancillary.drain() {
        let RecvAncillaryMessage::ScmRights(rights) = rights else { continue };
        for fd in rights {
            fds += 1;
            // The last close of a socket waits until all its data is sent if SO_LINGER is set.
            let _ = sockopt::set_socket_linger(&fd, None);
        }
    }
    // The buffer's size is rounded up, so one descriptor more may have fitted.
    if fds > MAX_ATTACHED_FD_ENTRIES || message.flags.contains(ReturnFlags::CTRUNC) {
        return Err(format!(
            "message has more than {MAX_ATTACHED_FD_ENTRIES} file descriptors, \
             or more than the process may open"
        ));
    }
    Ok(Some((message.bytes, fds)))
}

/// Returns two flags: a reply can be written without waiting; the driver has disconnected.
fn readiness(socket: BorrowedFd<'_>) -> (bool, bool) {
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::OUT | PollFlags::RDHUP)];
    // After a failure, nothing is ready.
    let _ = poll(&mut fds, Some(&Timespec::default()));
    let ready = fds[0].revents();
    (ready.contains(PollFlags::OUT), ready.intersects(PollFlags::RDHUP | PollFlags::HUP))
}

fn check(bytes: [u8; HEADER_LEN]) -> Result<Header, String> {
    let word = |at| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
    let (request, flags, size) = (word(0), word(4), word(8));
    let Ok(request) = FrontendReq::try_from(request) else {
        return Err(format!("unknown request {request}"));
    };
    if flags & VERSION != 1 {
        return Err(format!("{request:?} has version {}: only version 1 exists", flags & VERSION));
    }
    if flags & REPLY != 0 {
        return Err(format!("unexpected reply: {request:?}"));
    }
    if flags & !(VERSION | REPLY | NEED_REPLY) != 0 {
        return Err(format!("{request:?} has undefined bits in flags {flags:#x}"));
    }
    if size as usize > MAX_MSG_SIZE {
        return Err(format!("{request:?} of {size} bytes: at most {MAX_MSG_SIZE} are allowed"));
    }
    Ok(Header { request, size, fds: 0 })
}

/// Returns true if the driver has disconnected, even if there are unread messages.
pub(super) fn has_hung_up(socket: BorrowedFd<'_>) -> bool {
    readiness(socket).1
}

impl Header {
    /// Returns true if the message changes the memory that the driver shares.
    pub(super) fn changes_memory(&self) -> bool {
        let Self { request, .. } = self;
        matches!(
            request,
            FrontendReq::SET_MEM_TABLE | FrontendReq::ADD_MEM_REG | FrontendReq::REM_MEM_REG
        )
    }

    /// Describes what is wrong with a message that the `vhost` crate found invalid.
    pub(super) fn explain(&self) -> String {
        let expected = match self.request {
            FrontendReq::SET_MEM_TABLE | FrontendReq::ADD_MEM_REG => {
                "non-empty regions within the address space, and a file descriptor for each"
            }
            FrontendReq::SET_VRING_KICK
            | FrontendReq::SET_VRING_CALL
            | FrontendReq::SET_VRING_ERR => "8 bytes, and one file descriptor or bit 8",
            FrontendReq::SET_VRING_ADDR => {
                "40 bytes; descriptors aligned to 16 bytes, available ring to 2, used ring to 4"
            }
            FrontendReq::SET_VRING_ENABLE => "8 bytes, with the value 0 or 1",
            _ => "a request for network devices, of its exact length, without file descriptors",
        };
        format!("{self} is invalid: expected {expected}")
    }

    /// Describes a message that needs a feature which the driver did not negotiate.
    pub(super) fn not_negotiated(&self) -> String {
        format!("{:?} was not negotiated", self.request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn header(request: u32, flags: u32, size: u32) -> Vec<u8> {
        [request, flags, size].iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn message_is_whole_with_its_last_byte() {
        let (mut driver, ours) = UnixStream::pair().unwrap();
        let peek_ours = || peek(ours.as_fd());
        let whole = Header { request: FrontendReq::SET_FEATURES, size: 8, fds: 0 };
        assert_eq!(peek_ours(), Ok(Input::Empty));
        let bytes = [header(2, 1, 8), vec![0; 8]].concat();
        for (sent, byte) in bytes.iter().enumerate() {
            assert!(matches!(peek_ours(), Ok(Input::Empty | Input::Incomplete(_))), "{sent}");
            driver.write_all(&[*byte]).unwrap();
        }
        assert_eq!(peek_ours(), Ok(Input::Message(whole)));
        drop(driver);
        assert_eq!(peek_ours(), Ok(Input::Message(whole)), "what was sent before still counts");
        (&ours).read_exact(&mut [0; 20]).unwrap();
        assert_eq!(peek_ours(), Ok(Input::HungUp));
    }

    #[test]
    fn errors_name_invalid_header_field() {
        for (bytes, part) in [
            (header(99, 1, 0), "request 99"),
            (header(1, 2, 0), "version 2"),
            (header(1, 5, 0), "unexpected reply"),
            (header(1, 0x101, 0), "0x101"),
            (header(5, 1, 4097), "4097"),
            (header(5, 1, 40), "then the peer disconnected"),
            (vec![1, 0, 0], "3 of 12 bytes"),
        ] {
            let (mut driver, ours) = UnixStream::pair().unwrap();
            driver.write_all(&bytes).unwrap();
            drop(driver);
            let why = peek(ours.as_fd()).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn unread_replies_are_reported() {
        let (mut driver, mut ours) = UnixStream::pair().unwrap();
        driver.write_all(&header(1, 1, 0)).unwrap();
        ours.set_nonblocking(true).unwrap();
        while ours.write(&[0; 20]).is_ok() {}
        assert_eq!(peek(ours.as_fd()), Ok(Input::Incomplete("replies unread".to_owned())));
    }
}
